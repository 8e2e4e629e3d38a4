// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Change is something that the application did, or was about to do, to names and content of files after an epoch. The log of Host.Made has
// a record of each, which stands there before it is done (capi/host/made.c, spoilt.c).
type Change struct {
	Kind     uint32 `json:",omitempty"` // 0: a name was given to what was made since
	Pos      int    // of the process, in the order of its changes; as Tell knows it
	Ino      uint64 `json:",omitempty"`
	Born     int64  `json:",omitempty"` // nanoseconds since 1970; 0: the file system does not say
	Size     int64  `json:",omitempty"` // before it was changed
	Whole    int64  `json:",omitempty"` // what is kept has more than that, so many bytes; 0: no
	Modified int64  `json:",omitempty"` // when the content had been changed, in nanoseconds since 1970
	At       int64  // when this was noted
	Mode     uint32 `json:",omitempty"` // as in struct stat
	Kept     string `json:",omitempty"` // the name of its content in the folder of what is kept, or of the file itself; empty: it is not kept
	Path     string
	New      string `json:",omitempty"` // the name that it was given

	made  made  // if Kind is 0
	place int64 // of its record in the log
}

const (
	spoiltContent   = 0x60
	spoiltName      = 0x70
	spoiltMoved     = 0x80
	spoiltMore      = 0x90 // as the first, and of other files nothing is known from here on
	spoiltExchanged = 0xa0 // with what has the other name
	spoiltGrows     = 0xb0 // something was about to be appended; what the file had then is the first part of what it has
	spoiltNamed     = 0xc0 // what was made since the time in Modified got the name by rename; of several one after the other the first one is noted
	spoiltBack      = 0xd0 // a restart went back to the place Size of the log
	spoiltAgain     = 0xe0 // and made another file in place of one, as it was at the place Size: number and time of it are in At and Modified
)

// spoiltHead is struct made_spoilt of capi/host/hostgo.h.
type spoiltHead struct {
	Size, Modified, At int64
	Mode               uint32
	Kept               [36]byte
}

var spoiltBytes = binary.Size(spoiltHead{})

var errRecord = errors.New("a record of files that were changed is damaged")

func parseSpoilt(m *made, payload string) (c Change, err error) {
	var h spoiltHead
	if err := binary.Read(strings.NewReader(payload), binary.LittleEndian, &h); err != nil {
		return c, errRecord
	}
	kept, _, _ := bytes.Cut(h.Kept[:], []byte{0})
	c = Change{Kind: m.Known &^ madeThen, Ino: m.Ino, Size: h.Size, Modified: h.Modified, At: h.At, Mode: h.Mode, Kept: string(kept), Path: payload[spoiltBytes:]}
	if m.Known&madeThen != 0 {
		c.Born = time.Unix(m.Seconds, int64(m.Nanos)).UnixNano()
	}
	if c.moves() {
		c.Path, c.New, _ = strings.Cut(c.Path, "\x00")
		if !filepath.IsAbs(c.New) || strings.ContainsRune(c.New, 0) {
			return c, errRecord
		}
	}
	if h.Size < 0 || !filepath.IsAbs(c.Path) || strings.ContainsRune(c.Path, 0) || strings.ContainsRune(c.Kept, '/') || c.Kept == "." || c.Kept == ".." {
		return c, errRecord
	}
	return c, nil
}

// Changes is what a process did after an epoch, in the order in which it did. What restarts have undone is left out.
type Changes struct {
	List []Change
	More bool // it did more than is known
	// Behind: since then it was continued from an older epoch. What that has changed is undone as far as it had been there at this one.
	Behind bool
	// Remade is what restarts have made in the place of files.
	Remade map[Which]Which
}

// ReadChanges reads a log from the place that it had at an epoch. It may end within a record.
func ReadChanges(log io.Reader, place int64) (all Changes, err error) {
	type entry struct {
		Change
		drop bool
	}
	var list []entry
	begun := map[uint32]int{} // by thread: what it has not come to the end of, or could not do
	at := place
	err = eachMade(log, func(m *made, payload string) {
		var e entry
		begins := at
		at += int64(binary.Size(m)) + int64(m.Length)
		switch {
		case m.spoilt():
			e.Change, _ = parseSpoilt(m, payload) // eachMade has looked at it
		case m.sized():
			return
		default:
			// When it began: what has the name may be older, by another name.
			e.Change = Change{Path: payload, made: *m, At: time.Unix(m.Seconds, int64(m.Nanos)).UnixNano()}
			if i, is := begun[m.Thread]; is {
				if m.Known != madeBegins {
					e.At = list[i].At
				}
				list[i].drop = true
				delete(begun, m.Thread)
			}
			if m.Known == madeBegins {
				begun[m.Thread] = len(list)
			}
		}
		switch e.Kind {
		case spoiltBack:
			all.Behind = all.Behind || e.Size < place
			for len(list) > 0 && list[len(list)-1].place >= e.Size {
				list = list[:len(list)-1]
			}
			clear(begun)
			return
		case spoiltAgain:
			if all.Remade == nil {
				all.Remade = map[Which]Which{}
			}
			all.Remade[e.which()] = (&Change{Ino: uint64(e.At), Born: e.Modified}).which()
			return
		case spoiltNamed:
			since := time.Unix(0, e.Modified)
			e.Change = Change{Path: e.Path, At: e.At, made: made{Known: madeNamed, Ino: e.Ino, Seconds: since.Unix(), Nanos: uint32(since.Nanosecond())}}
		case spoiltMore:
			all.More = true
		}
		e.place = begins
		list = append(list, e)
	})
	for i := range list {
		if !list[i].drop {
			all.List = append(all.List, list[i].Change)
		}
	}
	return all, err
}

// NoteBack notes in a log that a restart from an epoch, which had that place, has undone all from the place back on, and what it made for that.
func NoteBack(log io.Writer, back, epoch int64, remade map[Which]Which) error {
	h := spoiltHead{Size: back, At: time.Now().UnixNano()}
	errs := []error{noteIn(log, &made{Known: spoiltBack}, &h, "/")}
	for old, now := range remade {
		m := made{Ino: old.Ino, Known: spoiltAgain, Seconds: old.Seconds, Nanos: old.Nanos}
		if old != (Which{Ino: old.Ino}) {
			m.Known |= madeThen
		}
		h := spoiltHead{Size: epoch, At: int64(now.Ino)}
		if now != (Which{Ino: now.Ino}) {
			h.Modified = time.Unix(now.Seconds, int64(now.Nanos)).UnixNano()
		}
		errs = append(errs, noteIn(log, &m, &h, "/"))
	}
	return errors.Join(errs...)
}

// backThrough is the mode of the record of a restart that is through: what was appended is cut off, too.
const backThrough = 1

// NoteThrough notes in a log that a restart from an epoch, which had that place, has put all files back.
func NoteThrough(log io.Writer, epoch int64) error {
	return noteIn(log, &made{Known: spoiltBack}, &spoiltHead{Size: epoch, At: time.Now().UnixNano(), Mode: backThrough}, "/")
}

// noteIn writes a record at once: others may write to the end of the log, too.
func noteIn(to io.Writer, m *made, h *spoiltHead, path string) error {
	m.Length = uint32(spoiltBytes + len(path))
	b, err := binary.Append(nil, binary.LittleEndian, m)
	if err == nil {
		b, err = binary.Append(b, binary.LittleEndian, h)
	}
	if err == nil {
		_, err = to.Write(append(b, path...))
	}
	return err
}

// old tells whether it is about what was there at the epoch.
func (c *Change) old() bool { return c.Kind != 0 }

// As is the change as it is to be undone by a plan.
func (c *Change) As(told *Change) Change {
	as := *told
	as.made, as.place = c.made, c.place
	return as
}

// content tells whether its content was about to change. Several processes may say so of a file, and the first knows what it was.
func (c *Change) content() bool { return c.Kind == spoiltContent || c.Kind == spoiltMore }

func (c *Change) moves() bool { return c.Kind == spoiltMoved || c.Kind == spoiltExchanged }

// before tells whether it was noted of an older content of the same file.
func (c *Change) before(o *Change) bool {
	return cmp.Or(cmp.Compare(c.Modified, o.Modified), cmp.Compare(c.At, o.At)) < 0
}

// Undoing is how changes are undone.
type Undoing struct {
	Folder string    // of what is kept
	Seen   time.Time // when the job was last seen to live; zero: nobody knows
	// Log is that of Host.Made, and Epoch the place that it had at the epoch: what is undone is noted, so that who is killed on the way goes
	// on from there. Unnoted is why that could not be done.
	Log     io.Writer
	Epoch   int64
	Unnoted error

	// Remade is what was made in the place of files, by this restart and those before it: whoever undoes more has to know all of it.
	Remade map[Which]Which

	fresh    map[Which]Which // of it, what is not noted yet
	replaced map[Which]Which // the other way round
	found    map[Which]*os.File
	stays    bool // something that was made since is still where it was

	// Moved is told what got newerSuffix, or was removed where it is memory: it was made since.
	Moved func(path string)
	// Back is told what has again what was taken from it.
	Back func(path string)
	// Others is told what somebody else had written to: what it had is in a file with newerSuffix.
	Others func(path string)
	// Lost is told what cannot be undone, whatever is done about it.
	Lost func(error)
}

// Undo undoes changes, the last first. Nobody of the job runs. What is in the way, of whoever it may be, gets newerSuffix. Undone twice is
// as good as once. An error says what could not be put back now; all others were. What was made since and stays is no error, and Lost is told.
func (u *Undoing) Undo(list []Change) error {
	var problems []error
	u.replaced = nil // others may have made something meanwhile
	for end := len(list); end > 0; {
		if c := &list[end-1]; c.Kind != 0 {
			did, err := u.undo(c)
			lost := new(lostError)
			switch {
			case errors.As(err, &lost):
				u.Lost(err)
				did = false
			case err != nil:
				problems = append(problems, err)
			case did:
				u.Back(c.Path)
			}
			if did && len(problems) == 0 && !u.stays { // else the next restart has to try that again
				u.Unnoted = cmp.Or(u.Unnoted, NoteBack(u.Log, c.place, u.Epoch, u.fresh))
				u.fresh = nil
			}
			end--
			continue
		}
		// A folder that was made takes along what was made in it.
		start := end - 1
		for start > 0 && list[start-1].Kind == 0 {
			start--
		}
		for i := start; i < end; i++ {
			switch is, err := u.aside(&list[i].made, list[i].Path); {
			case err != nil:
				u.stays = true
				u.Lost(err)
			case is:
				u.Moved(list[i].Path)
			}
		}
		end = start
	}
	return errors.Join(problems...)
}

// lostError tells that something is gone for good.
type lostError struct{ what string }

func (e *lostError) Error() string { return e.what }

func lost(format string, a ...any) error { return &lostError{fmt.Sprintf(format, a...)} }

func (u *Undoing) undo(c *Change) (bool, error) {
	switch {
	case c.moves():
		return u.moveBack(c)
	case c.Kind == spoiltName:
		return u.giveName(c)
	case c.Kind == spoiltGrows:
		u.find(c)
		return false, nil
	default:
		return u.fill(c)
	}
}

// whichIs is which file it is, as far as its file system says.
func whichIs(st *unix.Statx_t) Which {
	if st.Mask&unix.STATX_BTIME == 0 {
		return Which{Ino: st.Ino}
	}
	return Which{Ino: st.Ino, Seconds: st.Btime.Sec, Nanos: st.Btime.Nsec}
}

// same tells whether that is a file, or was made in its place.
func (u *Undoing) same(w, is Which) bool {
	for range 100 {
		if w == is || w == (Which{Ino: is.Ino}) || is == (Which{Ino: w.Ino}) {
			return true
		}
		next, remade := u.Remade[w]
		if !remade {
			return false
		}
		w = next
	}
	return false
}

// original is the file in whose place one was made.
func (u *Undoing) original(is Which) Which {
	if len(u.replaced) != len(u.Remade) {
		u.replaced = map[Which]Which{}
		for old, now := range u.Remade {
			u.replaced[now] = old
		}
	}
	for range 100 {
		old, remade := u.replaced[is]
		if !remade {
			break
		}
		is = old
	}
	return is
}

// remade notes what was made anew.
func (u *Undoing) remade(c *Change) error {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, c.Path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: c.Path, Err: err}
	}
	if is := whichIs(&st); !u.same(c.which(), is) {
		if u.Remade == nil {
			u.Remade = map[Which]Which{}
		}
		if u.fresh == nil {
			u.fresh = map[Which]Which{}
		}
		u.Remade[c.which()], u.fresh[c.which()] = is, is
		u.replaced = nil
	}
	return nil
}

// mostFound bounds how many files are held open.
const mostFound = 200

// find remembers where a file is now that was appended to: it may have another name when all is undone.
func (u *Undoing) find(c *Change) {
	if _, same, err := u.has(c, c.Path); err != nil || !same || len(u.found) >= mostFound || u.found[c.which()] != nil {
		return
	}
	f, err := os.OpenFile(c.Path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return // by its name, then
	}
	if u.found == nil {
		u.found = map[Which]*os.File{}
	}
	u.found[c.which()] = f
}

// Found is a file that was appended to, and that was where it was then when what followed was undone; nil: it was not.
func (u *Undoing) Found(w Which) *os.File { return u.found[w] }

// Close closes what was found.
func (u *Undoing) Close() {
	for _, f := range u.found {
		_ = f.Close()
	}
}

// has tells what has a name now: nothing, or the file that was changed.
func (u *Undoing) has(c *Change, path string) (there, same bool, err error) {
	var st unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME, &st)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return false, false, nil
	}
	if err != nil {
		return false, false, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return true, u.same(c.which(), whichIs(&st)), nil
}

// clearName makes a name free.
func clearName(path string) error {
	if err := makeParent(path); err != nil {
		return err
	}
	if missing(path) {
		return nil
	}
	return moveNewer(path)
}

func (u *Undoing) moveBack(c *Change) (bool, error) {
	_, same, err := u.has(c, c.New)
	if err != nil || !same {
		return false, err // it was not done, or something was done with it later
	}
	there, same, err := u.has(c, c.Path)
	switch {
	case err != nil:
		return false, err
	case same: // rename takes none of two names away
		return true, os.Remove(c.New)
	case c.Kind == spoiltExchanged && there:
		err := unix.Renameat2(unix.AT_FDCWD, c.New, unix.AT_FDCWD, c.Path, unix.RENAME_EXCHANGE)
		if err != nil {
			err = &os.LinkError{Op: "exchange", Old: c.New, New: c.Path, Err: err}
		}
		return true, err
	}
	if err := clearName(c.Path); err != nil {
		return false, err
	}
	return true, os.Rename(c.New, c.Path)
}

func (u *Undoing) giveName(c *Change) (bool, error) {
	there, same, err := u.has(c, c.Path)
	if err != nil || same {
		return false, err // it was not done
	}
	if c.Mode&unix.S_IFMT == unix.S_IFDIR {
		if there {
			st, err := os.Lstat(c.Path)
			if err == nil && st.IsDir() { // made again, by a restart or by the program
				return false, u.remade(c)
			}
			if err := clearName(c.Path); err != nil {
				return false, err
			}
		}
		if err := makeParent(c.Path); err != nil {
			return false, err
		}
		return true, errors.Join(os.Mkdir(c.Path, 0o700), unix.Fchmodat(unix.AT_FDCWD, c.Path, c.Mode&0o7777, 0), u.remade(c))
	}
	if c.Kept == "" {
		return false, lost("%s was removed or replaced after the checkpoint, and was not kept (more room on the disk or a larger --files-copy helps the next time)", c.Path)
	}
	kept := filepath.Join(u.Folder, c.Kept)
	if there, same, err = u.has(c, kept); err == nil && !there {
		err = lost("%s was removed or replaced after the checkpoint, and %s, which it was kept in, is gone", c.Path, kept)
	}
	switch {
	case err != nil:
		return false, err
	case same:
		if err := clearName(c.Path); err != nil {
			return false, err
		}
		return true, os.Link(kept, c.Path)
	case c.Mode&unix.S_IFMT == unix.S_IFLNK:
		target, err := os.Readlink(kept)
		if err == nil {
			if now, _ := os.Readlink(c.Path); now == target {
				return false, u.remade(c)
			}
			err = clearName(c.Path)
		}
		if err != nil {
			return false, err
		}
		return true, errors.Join(os.Symlink(target, c.Path), u.remade(c))
	}
	return u.place(c)
}

// place has a file with its content get its name, another one than it was.
func (u *Undoing) place(c *Change) (bool, error) {
	if st, err := os.Lstat(c.Path); err == nil && st.Mode().IsRegular() && st.Size() == c.Size && st.ModTime().UnixNano() == c.Modified {
		return false, u.remade(c) // another restart has done it
	}
	if err := makeParent(c.Path); err != nil {
		return false, err
	}
	f, err := os.CreateTemp(filepath.Dir(c.Path), filepath.Base(c.Path)+".*.tmp")
	if err != nil {
		return false, err
	}
	if err = u.write(c, f); err == nil {
		var owner unix.Stat_t
		if unix.Lstat(filepath.Join(u.Folder, c.Kept), &owner) == nil && c.Kept != "" {
			_ = f.Chown(int(owner.Uid), int(owner.Gid)) // who may not is the owner
		}
		err = unix.Fchmod(int(f.Fd()), c.Mode&0o7777)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = clearName(c.Path)
	}
	if err == nil {
		err = os.Rename(f.Name(), c.Path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return false, err
	}
	return true, u.remade(c)
}

// fill gives a file its content again.
func (u *Undoing) fill(c *Change) (bool, error) {
	_, same, err := u.has(c, c.Path)
	if err != nil {
		return false, err
	}
	if c.Size > 0 && c.Kept == "" {
		if st, err := os.Lstat(c.Path); err == nil && st.Size() == c.Size && st.ModTime().UnixNano() == c.Modified { // it was opened, and no more
			return false, nil
		}
		return false, lost("%s was written over after the checkpoint, and was not kept: the program finds what it wrote then (more room on the disk or a larger --files-copy helps the next time)", c.Path)
	}
	if !same { // also an overlay's copy of what it was
		return u.place(c)
	}
	f, err := openRegular(c.Path, unix.O_RDWR)
	if err != nil {
		return false, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() == c.Size && st.ModTime().UnixNano() == c.Modified {
		return false, err
	}
	if !u.Seen.IsZero() && st.ModTime().After(u.Seen.Add(lastWrite)) { // perhaps somebody else's work
		if err := saveNewer(f, c.Path); err != nil {
			return false, fmt.Errorf("%s was written to after the job had ended, and a copy could not be made: %w", c.Path, err)
		}
		u.Others(c.Path)
	}
	return true, u.write(c, f)
}

// saveNewer keeps a copy of what a file has.
func saveNewer(f *os.File, path string) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	to, err := os.OpenFile(path+newerSuffix, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NOFOLLOW, st.Mode().Perm())
	if err != nil {
		return err
	}
	return errors.Join(cloneOrCopy(to, f, st.Size()), to.Close())
}

// write gives an open file the content of a change, durably: nobody else sees to that before the next epoch.
func (u *Undoing) write(c *Change, to *os.File) error {
	if c.Size > 0 {
		kept := filepath.Join(u.Folder, c.Kept)
		from, err := openRegular(kept, unix.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			return lost("%s was changed after the checkpoint, and %s, which it was kept in, is gone", c.Path, kept)
		}
		if err != nil {
			return err
		}
		defer from.Close()
		switch st, err := from.Stat(); {
		case err != nil:
			return err
		case st.Size() != cmp.Or(c.Whole, c.Size):
			return lost("%s was changed after the checkpoint, and %s, which it was kept in, has %d bytes of %d: the machine may have lost power", c.Path, kept, st.Size(), cmp.Or(c.Whole, c.Size))
		}
		if err := cloneOrCopy(to, from, c.Size); err != nil {
			return fmt.Errorf("%s as it was at the checkpoint: %w", c.Path, err)
		}
	}
	if err := to.Truncate(c.Size); err != nil {
		return err
	}
	// So that it is seen to be as it was (make, another restart).
	at := []unix.Timespec{unix.NsecToTimespec(c.Modified), unix.NsecToTimespec(c.Modified)}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", to.Fd()), at, 0); err != nil {
		return &fs.PathError{Op: "set the time of", Path: c.Path, Err: err}
	}
	return to.Sync()
}
