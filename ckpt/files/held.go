// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Held is the application's files as they were open at one moment, in the table of a keeper. The
// application may close, delete and rename them meanwhile.
//
// Its methods may be called on any goroutine, one at a time.
type Held struct {
	keeper keeper
	list   []heldFile
	// clones are files that Keep made; they must be durable too.
	clones []heldFile
	closed []Closed
}

// heldFile is a file that an epoch relies on.
type heldFile struct {
	fd    int // in the thread's table, -1 when it could not be opened
	path  string
	write bool // the application can write to it
	files []int
	st    unix.Stat_t
	err   error // why it could not be opened
}

// Hold keeps the regular files of the table open, and those of the runtime, which have no descriptor. fds
// are all of the application's descriptors. The application must be stopped. Done must be called once.
func Hold(t *Table, named []Named, fds []int) (*Held, error) {
	h := &Held{}
	byFile := map[int]int{}
	for _, n := range slices.Backward(t.Numbers) {
		byFile[n.File] = n.FD
	}
	seen := map[heldKey]int{}
	for i := range t.Files {
		f := &t.Files[i]
		if f.Inode == nil || f.Kind != KindRegular && f.Kind != KindLauncher || f.Reopened {
			continue
		}
		fd, ok := byFile[i]
		if !ok {
			fd = -1
		}
		key := heldKey{string(f.Path), f.Inode.Ino}
		at, ok := seen[key]
		if !ok {
			at = len(h.list)
			seen[key] = at
			h.list = append(h.list, heldFile{fd: fd, path: string(f.Path)})
		}
		h.list[at].files = append(h.list[at].files, i)
		h.list[at].write = h.list[at].write || f.writable()
	}
	for _, n := range named {
		if !n.Scratch && !slices.ContainsFunc(h.list, func(o heldFile) bool { return o.path == n.Path }) {
			h.list = append(h.list, heldFile{fd: -1, path: n.Path, write: n.Write})
		}
	}
	var err error
	if h.keeper, err = takeKeeper(fds); err != nil {
		return nil, fmt.Errorf("keep the open files for the image: %w", err)
	}
	tid := unix.Gettid() // of a thread that has the application's table
	h.do(func() {
		for i := range h.list {
			h.list[i].open(tid)
		}
	})
	return h, nil
}

type heldKey struct {
	path string
	ino  uint64
}

// open takes the file's descriptor from the table of thread tid, opens one that has none, and looks at it.
func (f *heldFile) open(tid int) {
	if f.fd >= 0 {
		if f.fd, f.err = descriptorOf(tid, f.fd); f.err != nil {
			f.fd = -1
		}
	}
	if f.fd < 0 {
		for _, mode := range []int{unix.O_RDONLY, unix.O_WRONLY} {
			if f.fd, f.err = openPath(Path(f.path), mode|unix.O_NONBLOCK); f.err == nil {
				break
			}
			f.fd = -1
		}
	}
	if f.fd >= 0 {
		f.err = unix.Fstat(f.fd, &f.st)
	}
}

func (h *Held) do(f func()) { h.keeper.do(f) }

// Done closes the files. It may be called on nil.
func (h *Held) Done() {
	if h == nil {
		return
	}
	h.do(func() {
		for _, f := range slices.Concat(h.list, h.clones) {
			if f.fd >= 0 {
				unix.Close(f.fd)
			}
		}
	})
	h.keeper.give()
}

// Sample records in the table what is compared at a restart. The application must be stopped.
func (h *Held) Sample(t *Table) error {
	var err error
	h.do(func() {
		for i := range h.list {
			f := &h.list[i]
			if len(f.files) == 0 || f.fd < 0 || t.Files[f.files[0]].Inode.Mapped {
				continue
			}
			var blocks []Block
			var tail string
			if blocks, tail, err = f.sample(t.Files[f.files[0]].Inode.Size); err != nil {
				return
			}
			for _, k := range f.files {
				if t.Files[k].Inode.Blocks = blocks; !f.write {
					t.Files[k].Inode.Tail = tail
				}
			}
		}
	})
	return err
}

func (f *heldFile) sample(size int64) (blocks []Block, tail string, err error) {
	fd, done, err := f.reader()
	if err != nil {
		return nil, "", nil // the program may write it and not read it: then neither may a restart
	}
	defer done()
	if blocks, err = sampleBlocks(fd, size); err == nil {
		tail, err = tailDigest(fd, size)
	}
	if err != nil {
		return nil, "", fmt.Errorf("read %s: %w", f.path, err)
	}
	return blocks, tail, nil
}

// reader is a descriptor of this thread that reads the file. When the program last read it stays to be seen, where that is
// allowed: to the owner.
func (f *heldFile) reader() (int, func(), error) {
	name, flags := "/proc/thread-self/fd/"+strconv.Itoa(f.fd), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK
	r, err := unix.Open(name, flags|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) {
		r, err = unix.Open(name, flags, 0)
	}
	return r, func() { unix.Close(r) }, err
}

// Sync returns once the files are on stable storage, with their names: as they were when they were held, with
// whatever the application has written since. After an error the state of the named file is unknown, and the epoch
// must not be committed. closed is the highest number of the closed files that it was told of.
func (h *Held) Sync() (closed uint64, err error) {
	h.do(func() {
		folders := folders{done: map[string]bool{}}
		for i := range h.list {
			if err = h.list[i].sync(&folders); err != nil {
				return
			}
		}
		for _, c := range h.clones {
			if err = syncFD(c.fd); err != nil {
				err = fmt.Errorf("make %s durable: %w", c.path, err)
				return
			}
		}
		closed, err = syncClosed(h.closed, &folders)
	})
	return closed, err
}

func (f *heldFile) sync(dirs *folders) error {
	switch {
	case f.fd < 0 && (errors.Is(f.err, unix.ENOENT) || errors.Is(f.err, unix.ENOTDIR)):
		return nil // deleted by the program, which goes on meanwhile
	case f.err != nil:
		return fmt.Errorf("make %s durable: %w", f.path, f.err)
	case f.st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil
	}
	if err := syncFD(f.fd); err != nil {
		return fmt.Errorf("make %s durable: %w", f.path, err)
	}
	if err := dirs.sync(filepath.Dir(f.path), f.fd); err != nil {
		return fmt.Errorf("make the name %s durable: %w", f.path, err)
	}
	return nil
}

// syncFD is fsync. File systems that have nothing to make durable say so in these ways.
func syncFD(fd int) error {
	for {
		switch err := unix.Fsync(fd); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EROFS), errors.Is(err, unix.ENOTSUP):
			return nil
		default:
			return err
		}
	}
}

// folders makes names durable: each folder once. An entry is in its folder, that folder's own in the
// one above, and so on up to the root of the file system.
type folders struct{ done map[string]bool }

func (d *folders) sync(dir string, file int) error {
	for ; !d.done[dir]; dir = filepath.Dir(dir) {
		d.done[dir] = true
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			return nil // removed or renamed by the program, which goes on meanwhile
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
			// A folder that may be used, not read. The file system as a whole can be asked.
			return unix.Syncfs(file)
		case err != nil:
			return err
		}
		var above, here unix.Stat_t
		err = unix.Fstat(fd, &here)
		if err == nil {
			err = syncFD(fd)
		}
		if err == nil {
			err = unix.Fstatat(fd, "..", &above, 0)
		}
		unix.Close(fd)
		if errors.Is(err, unix.EACCES) {
			return nil
		}
		if err != nil {
			return err
		}
		if above.Dev != here.Dev || above.Ino == here.Ino {
			return nil
		}
	}
	return nil
}
