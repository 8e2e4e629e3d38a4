// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// noted is the record of what has the name now.
func noted(t *testing.T, path string) []byte {
	t.Helper()
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		t.Fatal(err)
	}
	m := made{Ino: st.Ino, Seconds: st.Btime.Sec, Nanos: st.Btime.Nsec, Length: uint32(len(path))}
	if st.Mask&unix.STATX_BTIME != 0 {
		m.Known = madeThen
	}
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, &m); err != nil {
		t.Fatal(err)
	}
	return append(b.Bytes(), path...)
}

// moveAside undoes what a log says, and returns what got another name.
func moveAside(t *testing.T, log []byte) (moved []string, problems []string) {
	t.Helper()
	all, err := ReadChanges(bytes.NewReader(log), 0)
	if all.More || all.Behind {
		t.Errorf("%+v", all)
	}
	u := Undoing{Moved: func(p string) { moved = append(moved, p) }, Back: func(p string) { t.Error(p) }, Lost: func(err error) { problems = append(problems, err.Error()) }}
	for _, err := range []error{u.Undo(all.List), err} {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	return moved, problems
}

func TestMoveAside(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	var log []byte
	var want []string
	note := func(name string) {
		log = append(log, noted(t, at(name))...)
		want = append(want, at(name))
	}
	put(t, at("file"), []byte("new"))
	put(t, at("file.newer"), []byte("of the last time"))
	note("file")
	for _, name := range []string{"folder", "folder.newer", "folder.newer/full"} {
		if err := os.Mkdir(at(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	note("folder")
	put(t, at("folder/in"), []byte("moved with it"))
	log = append(log, noted(t, at("folder/in"))...)
	if err := os.Symlink("nowhere", at("link")); err != nil {
		t.Fatal(err)
	}
	note("link")
	for _, name := range []string{"gone", "other", "gone/within"} {
		if name == "gone/within" {
			name = "was"
		}
		put(t, at(name), nil)
		log = append(log, noted(t, at(name))...)
	}
	if err := os.Remove(at("gone")); err != nil {
		t.Fatal(err)
	}
	put(t, at("others"), []byte("somebody's"))
	if err := os.Rename(at("others"), at("other")); err != nil {
		t.Fatal(err)
	}
	// Another name of a file that was there before, and that had been moved once.
	put(t, at("before"), []byte("kept"))
	for _, name := range []string{"hard", "hard.newer"} {
		if err := os.Link(at("before"), at(name)); err != nil {
			t.Fatal(err)
		}
	}
	log = append(log, noted(t, at("hard"))...)
	inMemory, err := os.CreateTemp("/dev/shm", "libckpt-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer inMemory.Close()
	defer os.Remove(inMemory.Name())
	log = append(log, noted(t, inMemory.Name())...)
	want = append(want, at("was"), at("hard"), inMemory.Name())
	got, problems := moveAside(t, append(log, noted(t, at("other"))[:20]...)) // it was killed while it wrote
	if d := cmp.Diff(want, got); d != "" || len(problems) > 0 {
		t.Errorf("%s%v", d, problems)
	}
	left := map[string]string{}
	for _, name := range []string{"file", "file.newer", "folder", "folder.newer2/in", "link", "other", "was.newer", "before", "hard", "hard.newer"} {
		if b, err := os.ReadFile(at(name)); err == nil {
			left[name] = string(b)
		}
	}
	if d := cmp.Diff(map[string]string{"file.newer": "new", "folder.newer2/in": "moved with it", "other": "somebody's", "was.newer": "", "before": "kept", "hard.newer": "kept"}, left); d != "" {
		t.Error(d)
	}
	if _, err := os.Lstat(at("link.newer")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(inMemory.Name()); err == nil {
		t.Error("what is in memory was not removed")
	}
	// Again: nothing is there.
	if got, problems := moveAside(t, log); len(got) > 0 || len(problems) > 0 {
		t.Error(got, problems)
	}
}

// What cannot be moved is said, and ends nothing.
func TestMoveAsideProblems(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "file"), nil)
	if err := os.Mkdir(filepath.Join(dir, "file.newer"), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "next"), nil)
	log := append(noted(t, filepath.Join(dir, "file")), noted(t, filepath.Join(dir, "next"))...)
	moved, problems := moveAside(t, append(log, make([]byte, 32)...))
	if len(moved) != 1 || len(problems) != 2 || !strings.Contains(problems[0], "file.newer") || !strings.Contains(problems[1], "damaged") {
		t.Error(moved, problems)
	}
}

// What a thread did not come to the end of may be there; what it could not do is not, unless others have done it.
func TestMoveAsideBegun(t *testing.T) {
	dir := t.TempDir()
	begins := func(thread uint32, name string, at time.Time) []byte {
		path := filepath.Join(dir, name)
		m := made{Seconds: at.Unix(), Nanos: uint32(at.Nanosecond()), Known: madeBegins, Length: uint32(len(path)), Thread: thread}
		var b bytes.Buffer
		if err := binary.Write(&b, binary.LittleEndian, &m); err != nil {
			t.Fatal(err)
		}
		return append(b.Bytes(), path...)
	}
	now := time.Now()
	var log []byte
	for i, name := range []string{"failed", "killed", "never", "elder"} {
		at := now
		if name == "elder" { // it was there before
			at = now.Add(time.Hour)
		}
		if name != "never" {
			put(t, filepath.Join(dir, name), nil)
		}
		log = append(log, begins(uint32(max(i, 1)), name, at)...) // the first thread went on
	}
	moved, problems := moveAside(t, log)
	if d := cmp.Diff([]string{filepath.Join(dir, "killed")}, moved); d != "" || len(problems) > 0 {
		t.Error(d, problems)
	}
}

func FuzzMade(f *testing.F) {
	f.Add([]byte{})
	f.Add(append([]byte{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0}, "/none/there"...))
	d := &diary{}
	d.put(madeAppends, Which{1, 2, 3}, 10, "/a")
	d.put(madeCloses, Which{1, 2, 3}, 20, "")
	d.put(madeCut, Which{1, 2, 3}, 10, "/a")
	f.Add(d.b.Bytes())
	f.Fuzz(func(t *testing.T, log []byte) {
		n := 0
		err := eachMade(bytes.NewReader(log), func(m *made, payload string) {
			n += binary.Size(m) + len(payload)
			path := payload
			if m.spoilt() {
				path = payload[spoiltBytes:]
			}
			if m.sized() {
				_, path = m.size(payload)
			}
			if len(payload) != int(m.Length) || !filepath.IsAbs(path) && (!m.sized() || path != "") {
				t.Errorf("%+v %q", m, payload)
			}
		})
		list, again := ReadAppended(bytes.NewReader(log), 8)
		if (again == nil) != (err == nil) {
			t.Errorf("%v, and %v", err, again)
		}
		for _, a := range list {
			for _, s := range a.Spans {
				if s.From < 0 || s.To < s.From || a.Base < 0 || s.From < a.Base {
					t.Errorf("%+v", a)
				}
			}
		}
		if n > len(log) || err == nil && len(log)-n > binary.Size(made{})+spoiltBytes+2*unix.PathMax {
			t.Errorf("%d of %d bytes, %v", n, len(log), err)
		}
	})
}
