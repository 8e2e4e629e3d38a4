// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// diary writes a log as C does.
type diary struct{ b bytes.Buffer }

func (d *diary) put(kind uint32, file Which, size int64, path string) {
	if kind == spoiltBack {
		if err := NoteThrough(&d.b, size); err != nil {
			panic(err)
		}
		return
	}
	m := made{Ino: file.Ino, Seconds: file.Seconds, Nanos: file.Nanos, Known: kind | madeThen, Length: uint32(8 + len(path))}
	for _, part := range []any{&m, size, []byte(path)} {
		if err := binary.Write(&d.b, binary.LittleEndian, part); err != nil {
			panic(err) // of what has no size
		}
	}
}

func readDiary(t *testing.T, d *diary) []Appended {
	t.Helper()
	list, err := ReadAppended(&d.b, 8)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestReadAppended(t *testing.T) {
	one, two := Which{1, 100, 5}, Which{2, 100, 6}
	type record struct {
		kind uint32
		file Which
		size int64
		path string
	}
	for _, c := range []struct {
		name string
		log  []record
		want []Appended
	}{
		{"nothing", nil, nil},
		{"closed each time", []record{{madeAppends, one, 10, "/a"}, {madeCloses, one, 20, ""}, {madeAppends, one, 20, ""}, {madeCloses, one, 35, ""}},
			[]Appended{{Path: "/a", File: one, Base: 10, Spans: []Span{{10, 35}}}}},
		{"undone since", []record{{madeAppends, one, 10, "/a"}, {madeCloses, one, 20, ""}, {spoiltBack, one, 8, ""}, {madeAppends, one, 10, "/a"}},
			[]Appended{{Path: "/a", File: one, Base: 10, Spans: []Span{{10, noEnd}}}}},
		{"open at the end", []record{{madeAppends, one, 10, "/a"}, {madeCloses, one, 20, ""}, {madeAppends, one, 20, ""}},
			[]Appended{{Path: "/a", File: one, Base: 10, Spans: []Span{{10, 20}, {20, noEnd}}}}},
		{"others between", []record{{madeAppends, one, 10, "/a"}, {madeCloses, one, 20, ""}, {madeAppends, one, 25, ""}, {madeCloses, one, 30, ""}},
			[]Appended{{Path: "/a", File: one, Base: 10, Spans: []Span{{10, 20}, {25, 30}}}}},
		{"two of one description", []record{{madeAppends, one, 10, "/a"}, {madeCloses, one, 10, ""}, {madeCloses, one, 20, ""}},
			[]Appended{{Path: "/a", File: one, Base: 10, Spans: []Span{{10, 20}}}}},
		{"cut by a restart", []record{{madeAppends, one, 10, "/a"}, {madeCloses, one, 40, ""}, {madeCut, one, 10, "/a"}, {madeAppends, one, 10, "/a"}, {madeCloses, one, 20, ""}},
			[]Appended{{Path: "/a", File: one, Base: 10, Spans: []Span{{10, 20}}}}},
		{"killed while it was open, and cut", []record{{madeAppends, one, 10, "/a"}, {madeCut, one, 10, "/a"}},
			[]Appended{{Path: "/a", File: one, Base: 10, Spans: []Span{}}}},
		{"cut by somebody", []record{{madeAppends, one, 10, "/a"}, {madeCloses, one, 40, ""}, {madeAppends, one, 5, ""}, {madeCloses, one, 7, ""}},
			[]Appended{{Path: "/a", File: one, Base: 5, Spans: []Span{{5, 7}}}}},
		{"one of two is closed", []record{{madeAppends, one, 10, "/a"}, {madeAppends, one, 15, ""}, {madeCloses, one, 20, ""}},
			[]Appended{{Path: "/a", File: one, Base: 10, Spans: []Span{{10, 20}, {20, noEnd}}}}},
		{"both are closed", []record{{madeAppends, one, 10, "/a"}, {madeAppends, one, 15, ""}, {madeCloses, one, 20, ""}, {madeCloses, one, 30, ""}},
			[]Appended{{Path: "/a", File: one, Base: 10, Spans: []Span{{10, 30}}}}},
		{"cut by somebody while it was open", []record{{madeAppends, one, 10, "/a"}, {madeCloses, one, 5, ""}, {madeAppends, one, 5, ""}, {madeCloses, one, 7, ""}},
			[]Appended{{Path: "/a", File: one, Base: 5, Spans: []Span{{5, 7}}}}},
		{"written anywhere", []record{{madeAppends, one, 10, "/a"}, {madeCloses, one, 20, ""}, {madeWrites, one, 20, "/a"}},
			[]Appended{{Path: "/a", File: one, Base: 10, Spans: []Span{{10, 20}}, Unsure: true}}},
		{"written anywhere, first", []record{{madeWrites, one, 20, "/a"}, {madeAppends, one, 20, "/a"}, {madeCloses, one, 30, ""}},
			[]Appended{{Path: "/a", File: one, Base: 20, Spans: []Span{{20, 30}}, Unsure: true}}},
		{"open before", []record{{madeCloses, one, 20, "/a"}}, nil},
		{"too much", []record{{madeAppends, one, 10, "/a"}, {madeCloses, one, 20, ""}, {madeLost, two, 0, ""}},
			[]Appended{{Path: "/a", File: one, Base: 10, Spans: []Span{{10, 20}}, Unsure: true}}},
		{"two files", []record{{madeAppends, one, 10, "/a"}, {madeAppends, two, 0, "/b"}, {madeCloses, one, 20, ""}, {madeCloses, two, 7, ""}},
			[]Appended{{Path: "/a", File: one, Base: 10, Spans: []Span{{10, 20}}}, {Path: "/b", File: two, Base: 0, Spans: []Span{{0, 7}}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &diary{}
			for _, r := range c.log {
				d.put(r.kind, r.file, r.size, r.path)
			}
			if diff := cmp.Diff(c.want, readDiary(t, d)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Several processes append to one file: together they know all of it.
func TestJoinAppended(t *testing.T) {
	one, two := Which{1, 100, 5}, Which{2, 100, 6}
	list, first := JoinAppended([][]Appended{
		nil,
		{{Path: "/a", File: one, Base: 10, Spans: []Span{{30, 40}, {10, 20}}}},
		{{Path: "/b", File: two, Base: 3, Spans: []Span{{5, noEnd}, {3, noEnd}}}, {Path: "/a", File: one, Base: 20, Spans: []Span{{20, 30}}}},
		{{Path: "/c", File: one, Base: 5, Unsure: true}},
	})
	want := []Appended{
		{Path: "/a", File: one, Base: 10, Spans: []Span{{10, 40}}},
		{Path: "/b", File: two, Base: 3, Spans: []Span{{3, noEnd}}},
		{Path: "/c", File: one, Base: 5, Unsure: true},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{1, 2, 3}, first); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
}

func TestCutAppended(t *testing.T) {
	dir := t.TempDir()
	var seen time.Time
	for _, c := range []struct {
		name   string
		change func(a *Appended)
		want   string
		others bool
	}{
		{"ours", func(*Appended) {}, "0123456789", false},
		{"open at the end", func(a *Appended) { a.Spans = []Span{{10, noEnd}} }, "0123456789", false},
		{"open at the end of what is known", func(a *Appended) { a.Spans = []Span{{10, 12}, {12, noEnd}} }, "0123456789", false},
		{"open behind what others wrote", func(a *Appended) { a.Spans = []Span{{10, 12}, {13, noEnd}} }, "0123456789abcdefghij", true},
		{"written after it was killed", func(a *Appended) { a.Spans, seen = []Span{{10, noEnd}}, time.Now().Add(-lastWrite-time.Second) }, "0123456789abcdefghij", true},
		{"nobody knows when it was killed", func(a *Appended) { a.Spans, seen = []Span{{10, noEnd}}, time.Time{} }, "0123456789abcdefghij", true},
		{"open at the end, and nothing written", func(a *Appended) { a.Spans, seen = []Span{{10, 20}, {20, noEnd}}, time.Time{} }, "0123456789", false},
		{"shorter than it was", func(a *Appended) { a.Base, a.Spans = 50, []Span{{50, 60}} }, "0123456789abcdefghij", false},
		{"others behind", func(a *Appended) { a.Spans = []Span{{10, 19}} }, "0123456789abcdefghij", true},
		{"others between", func(a *Appended) { a.Spans = []Span{{10, 12}, {13, 20}} }, "0123456789abcdefghij", true},
		{"in other ways, too", func(a *Appended) { a.Unsure = true }, "0123456789abcdefghij", true},
		{"only in other ways", func(a *Appended) { a.Unsure, a.Spans = true, nil }, "0123456789abcdefghij", false},
		{"another file", func(a *Appended) { a.File.Ino++ }, "0123456789abcdefghij", false},
		{"another file of that number", func(a *Appended) { a.File.Seconds++ }, "0123456789abcdefghij", false},
		{"gone", func(a *Appended) { a.Path += "-" }, "0123456789abcdefghij", false},
		{"a link", func(a *Appended) {
			if err := os.Symlink(a.Path, a.Path+"-link"); err != nil {
				t.Fatal(err)
			}
			a.Path += "-link"
		}, "0123456789abcdefghij", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, "file")
			put(t, path, []byte("0123456789abcdefghij"))
			var st unix.Statx_t
			if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
				t.Fatal(err)
			}
			a := Appended{Path: path, File: Which{Ino: st.Ino}, Base: 10, Spans: []Span{{10, 20}}}
			if st.Mask&unix.STATX_BTIME != 0 {
				a.File.Seconds, a.File.Nanos = st.Btime.Sec, st.Btime.Nsec
			}
			seen = time.Now()
			c.change(&a)
			n, err := a.Cut(seen, nil)
			if errors.Is(err, ErrOthers) != c.others || err != nil && !c.others {
				t.Errorf("it says %v", err)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != c.want || n != int64(20-len(c.want)) {
				t.Errorf("%d bytes removed, left %q, %v", n, got, err)
			}
			// The log says what became of it.
			for _, cut := range []bool{true, false} {
				d := &diary{}
				d.put(madeAppends, a.File, a.Base, path)
				if err := a.Note(&d.b, cut); err != nil {
					t.Fatal(err)
				}
				if list := readDiary(t, d); len(list) != 1 || cut && len(list[0].Spans) != 0 || list[0].Unsure == cut {
					t.Errorf("cut %v: the log says %+v", cut, list)
				}
			}
		})
	}
}

// A file that was only read at the checkpoint and has grown since is right if the job has appended to it, before that is cut off, and has
// its time again after that.
func TestGrownSince(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("before\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	then := time.Unix(1e9, 5)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	none := [3]int{-1, -1, -1}
	table, obstacles, err := Capture([]int{int(f.Fd())}, none)
	if err != nil || len(obstacles) > 0 {
		t.Fatal(err, obstacles)
	}
	ino := table.Files[0].Inode.Ino
	if err := os.WriteFile(path, []byte("before\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		grown func(uint64, int64) bool
		good  bool
	}{
		{"nobody knows", nil, false},
		{"by others", func(uint64, int64) bool { return false }, false},
		{"by the job", func(i uint64, size int64) bool { return i == ino && size == 7 }, true},
	} {
		var changed *ChangedError
		if err := Prepare(table, Options{Inherited: none, Grown: c.grown}); (err == nil) != c.good || err != nil && !errors.As(err, &changed) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := table.Restamp(ino); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(path); err != nil || st.ModTime().Equal(then) {
		t.Errorf("%v: a file that is longer has its time of before", err)
	}
	if err := os.Truncate(path, 7); err != nil {
		t.Fatal(err)
	}
	if err := table.Restamp(ino); err != nil {
		t.Error(err)
	}
	if err := Prepare(table, Options{Inherited: none}); err != nil {
		t.Error(err)
	}
}
