// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// spoiler writes a log as C does, of files that are there.
type spoiler struct {
	t    *testing.T
	dir  string
	kept string
	b    bytes.Buffer
	n    int
}

func newSpoiler(t *testing.T) *spoiler {
	t.Helper()
	s := &spoiler{t: t, dir: t.TempDir(), kept: t.TempDir()}
	return s
}

func (s *spoiler) path(name string) string { return filepath.Join(s.dir, name) }

func (s *spoiler) put(name, content string) { s.t.Helper(); put(s.t, s.path(name), []byte(content)) }

// note notes what is about to happen to a file; kept is its content's name, and renamed its new one.
func (s *spoiler) note(kind uint32, name, kept, renamed string) {
	s.t.Helper()
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, s.path(name), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		s.t.Fatal(err)
	}
	s.n++
	m := made{Ino: st.Ino, Seconds: st.Btime.Sec, Nanos: st.Btime.Nsec, Known: kind}
	if st.Mask&unix.STATX_BTIME != 0 {
		m.Known |= madeThen
	}
	h := spoiltHead{Size: int64(st.Size), Modified: st.Mtime.Sec*1e9 + int64(st.Mtime.Nsec), At: int64(s.n), Mode: uint32(st.Mode)}
	copy(h.Kept[:], kept)
	path := s.path(name)
	if renamed != "" {
		path += "\x00" + s.path(renamed)
	}
	s.must(noteIn(&s.b, &m, &h, path))
}

// keep has a copy of a file, or with link another name of it.
func (s *spoiler) keep(name, kept string, link bool) {
	s.t.Helper()
	if link {
		s.must(os.Link(s.path(name), filepath.Join(s.kept, kept)))
		return
	}
	b, err := os.ReadFile(s.path(name))
	s.must(err)
	put(s.t, filepath.Join(s.kept, kept), b)
}

func (s *spoiler) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// undo undoes all, and returns what is in the folder then, without what has newerSuffix, and what was lost.
func (s *spoiler) undo() (is map[string]string, lost []string, err error) {
	s.t.Helper()
	all, err := ReadChanges(bytes.NewReader(s.b.Bytes()), 8)
	s.must(err)
	u := Undoing{Folder: s.kept, Log: &s.b, Epoch: 8, Remade: all.Remade, Moved: func(string) {}, Back: func(string) {}, Lost: func(err error) { lost = append(lost, err.Error()) }}
	err = u.Undo(all.List)
	s.must(u.Unnoted)
	return s.is(), lost, err
}

func (s *spoiler) is() map[string]string {
	is := map[string]string{}
	s.must(filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		name, _ := filepath.Rel(s.dir, path)
		if err != nil || name == "." || strings.Contains(name, newerSuffix) {
			return err
		}
		switch {
		case d.IsDir():
			is[name] = "a folder"
		case d.Type()&os.ModeSymlink != 0:
			is[name], err = os.Readlink(path)
		default:
			var b []byte
			b, err = os.ReadFile(path)
			is[name] = string(b)
		}
		return err
	}))
	return is
}

// Everything that a program does to files and names is undone, in whatever order it did that; also when only some of it was done, and by one restart
// that is killed after each step and the one after it.
func TestUndo(t *testing.T) {
	write := func(s *spoiler, name, content string) {
		s.t.Helper()
		f, err := os.OpenFile(s.path(name), os.O_WRONLY|os.O_TRUNC, 0)
		s.must(err)
		_, err = f.WriteString(content)
		s.must(err)
		s.must(f.Close())
	}
	for _, c := range []struct {
		name string
		was  map[string]string
		do   func(s *spoiler)
	}{
		{"written over", map[string]string{"a": "old", "empty": ""}, func(s *spoiler) {
			s.keep("a", "1", false)
			s.note(spoiltContent, "a", "1", "")
			write(s, "a", "newer and longer")
			s.note(spoiltContent, "empty", "", "")
			write(s, "empty", "not any more")
		}},
		{"written over, and renamed", map[string]string{"a": "old", "b": "other"}, func(s *spoiler) {
			s.keep("a", "1", false)
			s.note(spoiltContent, "a", "1", "")
			write(s, "a", "new")
			s.keep("b", "2", true)
			s.note(spoiltName, "b", "2", "")
			s.note(spoiltMoved, "a", "", "b")
			s.must(os.Rename(s.path("a"), s.path("b")))
			s.put("a", "made since")
		}},
		{"renamed to what was new, and removed, by a copy", map[string]string{"a": "old"}, func(s *spoiler) {
			s.put("t", "new")
			s.named("t", "b", time.Now().Add(-time.Hour))
			s.must(os.Rename(s.path("t"), s.path("b")))
			s.note(spoiltMoved, "a", "", "b")
			s.must(os.Rename(s.path("a"), s.path("b")))
			s.keep("b", "1", false)
			s.note(spoiltName, "b", "1", "")
			s.must(os.Remove(s.path("b")))
		}},
		{"removed, by a copy", map[string]string{"a": "old"}, func(s *spoiler) {
			s.keep("a", "1", false)
			s.note(spoiltName, "a", "1", "")
			s.must(os.Remove(s.path("a")))
		}},
		{"never done", map[string]string{"a": "old", "b": "other"}, func(s *spoiler) {
			s.keep("a", "1", true)
			s.note(spoiltName, "a", "1", "")
			s.note(spoiltMoved, "b", "", "a")
			s.keep("b", "2", false)
			s.note(spoiltContent, "b", "2", "")
			s.note(spoiltExchanged, "b", "", "a")
		}},
		{"exchanged", map[string]string{"a": "one", "b": "two"}, func(s *spoiler) {
			s.note(spoiltExchanged, "a", "", "b")
			s.must(unix.Renameat2(unix.AT_FDCWD, s.path("a"), unix.AT_FDCWD, s.path("b"), unix.RENAME_EXCHANGE))
			s.keep("a", "1", true)
			s.note(spoiltName, "a", "1", "")
			s.must(os.Remove(s.path("a")))
		}},
		{"replaced by what is new, again and again", map[string]string{"a": "old"}, func(s *spoiler) {
			s.keep("a", "1", true)
			s.note(spoiltName, "a", "1", "")
			s.put("t", "1")
			s.named("t", "a", time.Now())
			for _, version := range []string{"1", "2", "3"} {
				s.put("t", version)
				s.must(os.Rename(s.path("t"), s.path("a")))
			}
		}},
		{"a new name by what is new", map[string]string{}, func(s *spoiler) {
			since := time.Now()
			for _, version := range []string{"1", "2"} {
				s.put("t", version)
				if version == "1" {
					s.named("t", "a", since)
				}
				s.must(os.Rename(s.path("t"), s.path("a")))
			}
		}},
		{"a folder renamed, and what is in it changed", map[string]string{"d/": "", "d/a": "old"}, func(s *spoiler) {
			s.note(spoiltMoved, "d", "", "e")
			s.must(os.Rename(s.path("d"), s.path("e")))
			s.keep("e/a", "1", true)
			s.note(spoiltName, "e/a", "1", "")
			s.must(os.Remove(s.path("e/a")))
			s.put("e/new", "made since")
			s.b.Write(noted(s.t, s.path("e/new")))
			s.note(spoiltMoved, "e", "", "f")
			s.must(os.Rename(s.path("e"), s.path("f")))
		}},
		{"an empty folder", map[string]string{"d/": ""}, func(s *spoiler) {
			s.note(spoiltName, "d", "", "")
			s.must(os.Remove(s.path("d")))
			s.put("d", "a file")
		}},
		{"two names of one file", map[string]string{"a": "old"}, func(s *spoiler) {
			s.must(os.Link(s.path("a"), s.path("b")))
			s.b.Write(noted(s.t, s.path("b")))
			s.keep("a", "1", true)
			s.note(spoiltName, "a", "1", "")
			s.must(os.Remove(s.path("a")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for steps := 0; ; steps++ {
				s := newSpoiler(t)
				if _, is := c.was["d/"]; is {
					s.must(os.Mkdir(s.path("d"), 0o750))
				}
				for name, content := range c.was {
					if !strings.HasSuffix(name, "/") {
						s.put(name, content)
					}
				}
				was := s.is()
				c.do(s)
				// The first restart gets so far.
				all, err := ReadChanges(bytes.NewReader(s.b.Bytes()), 8)
				s.must(err)
				u := Undoing{Folder: s.kept, Log: &s.b, Epoch: 8, Moved: func(string) {}, Back: func(string) {}, Lost: func(err error) { t.Error(err) }}
				if steps > len(all.List) {
					break
				}
				s.must(u.Undo(all.List[len(all.List)-steps:]))
				if is, lost, err := s.undo(); err != nil || len(lost) > 0 || cmp.Diff(was, is) != "" {
					t.Errorf("after %d steps: %v, lost %q\n%s", steps, err, lost, cmp.Diff(was, is))
				}
			}
		})
	}
}

// named notes that what was made since is about to get a name.
func (s *spoiler) named(name, as string, since time.Time) {
	s.t.Helper()
	var st unix.Stat_t
	s.must(unix.Lstat(s.path(name), &st))
	s.must(noteIn(&s.b, &made{Ino: st.Ino, Known: spoiltNamed | madeThen}, &spoiltHead{Modified: since.UnixNano()}, s.path(as)))
}

// A symbolic link that is kept on another file system is made again as it was.
func TestUndoLink(t *testing.T) {
	s := newSpoiler(t)
	s.must(os.Symlink("there", s.path("link")))
	s.must(os.Symlink("there", filepath.Join(s.kept, "1")))
	s.note(spoiltName, "link", "1", "")
	s.must(os.Remove(s.path("link")))
	s.must(os.Symlink("elsewhere", s.path("link")))
	for range 2 {
		if is, lost, err := s.undo(); err != nil || len(lost) > 0 || is["link"] != "there" {
			t.Error(is, lost, err)
		}
	}
}

// What was not kept, or is damaged, is said, stays as it is, and keeps nothing else from being undone.
func TestUndoLost(t *testing.T) {
	s := newSpoiler(t)
	for _, name := range []string{"first", "large", "short", "vanished", "opened", "removed"} {
		s.put(name, "old")
	}
	for _, name := range []string{"first", "short", "vanished"} {
		s.keep(name, name, false)
		s.note(spoiltContent, name, name, "")
	}
	s.note(spoiltContent, "large", "", "")
	s.note(spoiltContent, "opened", "", "")
	s.note(spoiltName, "removed", "", "")
	s.must(os.Remove(s.path("removed")))
	for _, name := range []string{"first", "large", "short", "vanished"} {
		put(t, s.path(name), []byte("of another length"))
	}
	s.must(os.Truncate(filepath.Join(s.kept, "short"), 1))
	s.must(os.Remove(filepath.Join(s.kept, "vanished")))
	is, lost, err := s.undo()
	want := map[string]string{"first": "old", "large": "of another length", "short": "of another length", "vanished": "of another length", "opened": "old"}
	if d := cmp.Diff(want, is); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	if said := strings.Join(lost, "\n"); len(lost) != 4 || !strings.Contains(said, "--files-copy") || !strings.Contains(said, "has 1 bytes of 3") || !strings.Contains(said, "is gone") {
		t.Errorf("it says %s", said)
	}
}

// What could not be undone is by the next restart, when that can be done.
func TestUndoAgain(t *testing.T) {
	s := newSpoiler(t)
	s.put("a", "old")
	s.put("b", "old")
	for _, name := range []string{"b", "a"} {
		s.keep(name, name, true)
		s.note(spoiltName, name, name, "")
		s.must(os.Remove(s.path(name)))
	}
	s.put("a", "in the way")
	s.must(os.Mkdir(s.path("a.newer"), 0o700))
	if is, lost, err := s.undo(); err == nil || !strings.Contains(err.Error(), "a.newer") || is["b"] != "old" || len(lost) > 0 {
		t.Fatal(is, lost, err)
	}
	s.must(os.Remove(s.path("a.newer")))
	if is, lost, err := s.undo(); err != nil || is["a"] != "old" || is["b"] != "old" || len(lost) > 0 {
		t.Error(is, lost, err)
	}
}

// What somebody else wrote into a file after the job had ended is kept beside it.
func TestUndoOfOthers(t *testing.T) {
	s := newSpoiler(t)
	s.put("a", "old")
	s.keep("a", "1", false)
	s.note(spoiltContent, "a", "1", "")
	put(t, s.path("a"), []byte("edited"))
	all, err := ReadChanges(&s.b, 8)
	s.must(err)
	var others []string
	u := Undoing{Folder: s.kept, Log: io.Discard, Seen: time.Now().Add(-time.Hour), Others: func(p string) { others = append(others, p) }, Moved: func(string) {}, Back: func(string) {}, Lost: func(err error) { t.Error(err) }}
	s.must(u.Undo(all.List))
	if d := cmp.Diff([]string{s.path("a")}, others); d != "" {
		t.Error(d)
	}
	for name, want := range map[string]string{"a": "old", "a.newer": "edited"} {
		if b, err := os.ReadFile(s.path(name)); err != nil || string(b) != want {
			t.Errorf("%s has %q, %v", name, b, err)
		}
	}
}

// What a restart has undone is not undone again, and what it made anew is known to one that goes further back.
func TestReadChangesBack(t *testing.T) {
	s := newSpoiler(t)
	for _, name := range []string{"one", "two", "three"} {
		s.put(name, name)
	}
	const start = int64(8)
	at := func() int64 { return start + int64(s.b.Len()) }
	s.note(spoiltContent, "one", "1", "") // after the first epoch
	second := at()
	s.note(spoiltContent, "two", "2", "") // after the second, from which it is continued
	s.must(NoteBack(&s.b, second, second, map[Which]Which{{1, 2, 3}: {4, 5, 6}}))
	s.note(spoiltContent, "three", "3", "")
	read := func(place int64) (kept []string, behind bool) {
		t.Helper()
		all, err := ReadChanges(bytes.NewReader(s.b.Bytes()[place-start:]), place)
		s.must(err)
		if d := cmp.Diff(map[Which]Which{{1, 2, 3}: {4, 5, 6}}, all.Remade); d != "" {
			t.Error(d)
		}
		for _, c := range all.List {
			kept = append(kept, c.Kept)
		}
		return kept, all.Behind
	}
	first, _ := read(start)
	newest, behind := read(second)
	if d := cmp.Diff([][]string{{"1", "3"}, {"3"}}, [][]string{first, newest}); d != "" || behind {
		t.Error(d, behind)
	}
	s.must(NoteBack(&s.b, start, start, nil)) // and then from the first
	first, _ = read(start)
	if newest, behind = read(second); len(first) != 0 || !behind {
		t.Error(first, newest, behind)
	}
}

func TestPlan(t *testing.T) {
	change := func(kind uint32, at int64, paths ...string) Change {
		c := Change{Kind: kind, Ino: uint64(at), Born: 1, At: at, Path: paths[0]}
		if len(paths) > 1 {
			c.New = paths[1]
		}
		return c
	}
	mine := [][]Change{
		{change(spoiltMoved, 10, "/d", "/e"), {Path: "/x/new", At: 35}, {Path: "/own", At: 36}},
		{change(spoiltContent, 20, "/e/f"), change(spoiltName, 40, "/x/./new")},
		{change(spoiltContent, 30, "/else"), change(spoiltMoved, 50, "/x", "/y"), {Path: "/e/g", At: 60}},
	}
	var all [][]Change
	for r := range mine {
		all = append(all, Tell(mine[r], nil))
	}
	for r := range mine {
		others := append([][]Change{}, all...)
		others[r] = nil
		all[r] = append(all[r], Tell(mine[r], others)...)
	}
	p := NewPlan(all)
	got := map[string]int{}
	for r := range mine {
		for i := range mine[r] {
			if _, turn, told := p.Turn(r, i); told {
				got[filepath.Clean(mine[r][i].Path)+" "+string(rune('0'+r))] = turn
			}
		}
	}
	want := map[string]int{"/e/g 2": 0, "/x 2": 0, "/x/new 1": 1, "/x/new 0": 2, "/else 2": 0, "/e/f 1": 1, "/d 0": 2}
	if d := cmp.Diff(want, got); d != "" || p.N != 3 {
		t.Errorf("%d turns: %s", p.N, d)
	}
}

// Of what several processes kept of a file the oldest is put back, and what was appended before that is cut off.
func TestPlanContent(t *testing.T) {
	file := func(kind uint32, size, modified, at int64, kept string) Change {
		return Change{Kind: kind, Ino: 7, Born: 1, Size: size, Modified: modified, At: at, Path: "/a", Kept: kept}
	}
	p := NewPlan([][]Change{
		{file(spoiltContent, 50, 200, 6, "torn")},
		{file(spoiltGrows, 10, 100, 3, ""), {Kind: spoiltContent, Ino: 8, Path: "/b", Pos: 1}},
		{file(spoiltContent, 30, 200, 5, "good"), {Kind: spoiltContent, Ino: 8, Path: "/b", Pos: 1}},
	})
	c, turn, _ := p.Turn(2, 0)
	if _, torn, _ := p.Turn(0, 0); torn != -1 || turn < 0 || c.Size != 10 || c.Whole != 30 || c.Modified != 100 || !p.Knows(Which{Ino: 7, Nanos: 1}) || p.Knows(Which{Ino: 9}) {
		t.Errorf("%d, %d, %+v", torn, turn, c)
	}
	// Where the file system does not say when a file was made, each does what it knows.
	for r := 1; r < 3; r++ {
		if _, turn, _ := p.Turn(r, 1); turn < 0 {
			t.Errorf("rank %d does nothing about a file that may be its own", r)
		}
	}
}

func FuzzChanges(f *testing.F) {
	record := func(kind uint32, path string) []byte {
		var b bytes.Buffer
		m := made{Ino: 1, Seconds: 2, Known: kind, Length: uint32(spoiltBytes + len(path))}
		h := spoiltHead{Size: 3, Modified: 4, At: 5, Mode: 0o100644}
		for _, part := range []any{&m, &h, []byte(path)} {
			if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
				f.Fatal(err)
			}
		}
		return b.Bytes()
	}
	f.Add([]byte{}, int64(8))
	for kind := uint32(spoiltContent); kind <= spoiltAgain; kind += madeAppends {
		f.Add(append(record(kind, "/a\x00/b"), record(kind|madeThen, "/a")...), int64(8))
	}
	f.Fuzz(func(t *testing.T, log []byte, place int64) {
		all, err := ReadChanges(bytes.NewReader(log), place)
		if err == nil {
			if _, again := ReadAppended(bytes.NewReader(log), place); again != nil {
				t.Error(again)
			}
		}
		half := len(all.List) / 2
		told := [][]Change{Tell(all.List[:half], nil), Tell(all.List[half:], nil)}
		for i, mine := range [][]Change{all.List[:half], all.List[half:]} {
			others := [][]Change{told[0], told[1]}
			others[i] = nil
			told[i] = append(told[i], Tell(mine, others)...)
		}
		p := NewPlan(told)
		for r, mine := range [][]Change{all.List[:half], all.List[half:]} {
			last := 0
			for i := len(mine) - 1; i >= 0; i-- {
				if !filepath.IsAbs(mine[i].Path) {
					t.Errorf("%+v", mine[i])
				}
				_, turn, is := p.Turn(r, i)
				if !is && mine[i].old() || is && (turn >= p.N || turn >= 0 && turn < last) {
					t.Errorf("change %d of %d has turn %d of %d, %v; the one after it has %d", i, len(mine), turn, p.N, is, last)
				}
				last = max(last, turn)
			}
		}
	})
}
