// SPDX-License-Identifier: Apache-2.0

package posixshm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/shm"
	"github.com/libckpt/libckpt/internal/fault"
	"github.com/libckpt/libckpt/internal/regular"
)

// Word is what a process says before a restart makes anything.
type Word struct {
	Node  shm.Node `json:"node"`
	Wrong string   `json:"wrong,omitempty"`
	Nonce string   `json:"nonce"`
	Section
}

// Restored are the files of a restart.
type Restored struct {
	rank  int
	image *image.File
	mine  Word
	files []*remade
	any   bool // some process has such files
}

// remade is a file of this process.
type remade struct {
	Saved
	holders []int
	leader  int    // makes it, where it is not there; -1: nobody can
	path    string // where it is, or comes to be; "": it never has a name
	file    *os.File
	made    bool // by this process
	found   bool // it was there
}

// Restore begins it, with the section of the image f, which may have none.
func Restore(f *image.File, rank int) (*Restored, error) {
	r := &Restored{rank: rank, image: f}
	b, err := f.Section(SectionName)
	if err != nil && !errors.Is(err, image.ErrNoSection) {
		return nil, err
	}
	if err == nil {
		if r.mine.Section, err = Decode(b); err != nil {
			return nil, fmt.Errorf("%s: section %q: %w", f.Name(), SectionName, err)
		}
	}
	for i := range r.mine.Files {
		r.files = append(r.files, &remade{Saved: r.mine.Files[i]})
	}
	for _, region := range f.Regions() {
		if n, is := fileOf(&region); is && n >= len(r.files) {
			return nil, fmt.Errorf("%s: the image does not say what the shared file %d is", f.Name(), n)
		}
	}
	nonce := make([]byte, 8)
	_, _ = rand.Read(nonce) // never fails
	r.mine.Nonce = hex.EncodeToString(nonce)
	if r.mine.Node, err = shm.Here(); err != nil {
		r.mine.Wrong = err.Error()
	}
	return r, nil
}

// Word is for the other processes.
func (r *Restored) Word() Word { return r.mine }

// Compare finds out who shares what. It refuses processes that shared a file on one node and are on several, and files of one name
// that were on several nodes and are to be on one.
func (r *Restored) Compare(words []Word) error {
	r.any = slices.ContainsFunc(words, func(w Word) bool { return len(w.Files) > 0 })
	for _, one := range r.files {
		mode := one.Saved
		var pieces [][2]uint64
		for p := range words {
			theirs := words[p].find(r.mine.Boot, &one.Saved)
			if theirs == nil {
				continue
			}
			if err := r.together(one, p, &words[p]); err != nil {
				return err
			}
			one.holders = append(one.holders, p)
			switch { // who has a name knows the size
			case theirs.Named == mode.Named:
				mode.Bytes = max(mode.Bytes, theirs.Bytes)
			case theirs.Named:
				mode = *theirs
			}
			pieces = append(pieces, theirs.Pieces...)
		}
		if len(one.holders) == 0 {
			return fmt.Errorf("rank %d does not say what it has of %s", r.rank, one)
		}
		one.Saved = mode
		if one.leader = one.holders[0]; one.Named && !covers(pieces, 0, uint64(one.Bytes)) {
			one.leader = -1
		}
		switch {
		case one.Named:
			one.path = one.Path
		case !one.Memory || len(one.holders) > 1:
			lead := words[one.leader].find(r.mine.Boot, &one.Saved) // whose word is the same for all
			one.path = filepath.Join(folder(lead), fmt.Sprintf("libckpt-posix-%s-%d-%d", words[one.leader].Nonce, lead.Dev, lead.Ino))
		}
		if err := r.onlyOne(one, words); err != nil {
			return err
		}
	}
	return r.check()
}

// onlyOne refuses a second file of the name.
func (r *Restored) onlyOne(one *remade, words []Word) error {
	for p := range words {
		for _, theirs := range words[p].Files {
			same := words[p].Boot == r.mine.Boot && theirs.Dev == one.Dev && theirs.Ino == one.Ino
			if !same && one.Named && theirs.Named && theirs.Path == one.Path && near(words[p].Node, r.mine.Node) {
				return fmt.Errorf("%s of rank %d is not the one of rank %d, which was on another node, but both are on host %s now: start these ranks on two nodes",
					one, r.rank, p, r.mine.Node.Host)
			}
		}
	}
	return nil
}

// check refuses an image with content behind the end of a file.
func (r *Restored) check() error {
	regions := r.image.Regions()
	for i := range regions {
		n, is := fileOf(&regions[i])
		if !is {
			continue
		}
		for _, c := range r.image.RegionChunks(i) {
			if end := regions[i].Offset + c.End() - regions[i].Start; c.Kind != image.KindZero && (end < regions[i].Offset || end > r.files[n].mapped()) {
				return fmt.Errorf("%s: %s has %d bytes, which end before what the image has of it", r.image.Name(), r.files[n], r.files[n].Bytes)
			}
		}
	}
	return nil
}

// Any tells whether some process has such files, after Compare: then none may go on before all have filled theirs.
func (r *Restored) Any() bool { return r.any }

// find is how another process describes a file.
func (w *Word) find(boot string, s *Saved) *Saved {
	if w.Boot != boot {
		return nil
	}
	i := slices.IndexFunc(w.Files, func(f Saved) bool { return f.Dev == s.Dev && f.Ino == s.Ino })
	if i < 0 {
		return nil
	}
	return &w.Files[i]
}

func near(a, b shm.Node) bool {
	a.Host, b.Host = "", ""
	return a == b
}

func (r *Restored) together(one *remade, p int, w *Word) error {
	if r.mine.Wrong != "" {
		return errors.New(r.mine.Wrong)
	}
	if w.Wrong != "" {
		return fmt.Errorf("rank %d: %s", p, w.Wrong)
	}
	if near(w.Node, r.mine.Node) {
		return nil
	}
	where := fmt.Sprintf("rank %d is on host %s, rank %d on host %s", r.rank, r.mine.Node.Host, p, w.Node.Host)
	if r.mine.Node.Host == w.Node.Host {
		where = fmt.Sprintf("ranks %d and %d, both on host %s, have different file systems at %s", r.rank, p, w.Node.Host, shm.Dir)
	}
	return fmt.Errorf("%s was shared by ranks of one node, but %s: start these ranks on one node", one, where)
}

// folder is where a file without a name is made: beside where it was, so that what was on a disk is on one; in memory otherwise.
func folder(s *Saved) string {
	if dir := filepath.Dir(s.Path); !s.Memory && unix.Access(dir, unix.W_OK) == nil {
		return dir
	}
	return shm.Dir
}

// Make makes the files of which this process is the leader, and that are not there.
func (r *Restored) Make() error {
	for _, one := range r.files {
		if err := r.makeOne(one); err != nil {
			return fmt.Errorf("%s: %w", one, err)
		}
	}
	return nil
}

func (r *Restored) makeOne(one *remade) (err error) {
	if one.Named {
		switch err := r.look(one); {
		case err == nil || !errors.Is(err, fs.ErrNotExist):
			return err
		case one.leader < 0:
			return fmt.Errorf("%w; put it back where it was: the ranks had only parts of it mapped, so it cannot be made again", err)
		}
	}
	if one.leader != r.rank {
		return nil
	}
	if one.path == "" {
		fd, err := unix.MemfdCreate(one.Path, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			return err
		}
		one.file = os.NewFile(uintptr(fd), memfd+one.Path)
		one.made = true
		return unix.Ftruncate(fd, int64(one.mapped()))
	}
	if err := r.create(one); err != nil {
		return err
	}
	return fault.Point("posixshm.made")
}

// look finds a file under its name, as it may be used.
func (r *Restored) look(one *remade) error {
	var st unix.Stat_t
	if err := unix.Lstat(one.path, &st); err != nil {
		return &fs.PathError{Op: "shared file", Path: one.path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("something else has its name now: put it back where it was, or remove what is there")
	}
	if st.Size < one.Bytes && (one.leader < 0 || r.alone(one)) {
		return fmt.Errorf("it has %d bytes, %d are needed: put it back as it was, or remove it", st.Size, one.Bytes)
	}
	one.found = true
	return nil
}

// create makes a file, of zeros. It gets its name last, so that what is killed before leaves nothing.
func (r *Restored) create(one *remade) error {
	dir := filepath.Dir(one.path)
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	named := errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) // as NFS: it gets its name at once
	if named {
		fd, err = unix.Open(one.path, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	}
	if err != nil {
		return fmt.Errorf("make it in %s: %w", dir, err)
	}
	defer unix.Close(fd)
	one.made = named
	size := one.Bytes
	if !one.Named {
		size = int64(one.mapped())
	}
	if err = unix.Ftruncate(fd, size); err == nil && one.Named {
		_ = unix.Fchown(fd, int(one.UID), int(one.GID)) // only root may, to another user
		if err = unix.Fchmod(fd, one.Mode); err == nil {
			t := unix.NsecToTimespec(one.Mtime)
			err = unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), []unix.Timespec{t, t}, 0)
		}
	}
	if err == nil && !named {
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, one.path, unix.AT_SYMLINK_FOLLOW)
	}
	switch {
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%s has no room for its %d bytes: make that file system larger, or free some", dir, one.Bytes)
	case err != nil:
		return fmt.Errorf("make it in %s: %w", dir, err)
	}
	one.made = true
	return nil
}

// Open opens what this process has mapped. What was there gets its size back.
func (r *Restored) Open() error {
	for _, one := range r.files {
		if one.file != nil || one.found && r.alone(one) {
			continue
		}
		f, err := regular.Open(one.path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC)
		if err != nil {
			return fmt.Errorf("%s: %w", one, err)
		}
		one.file = f
		if one.found && one.leader == r.rank { // all of its content comes
			if err := f.Truncate(one.Bytes); err != nil {
				return fmt.Errorf("%s: its size: %w", one, err)
			}
		}
	}
	return nil
}

// alone tells whether a process has what it had of a file for itself, where the file is there: it only reads it, as do the others
// of the job, so that it is somebody else's, and not to be written to.
func (r *Restored) alone(one *remade) bool {
	return !slices.ContainsFunc(r.image.Regions(), func(region image.Region) bool {
		n, is := fileOf(&region)
		return is && r.files[n] == one && (region.Prot&unix.PROT_WRITE != 0 || region.Flags&image.FlagNoData != 0)
	})
}

// Unname takes the names away that files without one have got, whoever made them.
func (r *Restored) Unname() {
	if r == nil {
		return
	}
	for _, one := range r.files {
		if !one.Named && one.path != "" {
			_ = os.Remove(one.path)
		}
	}
}

// Clear empties what this process has the content of, of files that were there: an image has no pages of zeros. And it takes
// the memory for that content: where there is none, whoever fills it would be killed.
func (r *Restored) Clear() error {
	regions := r.image.Regions()
	for i := range regions {
		n, is := fileOf(&regions[i])
		if !is || r.files[n].file == nil || regions[i].Flags&image.FlagNoData != 0 {
			continue
		}
		if err := r.clear(r.files[n], i); errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("%s: its file system has no room for what it had: make it larger, or free some", r.files[n])
		} else if err != nil {
			return fmt.Errorf("%s: make room for what it had: %w", r.files[n], err)
		}
	}
	return nil
}

func (r *Restored) clear(one *remade, region int) error {
	fd, from, to := int(one.file.Fd()), r.image.Regions()[region].Offset, one.mapped()
	start := r.image.Regions()[region].Start
	if end := from + r.image.Regions()[region].Bytes(); one.found && from < to {
		if err := fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, min(end, to)); err != nil {
			return err
		}
	}
	for _, c := range r.image.RegionChunks(region) {
		if c.Kind == image.KindZero {
			continue
		}
		err := fault.Point("posixshm.room")
		if err == nil {
			err = fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, from+c.Addr-start, from+c.End()-start)
		}
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
	}
	return nil
}

func fallocate(fd int, mode uint32, from, to uint64) error {
	for {
		if err := unix.Fallocate(fd, mode, int64(from), int64(to-from)); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// File is the file that a region is to be mapped of; nil when the region is of none of them.
func (r *Restored) File(region *image.Region) (*os.File, error) {
	n, is := fileOf(region)
	if !is || r == nil {
		return nil, nil
	}
	return r.files[n].file, nil
}

// Unnamed is a file without a name by the numbers that it had; nil when there is none. It stays this package's.
func (r *Restored) Unnamed(dev, ino uint64) *os.File {
	for _, one := range r.files {
		if !one.Named && one.Dev == dev && one.Ino == ino {
			return one.file
		}
	}
	return nil
}

// Done ends it: what is mapped stays. Without success no file stays that was made.
func (r *Restored) Done(good bool) {
	for _, one := range r.files {
		if one.file != nil {
			one.file.Close()
			one.file = nil
		}
		if one.made && one.path != "" && (!good || !one.Named) {
			_ = os.Remove(one.path)
		}
	}
}
