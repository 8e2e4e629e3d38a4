// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// newerSuffix is added to the name of a file in whose place another one is put back.
const newerSuffix = ".newer"

// Prepare checks that the files are as Restore needs them, or can be put back; it changes nothing. The error is a
// *ChangedError that lists the files that are not. Files that other processes keep are checked there.
func Prepare(t Table, o Options) error {
	if err := t.validate(); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	o.Warn = nil // Restore looks again
	r := newRestorer(&t, o)
	defer r.closeMade()
	r.before = true
	return r.check()
}

// PutBack gives the files that the table keeps their old content. They can be opened once every process has done
// this.
//
// A file that still has its name is written over where it differs; Restore cuts off what the application appended.
// If another file has the name, that file gets newerSuffix. After an error PutBack may be called again.
func PutBack(t Table, o Options) error {
	r := newRestorer(&t, o)
	if !r.options.Snapshot {
		return nil
	}
	for i := range t.Kept {
		if err := r.putBack(i); err != nil {
			return fmt.Errorf("put %s back: %w", t.Kept[i].Path, err)
		}
	}
	return nil
}

// file is a description of a kept file.
func (r *restorer) file(kept int) *File {
	for i := range r.table.Files {
		if f := &r.table.Files[i]; f.Kept != nil && *f.Kept == kept {
			return f
		}
	}
	return nil
}

// source opens what is kept beside the image and checks it.
func (r *restorer) source(k *Kept, f *File) (*os.File, error) {
	s, err := openRegular(filepath.Join(r.options.Epoch, k.File), unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	st, err := s.Stat()
	what := ""
	if err == nil && st.Size() < k.Size {
		what = fmt.Sprintf("has %d bytes, fewer than the %d it had", st.Size(), k.Size)
	} else if err == nil && !f.Inode.Mapped {
		what, err = differs(int(s.Fd()), f.Inode.Blocks)
	}
	if what != "" {
		err = fmt.Errorf("%s %s", s.Name(), what)
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func openRegular(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		_ = f.Close()
		return nil, errors.Join(err, fmt.Errorf("%s is not a regular file", path))
	}
	return f, nil
}

// checkKept is checkFile for a file that PutBack will see to.
func (r *restorer) checkKept(f *File) *Problem {
	if st, err := os.Lstat(string(f.Path)); err == nil && !st.Mode().IsRegular() {
		return &Problem{Path: f.name(), What: "is no regular file any more", Do: "move away what has its name"}
	}
	lost := r.lost(f)
	if lost == nil {
		return nil
	}
	p := &Problem{Path: f.name(), What: fmt.Sprintf("is not as it was, and what was kept of it is not either (%v)", lost.Err),
		Do: "restart from another epoch"}
	if lost.how == KeepLink {
		p.What = fmt.Sprintf("was written over after the checkpoint, and has only a second name there, since %s (%v)", r.table.Kept[*f.Kept].Why, lost.Err)
		p.Do += ", or " + doGoOn
		p.Changed = goesOn(f)
	}
	return p
}

const doGoOn = "use --files ignore to go on with it as it is, which is right for a program that writes there again before it reads"

// goesOn tells whether there is something to go on with as it is.
func goesOn(f *File) bool {
	_, err := os.Lstat(string(f.Path))
	return err == nil
}

// lost says why a kept file cannot be put back; nil: it can, or is as it was. A copy needs nothing.
func (r *restorer) lost(f *File) *LostError {
	k := &r.table.Kept[*f.Kept]
	if k.How == KeepCopy || k.How == KeepNot || r.inPlace(f, k) {
		return nil
	}
	s, err := r.source(k, f)
	if err != nil {
		return &LostError{File: filepath.Join(r.options.Epoch, k.File), Of: string(k.Path), Err: err, how: k.How}
	}
	_ = s.Close()
	return nil
}

// LostError is about a file beside an image that a restart needs and that is gone, cut short or no more what was kept.
// Another epoch may have what it needs.
type LostError struct {
	File string // beside the image
	Of   string // of the program, which is not as it was either
	Err  error
	how  string
}

func (e *LostError) Error() string {
	if e.how == KeepLink {
		return e.Where() + "; if the program wrote over it after the checkpoint, a larger --files-copy helps the next time; or " + doGoOn
	}
	return e.Where()
}

func (e *LostError) Unwrap() error { return e.Err }

// Where says what is lost, without what to do.
func (e *LostError) Where() string {
	what := e.Err.Error()
	if path, is := errors.AsType[*fs.PathError](e.Err); is && path.Path == e.File {
		what = path.Err.Error()
	} else {
		what = strings.TrimPrefix(what, e.File+" ")
	}
	return fmt.Sprintf("%s, in which %s is kept, is damaged or lost: %s", e.File, e.Of, what)
}

// FindKept looks whether what is kept beside the image can be put back where that will be needed, and changes nothing.
// The error is a *LostError for the first file that is lost. With Options.IgnoreChanged one that is there as it is will do.
func FindKept(t Table, o Options) error {
	if err := t.validate(); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if !o.Snapshot {
		return nil
	}
	r := newRestorer(&t, o)
	for i := range t.Files {
		f := &t.Files[i]
		if f.KeptBy != nil || f.Kept == nil {
			continue
		}
		if lost := r.lost(f); lost != nil && !(o.IgnoreChanged && lost.how == KeepLink && goesOn(f)) {
			return lost
		}
	}
	return nil
}

// inPlace tells whether a file that is too big to be copied is already as it was: it has its name, and is unchanged
// as far as that is compared. If a clone differs elsewhere, the clone is used.
func (r *restorer) inPlace(f *File, k *Kept) bool {
	s, err := openRegular(string(k.Path), unix.O_RDONLY)
	if err != nil {
		return false
	}
	defer s.Close()
	st, err := s.Stat()
	if err != nil || st.Size() < k.Size {
		return false
	}
	if k.How == KeepClone {
		return st.Size() == k.Size && st.ModTime().UnixNano() == f.Inode.Mtime
	}
	return compareBlocks(f.Inode, int(s.Fd())) == ""
}

func (r *restorer) putBack(index int) error {
	k, f := &r.table.Kept[index], r.file(index)
	if f == nil || k.How == KeepNot || k.How != KeepCopy && r.inPlace(f, k) {
		return nil
	}
	fill := func(to *os.File) error { return fillContent(to, &r.table.Contents[*k.Content]) }
	if k.How != KeepCopy {
		s, err := r.source(k, f)
		if err != nil {
			if r.options.IgnoreChanged {
				return nil // said by check
			}
			return err
		}
		defer s.Close()
		if k.How == KeepLink && onlyName(s) && missing(string(k.Path)) {
			if err := makeParent(string(k.Path)); err != nil {
				return err
			}
			return os.Link(s.Name(), string(k.Path))
		}
		fill = func(to *os.File) error { return cloneOrCopy(to, s, k.Size) }
	}
	to, err := openRegular(string(k.Path), unix.O_RDWR)
	if err == nil {
		defer to.Close()
		var st unix.Stat_t
		if err := unix.Fstat(int(to.Fd()), &st); err != nil {
			return err
		}
		if st.Ino == f.Inode.Ino || k.How == KeepCopy && holdsContent(to, st.Size, &r.table.Contents[*k.Content]) {
			return fill(to)
		}
	}
	return r.replace(k, fill)
}

// replace makes a new file under the name. A file that has the name is renamed.
func (r *restorer) replace(k *Kept, fill func(*os.File) error) error {
	path := string(k.Path)
	if err := makeParent(path); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		err = f.Chmod(fs.FileMode(k.Mode & 0o777))
	}
	err = errors.Join(err, f.Close())
	if err == nil && !missing(path) {
		if err = os.Rename(path, path+newerSuffix); err == nil {
			r.options.Warn(fmt.Sprintf("%s was put back as it was at the checkpoint; what had this name is now %s%s", path, path, newerSuffix))
		}
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

func makeParent(path string) error { return os.MkdirAll(filepath.Dir(path), 0o777) }

// onlyName tells whether a file has no name but the one it was opened by.
func onlyName(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 1
}

// eachBlock calls f with the bytes of every block of a content: those of extents, and zeros.
func eachBlock(c *Content, f func(want []byte, at int64) error) error {
	zero := make([]byte, extentBlock)
	e := 0
	for at := int64(0); at < c.Size; at += extentBlock {
		n := min(extentBlock, c.Size-at)
		for e < len(c.Extents) && c.Extents[e].Offset+c.Extents[e].Bytes <= at {
			e++
		}
		want := zero[:n]
		// Extents are made of whole blocks (readExtents).
		if e < len(c.Extents) && c.Extents[e].Offset <= at {
			from := at - c.Extents[e].Offset
			want = c.Extents[e].data[from:min(from+n, c.Extents[e].Bytes)]
		}
		if err := f(want, at); err != nil {
			return err
		}
	}
	return nil
}

var errDiffers = errors.New("differs")

// holdsContent tells whether the first bytes of a file are the content.
func holdsContent(f *os.File, size int64, c *Content) bool {
	have := make([]byte, extentBlock)
	return size >= c.Size && eachBlock(c, func(want []byte, at int64) error {
		if err := preadFull(int(f.Fd()), have[:len(want)], at); err != nil {
			return err
		}
		if !bytes.Equal(have[:len(want)], want) {
			return errDiffers
		}
		return nil
	}) == nil
}

// fillContent writes what of the content is not there yet.
func fillContent(f *os.File, c *Content) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() < c.Size {
		if err := f.Truncate(c.Size); err != nil {
			return err
		}
	}
	have := make([]byte, extentBlock)
	return eachBlock(c, func(want []byte, at int64) error {
		if err := preadFull(int(f.Fd()), have[:len(want)], at); err != nil {
			return err
		}
		if bytes.Equal(have[:len(want)], want) {
			return nil
		}
		return pwriteFull(int(f.Fd()), want, at)
	})
}

// cloneOrCopy makes the first bytes of a file those of another one, which is longer at most.
func cloneOrCopy(to, from *os.File, bytes int64) error {
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		return nil
	}
	return copyData(to, from, bytes)
}

// copyData copies what is not a hole; holes stay holes: a scratch file may be larger than its file system.
func copyData(to, from *os.File, bytes int64) error {
	have, err := from.Stat()
	if err != nil {
		return err
	}
	if have.Size() < bytes {
		return fmt.Errorf("after %d of %d bytes: %w", have.Size(), bytes, io.ErrUnexpectedEOF)
	}
	st, err := to.Stat()
	if err != nil {
		return err
	}
	buffer := make([]byte, min(bytes, 1<<20))
	for at := int64(0); at < bytes; {
		data, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO): // no data behind this
			data = bytes
		case err != nil: // the file system does not tell
			data = at
		}
		data = min(data, bytes)
		if data > at && at < st.Size() {
			if err := clearBytes(to, at, min(data, st.Size())-at); err != nil {
				return err
			}
		}
		hole, err := unix.Seek(int(from.Fd()), data, unix.SEEK_HOLE)
		if err != nil || hole <= data {
			hole = bytes
		}
		at = min(hole, bytes)
		if n, err := io.CopyBuffer(io.NewOffsetWriter(to, data), io.NewSectionReader(from, data, at-data), buffer); err != nil || n < at-data {
			return fmt.Errorf("after %d of %d bytes: %w", data+n, bytes, cmp.Or(err, io.ErrUnexpectedEOF))
		}
	}
	if st.Size() < bytes {
		return to.Truncate(bytes)
	}
	return nil
}

// clearBytes makes bytes of a file zeros, and gives back their room where the file system can.
func clearBytes(f *os.File, at, n int64) error {
	if unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n) == nil {
		return nil
	}
	zeros := make([]byte, min(n, 1<<20))
	for end := at + n; at < end; at += int64(len(zeros)) {
		if err := pwriteFull(int(f.Fd()), zeros[:min(int64(len(zeros)), end-at)], at); err != nil {
			return err
		}
	}
	return nil
}

// linkFD gives the file behind a descriptor of this thread another name.
func linkFD(fd int, path string) error {
	return unix.Linkat(unix.AT_FDCWD, "/proc/thread-self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
}

// CheckKept compares the files that are kept in the folder of an epoch with what was recorded of them, and returns
// how many these are. Copies are in the image, whose digests cover them.
func CheckKept(t Table, epoch string) (int, error) {
	r := newRestorer(&t, Options{Epoch: epoch})
	n := 0
	var errs []error
	for i := range t.Kept {
		k, f := &t.Kept[i], r.file(i)
		if f == nil || k.How != KeepClone && k.How != KeepLink {
			continue
		}
		n++
		s, err := r.source(k, f)
		if err != nil {
			errs = append(errs, fmt.Errorf("what is kept of %s: %w", k.Path, err))
			continue
		}
		_ = s.Close()
	}
	return n, errors.Join(errs...)
}
