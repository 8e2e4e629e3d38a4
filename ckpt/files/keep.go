// SPDX-License-Identifier: Apache-2.0

package files

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"
)

// Ways in which a file is kept with an epoch.
const (
	// KeepCopy: the content is in the image. It does not matter what happens to the file.
	KeepCopy = "copy"
	// KeepClone: a file beside the image shares the blocks of the file (FICLONE) until one of them is
	// written to. It does not matter what happens to the file.
	KeepClone = "clone"
	// KeepLink: a second name beside the image. The file may lose its first name, but if it is written over,
	// its old content is gone; Inode.Blocks tell.
	KeepLink = "link"
	// KeepNot: none of these can be done.
	KeepNot = "not"
)

// Kept is a file that the application was writing, as it was, whatever becomes of its name.
type Kept struct {
	Path    Path   `json:"path"`
	How     string `json:"how"`
	Size    int64  `json:"size"`
	Mode    uint32 `json:"mode"`
	Content *int   `json:"content,omitempty"` // copy: index into Table.Contents
	File    string `json:"file,omitempty"`    // clone, link: name in the folder of the epoch
	Why     string `json:"why,omitempty"`     // link, not: why not better
}

func (k *Kept) validate(t *Table) error {
	if !strings.HasPrefix(string(k.Path), "/") || k.Size < 0 {
		return fmt.Errorf("%q with %d bytes", k.Path, k.Size)
	}
	switch k.How {
	case KeepCopy:
		if k.Content == nil || *k.Content < 0 || *k.Content >= len(t.Contents) || t.Contents[*k.Content].Size != k.Size {
			return errors.New("content is missing")
		}
	case KeepClone, KeepLink:
		if k.File == "" || k.File == "." || k.File == ".." || filepath.Base(k.File) != k.File {
			return fmt.Errorf("%q is not the name of a file", k.File)
		}
	case KeepNot:
	default:
		return fmt.Errorf("unknown way to keep a file, %q", k.How)
	}
	return nil
}

// Shared gives each regular file of the table a name that is equal in all processes that have the same file open,
// on other machines too; different files of one path on different machines get different names. Letters before the
// colon: w, the file is open for writing; m, it is mapped; n, it has no descriptor here, so other processes may
// have it open without telling.
func (t *Table) Shared() []string {
	var list []string
	numbered := map[int]bool{}
	for _, n := range t.Numbers {
		numbered[n.File] = true
	}
	for i := range t.Files {
		f := &t.Files[i]
		if f.Kind != KindRegular {
			continue
		}
		letters := ""
		if f.writable() {
			letters += "w"
		}
		if f.Inode.Mapped {
			letters += "m"
		} else if !numbered[i] {
			letters += "n"
		}
		list = append(list, letters+":"+f.key())
	}
	return list
}

func (f *File) key() string {
	n := f.Inode
	sum := blake3.Sum256(fmt.Appendf(nil, "%s\x00%d %d %d", f.Path, n.Ino, n.Size, n.Mtime))
	return hex.EncodeToString(sum[:12])
}

// Elect notes, from the result of Shared in every process, which files somebody writes to or has mapped, and which
// process keeps each: the first one that writes. several is equal in all processes: whether there is a file that
// several may write to. written tells of the Key of a file, as it was while all processes stood, whether somebody writes to it.
func (t *Table) Elect(own int, all [][]string) (several bool, written func(key string) bool) {
	type file struct {
		keeper int
		mapped bool
	}
	files := map[string]file{}
	for process, list := range all {
		for _, s := range list {
			letters, key, _ := strings.Cut(s, ":")
			f, seen := files[key]
			if !seen {
				f.keeper = -1
			}
			if strings.Contains(letters, "w") {
				several = several || strings.Contains(letters, "n") || f.keeper >= 0 && f.keeper != process
				if f.keeper < 0 {
					f.keeper = process
				}
			}
			f.mapped = f.mapped || strings.Contains(letters, "m")
			files[key] = f
		}
	}
	for i := range t.Files {
		f := &t.Files[i]
		if f.Kind != KindRegular {
			continue
		}
		known := files[f.key()]
		f.Inode.Mapped = f.Inode.Mapped || known.mapped
		f.Written = known.keeper >= 0
		if f.Written && known.keeper != own {
			f.KeptBy = &known.keeper
		}
	}
	return several, func(key string) bool {
		known, is := files[key]
		return is && (known.mapped || known.keeper >= 0)
	}
}

// Key names the file at a path as Shared does, in its present state: once a process that writes to it goes on, it has another one. It is empty
// where there is no such file.
func Key(path string) string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return ""
	}
	f := File{Path: Path(path), Inode: inodeOf(&st)}
	return f.key()
}

// KeepOptions say how files are kept.
type KeepOptions struct {
	Dir    string // the folder of the epoch
	Prefix string // of names in it; no other process has it
	Copy   int64  // bytes that may be copied in all
}

// Keep keeps the files that the application writes and that no other process keeps, the small ones first. The
// application must be stopped. A file that cannot be kept is not an error: a restart then needs the file in its
// place.
func (h *Held) Keep(t *Table, o KeepOptions) error {
	var err error
	h.do(func() { err = h.keep(t, o) })
	return err
}

func (h *Held) keep(t *Table, o KeepOptions) error {
	var list []*heldFile
	for i := range h.list {
		f := &h.list[i]
		if f.write && f.fd >= 0 && len(f.files) > 0 && t.Files[f.files[0]].Kind == KindRegular &&
			t.Files[f.files[0]].KeptBy == nil && !t.Files[f.files[0]].Inode.Whole && f.st.Mode&unix.S_IFMT == unix.S_IFREG {
			list = append(list, f)
		}
	}
	slices.SortStableFunc(list, func(a, b *heldFile) int {
		return int(min(1, max(-1, t.Files[a.files[0]].Inode.Size-t.Files[b.files[0]].Inode.Size)))
	})
	room := min(o.Copy, maxContent-t.dataBytes())
	for n, f := range list {
		size := t.Files[f.files[0]].Inode.Size
		k := Kept{Path: Path(f.path), Size: size, Mode: f.st.Mode & 0o7777}
		r, done, err := f.reader()
		if err != nil {
			r = -1
			k.Why = fmt.Sprintf("it cannot be read (%v)", err)
		}
		switch {
		case r >= 0 && size <= room:
			var extents []Extent
			if extents, err = readWhole(r, size); err == nil {
				index := len(t.Contents)
				t.Contents = append(t.Contents, Content{Name: k.Path, Mode: k.Mode, Size: size, Extents: extents})
				k.How, k.Content = KeepCopy, &index
				room -= size
			}
		default:
			if r >= 0 {
				k.Why = fmt.Sprintf("it has more than the %d bytes that may still be copied (--files-copy)", room)
			}
			h.beside(&k, f, r, filepath.Join(o.Dir, fmt.Sprintf("%s-file-%03d", o.Prefix, n)))
			err = nil
		}
		done()
		if err != nil {
			return fmt.Errorf("copy %s: %w", f.path, err)
		}
		index := len(t.Kept)
		t.Kept = append(t.Kept, k)
		for _, i := range f.files {
			t.Files[i].Kept = &index
		}
	}
	return nil
}

// readWhole reads a file at once, which is quicker than readExtents for one that is not sparse. Blocks of
// zeros are left out all the same.
func readWhole(fd int, size int64) ([]Extent, error) {
	all := make([]byte, size)
	if err := preadFull(fd, all, 0); err != nil {
		return nil, err
	}
	var extents []Extent
	for at := int64(0); at < size; at += extentBlock {
		end := min(at+extentBlock, size)
		if zeros(all[at:end]) {
			continue
		}
		if n := len(extents); n == 0 || extents[n-1].Offset+extents[n-1].Bytes != at {
			extents = append(extents, Extent{Offset: at})
		}
		e := &extents[len(extents)-1]
		e.Bytes = end - e.Offset
		e.data = all[e.Offset:end]
	}
	return extents, nil
}

// beside keeps a file as a clone or a link with that path. r reads the file, or is -1.
func (h *Held) beside(k *Kept, f *heldFile, r int, path string) {
	if r >= 0 {
		clone, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		if err == nil {
			if err = unix.IoctlFileClone(clone, r); err == nil {
				h.clones = append(h.clones, heldFile{fd: clone, path: path})
				k.How, k.File, k.Why = KeepClone, filepath.Base(path), ""
				return
			}
			unix.Close(clone)
			_ = unix.Unlink(path)
		}
		k.Why += fmt.Sprintf("; it cannot be cloned (%v)", err)
	}
	err := linkFD(f.fd, path)
	if err != nil {
		k.How = KeepNot
		k.Why += fmt.Sprintf(", nor linked (%v)", err)
		return
	}
	k.How, k.File = KeepLink, filepath.Base(path)
}
