// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Named is a file that is open for the application without a descriptor of its own: a library in the
// lower half has it. It is known by name alone.
type Named struct {
	Path    string
	Write   bool // may be written to
	Scratch bool // is deleted when it is closed, so its content goes into the table
	Mapped  bool // is written to through memory of the application
}

// AddNamed adds such files to a captured table. Obstacles, in words, are why no checkpoint may be made
// of it. The application must be stopped.
func (t *Table) AddNamed(list []Named) (obstacles []string, err error) {
	c := capturer{table: *t, contents: map[inodeKey]int{}, bytes: t.dataBytes()}
	for i, n := range list {
		if seenNamed(list[:i], n) {
			continue
		}
		what, err := c.addNamed(n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.Path, err)
		}
		if what != "" {
			obstacles = append(obstacles, n.Path+" "+what)
		}
	}
	if len(obstacles) > 0 {
		return obstacles, nil
	}
	*t = c.table
	return nil, t.validate()
}

func seenNamed(earlier []Named, n Named) bool {
	for _, e := range earlier {
		if e == n {
			return true
		}
	}
	return false
}

func (c *capturer) addNamed(n Named) (obstacle string, err error) {
	if n.Mapped && c.mapped(n.Path) {
		return "", nil
	}
	var st unix.Stat_t
	file := File{Kind: KindRegular, Path: Path(n.Path), Flags: unix.O_RDONLY}
	if n.Write {
		file.Flags = unix.O_WRONLY
	}
	err = unix.Stat(n.Path, &st)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		if n.Mapped {
			return "is mapped as shared memory, and was deleted or renamed: unmap it before the checkpoint", nil
		}
		return "was deleted or renamed while it is open: close it before the checkpoint", nil
	case err != nil:
		return "", err
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return "", nil // a device: nothing of it can be kept, nor needs to be
	}
	if n.Scratch {
		return c.addScratch(n, file, &st)
	}
	file.Inode = inodeOf(&st)
	file.Inode.Mapped = n.Mapped
	c.table.Files = append(c.table.Files, file)
	return "", nil
}

// mapped notes that a file is mapped, and tells whether it is in the table already.
func (c *capturer) mapped(path string) bool { return c.table.NoteMapped(path, false) }

// NoteMapped notes that the content of a file is saved and put back as memory, the whole of it or a part, and tells whether it
// is in the table.
func (t *Table) NoteMapped(path string, whole bool) bool {
	found := false
	for i := range t.Files {
		if f := &t.Files[i]; f.Kind == KindRegular && string(f.Path) == path && f.Inode != nil {
			f.Inode.Mapped, f.Inode.Whole = true, f.Inode.Whole || whole
			found = true
		}
	}
	return found
}

// Writes tells whether this process writes to a file of the table.
func (t *Table) Writes(path string) bool {
	return slices.ContainsFunc(t.Files, func(f File) bool {
		return f.Kind == KindRegular && string(f.Path) == path && f.Inode != nil && (f.writable() || f.Inode.Mapped)
	})
}

// Written are the numbers of the files that this process writes to.
func (t *Table) Written() (inodes []uint64) {
	for i := range t.Files {
		if f := &t.Files[i]; f.Inode != nil && (f.writable() || f.Inode.Mapped) {
			inodes = append(inodes, f.Inode.Ino)
		}
	}
	return inodes
}

// Sealed tells whether a memory file of the table may not be written to any more.
func (t *Table) Sealed(dev, ino uint64) bool {
	return slices.ContainsFunc(t.Contents, func(c Content) bool {
		return c.Dev == dev && c.Ino == ino && c.Seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0
	})
}

func (c *capturer) addScratch(n Named, file File, st *unix.Stat_t) (obstacle string, err error) {
	fd, err := openPath(file.Path, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	extents, err := c.readExtents(fd, unix.O_RDONLY, st.Size)
	if errors.Is(err, errTooMuch) {
		return fmt.Sprintf("has %d bytes and is deleted when it is closed: all such files of a rank together may have %d bytes; open it without that",
			st.Size, int64(maxContent)), nil
	}
	if err != nil {
		return "", err
	}
	index := len(c.table.Contents)
	c.table.Contents = append(c.table.Contents, Content{Name: file.Path, Mode: st.Mode & 0o7777, Size: st.Size, Extents: extents})
	file.Kind, file.Content = KindScratch, &index
	c.table.Files = append(c.table.Files, file)
	return "", nil
}

// makeScratch puts scratch files back as they were, under their names.
func (r *restorer) makeScratch() error {
	for i := range r.table.Files {
		f := &r.table.Files[i]
		if f.Kind != KindScratch {
			continue
		}
		var st unix.Stat_t
		if r.options.Keep && unix.Stat(string(f.Path), &st) == nil {
			continue
		}
		if err := writeContent(string(f.Path), &r.table.Contents[*f.Content]); err != nil {
			return fmt.Errorf("make %s, which was to be deleted when it is closed, again: %w", f.Path, err)
		}
	}
	return nil
}

func writeContent(path string, c *Content) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC|unix.O_NOCTTY, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := c.write(fd); err != nil {
		return err
	}
	return unix.Fchmod(fd, c.Mode)
}

// write gives a file, which is empty, its size and what is in it.
func (c *Content) write(fd int) error {
	if err := unix.Ftruncate(fd, c.Size); err != nil {
		return err
	}
	for _, e := range c.Extents {
		if err := pwriteFull(fd, e.data, e.Offset); err != nil {
			return err
		}
	}
	return nil
}

// ParseNamed reads a list of pairs of NUL-terminated strings: letters (w: Write, d: Scratch, o: in
// the second result too), and the path.
func ParseNamed(list string) (all, own []Named, err error) {
	words := strings.Split(strings.TrimSuffix(list, "\x00"), "\x00")
	if list == "" {
		return nil, nil, nil
	}
	if len(words)%2 != 0 {
		return nil, nil, fmt.Errorf("a list of %d words, not of pairs", len(words))
	}
	for i := 0; i < len(words); i += 2 {
		letters, n := words[i], Named{Path: words[i+1]}
		n.Write = strings.Contains(letters, "w")
		n.Scratch = strings.Contains(letters, "d")
		all = append(all, n)
		if strings.Contains(letters, "o") {
			own = append(own, n)
		}
	}
	return all, own, nil
}
