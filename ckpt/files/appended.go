// SPDX-License-Identifier: Apache-2.0

package files

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Appended is what a process appended, after an epoch, to a file that was there: what its log says (Host.Made).
type Appended struct {
	Path string
	File Which
	// Base is the size that the file had when the process first opened it after the epoch.
	Base int64
	// Spans of the file that it wrote, or held the file open for while they were written, by where they begin and end. Apart from the last they do not meet.
	Spans []Span
	// Unsure: it also wrote to the file in other ways, or more than its log has.
	Unsure bool
}

// Which file it is, on its file system.
type Which struct {
	Ino     uint64
	Seconds int64 // since 1970, of when it was made; 0 where the file system does not say
	Nanos   uint32
}

// Span is a part of a file. One that goes to noEnd begins where a process had opened the file which it did not close.
type Span struct{ From, To int64 }

const noEnd = int64(1)<<62 - 1

// mostSpans bounds what a process tells of one file; neighbours are one.
const mostSpans = 1000

// ReadAppended reads a log from the place that it had at an epoch. It may end within a record.
func ReadAppended(log io.Reader, place int64) (list []Appended, err error) {
	at := map[Which]int{}
	type opening struct {
		size  int64 // at the last one
		times int   // for which there was no close yet
	}
	opened := map[Which]opening{}
	err = eachMade(log, func(m *made, payload string) {
		if m.spoilt() {
			if c, _ := parseSpoilt(m, payload); c.Kind == spoiltBack && c.Mode == backThrough && c.Size == place { // all of that is undone
				list = nil
				clear(at)
				clear(opened)
			}
			return
		}
		if !m.sized() {
			return
		}
		size, path := m.size(payload)
		kind, which := m.Known&^madeThen, Which{Ino: m.Ino}
		if m.Known&madeThen != 0 {
			which.Seconds, which.Nanos = m.Seconds, m.Nanos
		}
		if kind == madeLost {
			for i := range list {
				list[i].Unsure = true
			}
			return
		}
		i, known := at[which]
		switch {
		case known:
		case kind != madeAppends || path == "":
			if kind == madeWrites {
				at[which] = len(list)
				list = append(list, Appended{Path: path, File: which, Base: size, Unsure: true})
			}
			return // it was open at the epoch, or is another process's
		default:
			i, at[which] = len(list), len(list)
			list = append(list, Appended{Path: path, File: which, Base: size})
		}
		a := &list[i]
		if path != "" {
			a.Path = path // it may have been renamed
		}
		switch kind {
		case madeWrites:
			a.Unsure = true
		case madeCut:
			a.cut(size)
		case madeAppends:
			a.cut(size) // if it was longer, somebody has cut it since
			opened[which] = opening{size, opened[which].times + 1}
			a.Spans = append(a.Spans, Span{size, noEnd})
		case madeCloses:
			o, is := opened[which]
			if !is {
				return
			}
			a.Spans = slices.DeleteFunc(a.Spans, func(s Span) bool { return s.To == noEnd })
			if size < o.size { // somebody has cut it since
				a.cut(size)
			} else {
				a.Spans = joinSpans(append(a.Spans, Span{o.size, size}))
			}
			if o.times--; o.times > 0 { // another descriptor is still open
				a.Spans = append(a.Spans, Span{size, noEnd})
				o.size = size
			}
			o.times = max(o.times, 0) // those that were duplicated close more often
			opened[which] = o
		}
		if len(a.Spans) > mostSpans {
			a.Unsure, a.Spans = true, a.Spans[:1]
		}
	})
	return list, err
}

// cut has nothing known of what is behind size.
func (a *Appended) cut(size int64) {
	a.Base = min(a.Base, size)
	a.Spans = slices.DeleteFunc(a.Spans, func(s Span) bool { return s.From >= size })
	for i := range a.Spans {
		a.Spans[i].To = min(a.Spans[i].To, size)
	}
}

// joinSpans sorts them, and makes those one that meet. One without an end stays apart, at the end: it is not known to go on to where the file ends.
func joinSpans(list []Span) []Span {
	slices.SortFunc(list, func(a, b Span) int { return cmp.Or(cmp.Compare(a.To/noEnd, b.To/noEnd), cmp.Compare(a.From, b.From)) })
	out := list[:0]
	for _, s := range list {
		if n := len(out); n > 0 && s.From <= out[n-1].To && (s.To == noEnd) == (out[n-1].To == noEnd) {
			out[n-1].To = max(out[n-1].To, s.To)
			continue
		}
		out = append(out, s)
	}
	return out
}

// covers tells whether they have all from one place to another. held: what was appended behind the beginning of one without an end is the job's, too.
func covers(list []Span, from, to int64, held bool) bool {
	list = slices.Clone(list)
	for i := range list {
		switch {
		case list[i].To < noEnd:
		case held:
			list[i].To = max(to, list[i].From)
		default:
			list[i].To = list[i].From
		}
	}
	return slices.ContainsFunc(joinSpans(list), func(s Span) bool { return s.From <= from && to <= s.To })
}

// JoinAppended makes one list of what all processes of a job say, by file. Of each file, first is the first process that has it.
func JoinAppended(all [][]Appended) (list []Appended, first []int) {
	type key struct {
		path string
		file Which
	}
	at := map[key]int{}
	for process, theirs := range all {
		for _, a := range theirs {
			k := key{a.Path, a.File}
			i, known := at[k]
			if !known {
				at[k] = len(list)
				a.Spans = joinSpans(slices.Clone(a.Spans))
				list, first = append(list, a), append(first, process)
				continue
			}
			have := &list[i]
			have.Base = min(have.Base, a.Base)
			have.Unsure = have.Unsure || a.Unsure
			have.Spans = joinSpans(append(have.Spans, a.Spans...))
		}
	}
	return list, first
}

// ErrOthers says that more was appended to a file than the job is known to have appended.
var ErrOthers = errors.New("stays: not all of it is known to be this job's, so lines may be in it twice")

// lastWrite is for how long after it was last seen to live a job may have written: a lease is renewed every two seconds, and the other ranks may
// end some time after the one that does it.
const lastWrite = 10 * time.Second

// Cut removes what was appended to the file, and returns how much that was. Nothing is removed, and the error is ErrOthers, if any of it
// may be somebody else's. A job that was killed while it had the file open may have written up to its end: to what was written later than shortly after
// seen, when it was last seen to live, it has no claim; zero: that is not known. found is the file, nil: it has its name still.
func (a *Appended) Cut(seen time.Time, found *os.File) (removed int64, err error) {
	if len(a.Spans) == 0 {
		return 0, nil
	}
	f, err := a.open(found)
	if f == nil || err != nil {
		return 0, err // the program has given the name to another since, or taken it away
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var now unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &now); err != nil || now.Ino != a.File.Ino {
		return 0, err
	}
	if now.Size <= a.Base {
		return 0, nil
	}
	held := !seen.IsZero() && time.Unix(now.Mtim.Unix()).Before(seen.Add(lastWrite))
	if a.Unsure || !covers(a.Spans, a.Base, now.Size, held) || alsoWrites(&now) != "" {
		return 0, fmt.Errorf("%s: what was appended after the checkpoint, %d bytes, %w", a.Path, now.Size-a.Base, ErrOthers)
	}
	if err := f.Truncate(a.Base); err != nil {
		return 0, err
	}
	return now.Size - a.Base, nil
}

// open opens the file to cut it; nil: it is not there.
func (a *Appended) open(found *os.File) (*os.File, error) {
	path, dir, how := a.Path, unix.AT_FDCWD, unix.AT_SYMLINK_NOFOLLOW
	if found != nil {
		path, dir, how = "", int(found.Fd()), unix.AT_EMPTY_PATH
	}
	var st unix.Statx_t
	err := unix.Statx(dir, path, how, unix.STATX_INO|unix.STATX_BTIME|unix.STATX_TYPE, &st)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || whichIs(&st) != a.File) {
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: a.Path, Err: err}
	}
	if found != nil {
		return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", found.Fd()), os.O_WRONLY|unix.O_NONBLOCK, 0)
	}
	return os.OpenFile(a.Path, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// Restamp gives a file that was only read, and that has the size of then again, the time of its last change that it had: it is compared.
func (t *Table) Restamp(ino uint64) error {
	for i := range t.Files {
		f := &t.Files[i]
		if f.Kind != KindRegular || f.Inode == nil || f.Inode.Ino != ino || f.writable() {
			continue
		}
		var st unix.Stat_t
		if err := unix.Lstat(string(f.Path), &st); err != nil || st.Ino != ino || st.Size != f.Inode.Size {
			continue // the restore says what is wrong with it
		}
		times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(f.Inode.Mtime)}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, string(f.Path), times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return &fs.PathError{Op: "utimensat", Path: string(f.Path), Err: err}
		}
	}
	return nil
}

// Note notes in a log of names that the file was cut, or that it was not, so that nobody is to do that later.
func (a *Appended) Note(to io.Writer, cut bool) error {
	m := made{Ino: a.File.Ino, Seconds: a.File.Seconds, Nanos: a.File.Nanos, Known: madeWrites, Length: uint32(8 + len(a.Path))}
	if cut {
		m.Known = madeCut
	}
	if a.File != (Which{Ino: a.File.Ino}) {
		m.Known |= madeThen
	}
	b, err := binary.Append(nil, binary.LittleEndian, &m)
	if err == nil {
		b = binary.LittleEndian.AppendUint64(b, uint64(a.Base))
		_, err = to.Write(append(b, a.Path...))
	}
	return err
}
