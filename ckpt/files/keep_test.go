// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// noise is content without zeros, different at every place.
func noise(n int, seed byte) []byte {
	b := make([]byte, n)
	x := uint32(seed) + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x>>24) | 1
	}
	return b
}

func put(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o640); err != nil {
		t.Fatal(err)
	}
}

// epoch captures the application's files as a checkpoint of a job of one process does.
func (a *app) epoch(o *KeepOptions) Table {
	a.t.Helper()
	table := a.capture()
	h, err := Hold(&table, nil, a.fds)
	if err != nil {
		a.t.Fatal(err)
	}
	defer h.Done()
	if err := h.Sample(&table); err != nil {
		a.t.Fatal(err)
	}
	table.Elect(0, [][]string{table.Shared()})
	if o != nil {
		if err := h.Keep(&table, *o); err != nil {
			a.t.Fatal(err)
		}
	}
	b, err := table.Encode()
	if err != nil {
		a.t.Fatal(err)
	}
	if _, err := h.Sync(); err != nil {
		a.t.Fatal(err)
	}
	if table, err = Decode(b); err != nil {
		a.t.Fatal(err)
	}
	return table
}

// TestLostContentIsNoticed: a file that was being written has its size, but not what was in it.
func TestLostContentIsNoticed(t *testing.T) {
	for _, size := range []int{1, 4096, 100_000, wholeBytes, wholeBytes + 1, 5<<20 + 77} {
		content := noise(size, 1)
		for name, spoil := range map[string]func(b []byte){
			"all zeros":   func(b []byte) { clear(b) },
			"end":         func(b []byte) { clear(b[size-min(size, 4000):]) },
			"begin":       func(b []byte) { clear(b[:min(size, 4096)]) },
			"second half": func(b []byte) { clear(b[size/2:]) },
			"another file": func(b []byte) {
				for i := range b {
					b[i] ^= 0x55
				}
			},
			"last bit": func(b []byte) { b[size-1] ^= 1 },
		} {
			for _, flags := range []int{unix.O_WRONLY, unix.O_RDWR} {
				path := filepath.Join(t.TempDir(), "out")
				put(t, path, content)
				a := newApp(t)
				a.open(path, flags)
				table := a.epoch(nil)
				if err := a.restart(table, Options{}); err != nil {
					t.Fatalf("%d bytes, unchanged: %v", size, err)
				}
				put(t, path, append(slices.Clone(content), "and more"...))
				if err := Restore(table, Options{}); err != nil {
					t.Fatalf("%d bytes, appended to: %v", size, err)
				}
				if st, err := os.Stat(path); err != nil || st.Size() != int64(size) {
					t.Fatalf("%d bytes: not cut back: %v, %v", size, st.Size(), err)
				}
				now := slices.Clone(content)
				spoil(now)
				put(t, path, now)
				var changed *ChangedError
				err := Restore(table, Options{})
				if !errors.As(err, &changed) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "--files ignore") {
					t.Fatalf("%d bytes, %s: %v", size, name, err)
				}
				if name == "all zeros" && !strings.Contains(err.Error(), "nothing but zeros") {
					t.Errorf("%d bytes: the message does not tell of zeros: %v", size, err)
				}
				if err := Restore(table, Options{IgnoreChanged: true}); err != nil {
					t.Errorf("%d bytes, %s, ignored: %v", size, name, err)
				}
				if err := Restore(table, Options{Keep: true}); err != nil {
					t.Errorf("%d bytes, %s, kept: %v", size, name, err)
				}
			}
		}
	}
}

// TestReadingIsNotSeen: what is read of a file for the epoch is not an access of the program's.
func TestReadingIsNotSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	put(t, path, noise(100_000, 1))
	a := newApp(t)
	a.open(path, unix.O_RDWR)
	long := unix.NsecToTimespec(time.Now().Add(-48 * time.Hour).UnixNano()) // with relatime, too, the next access shows
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{long, {Nsec: unix.UTIME_OMIT}}, 0); err != nil {
		t.Fatal(err)
	}
	a.epoch(&KeepOptions{Dir: t.TempDir(), Prefix: "rank", Copy: 1 << 20})
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Atim != long {
		t.Errorf("last read at %v, not %v: %v", st.Atim, long, err)
	}
}

// fates are what may become of a file that was being written. moved is where its content went, if it was
// saved from harm by that.
var fates = []struct {
	name string
	do   func(path string) error
	over bool // its content is gone, under all names
}{
	{"nothing", func(string) error { return nil }, false},
	{"appended to", func(p string) error {
		return edit(p, func(f *os.File) error { _, err := f.WriteAt([]byte("more"), 300_000); return err })
	}, false},
	{"deleted", os.Remove, false},
	{"folder removed", func(p string) error { return os.RemoveAll(filepath.Dir(p)) }, false},
	{"renamed", func(p string) error { return os.Rename(p, p+".old") }, false},
	{"replaced", func(p string) error {
		if err := os.WriteFile(p+".tmp", []byte("another"), 0o600); err != nil {
			return err
		}
		return os.Rename(p+".tmp", p)
	}, false},
	{"deleted, made again", func(p string) error {
		if err := os.Remove(p); err != nil {
			return err
		}
		return os.WriteFile(p, []byte("another"), 0o600)
	}, false},
	{"written over", func(p string) error {
		return edit(p, func(f *os.File) error { _, err := f.WriteAt(make([]byte, 9000), 60_000); return err })
	}, true},
	{"emptied", func(p string) error { return os.Truncate(p, 0) }, true},
}

func edit(path string, change func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(change(f), f.Close())
}

func TestKeptFilesComeBack(t *testing.T) {
	content := noise(200_000, 3)
	clear(content[70_000:140_000]) // a block of zeros is not stored
	for _, how := range []string{KeepCopy, KeepLink} {
		for _, fate := range fates {
			t.Run(how+" "+fate.name, func(t *testing.T) {
				path, epoch := filepath.Join(t.TempDir(), "sub", "scratch"), t.TempDir()
				if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				put(t, path, content)
				a := newApp(t)
				fd := a.open(path, unix.O_RDWR)
				if _, err := unix.Seek(fd, 1234, unix.SEEK_SET); err != nil {
					t.Fatal(err)
				}
				o := KeepOptions{Dir: epoch, Prefix: "rank-00000"}
				if how == KeepCopy {
					o.Copy = int64(len(content))
				}
				table := a.epoch(&o)
				if len(table.Kept) != 1 || table.Kept[0].How != how {
					t.Fatalf("kept as %+v", table.Kept)
				}
				if err := fate.do(path); err != nil {
					t.Fatal(err)
				}
				a.closeAll()
				options := Options{Snapshot: true, Epoch: epoch}
				for range 2 { // a restart that is interrupted is made again
					before, _ := os.ReadFile(path)
					err := Prepare(table, options)
					after, _ := os.ReadFile(path)
					if !bytes.Equal(before, after) {
						t.Fatal("looking changed the file")
					}
					var changed *ChangedError
					if how == KeepLink && fate.over {
						if !errors.As(err, &changed) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "written over") || !strings.Contains(err.Error(), "--files-copy") {
							t.Fatalf("content that is gone: %v", err)
						}
						if n, err := CheckKept(table, epoch); n != 1 || err == nil {
							t.Fatalf("%d, %v", n, err)
						}
						var lost *LostError
						if err := FindKept(table, options); !errors.As(err, &lost) || lost.Of != path || filepath.Dir(lost.File) != epoch {
							t.Fatalf("what is kept is lost: %v", err)
						}
						if err := FindKept(table, Options{Epoch: epoch}); err != nil {
							t.Fatalf("nothing is put back: %v", err)
						}
						options.IgnoreChanged = true
						if err := errors.Join(FindKept(table, options), Prepare(table, options), PutBack(table, options)); err != nil {
							t.Fatal(err)
						}
						return
					}
					if err := errors.Join(err, FindKept(table, options)); err != nil {
						t.Fatal(err)
					}
					if err := PutBack(table, options); err != nil {
						t.Fatal(err)
					}
				}
				if err := Restore(table, options); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(path)
				if err != nil || !bytes.Equal(got, content) {
					t.Fatalf("%d bytes, not what they were: %v", len(got), err)
				}
				if at, err := unix.Seek(fd, 0, unix.SEEK_CUR); at != 1234 || err != nil {
					t.Errorf("offset %d, %v", at, err)
				}
				if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
					t.Errorf("mode %v, %v", st.Mode(), err)
				}
				if old, err := os.ReadFile(path + ".old"); err == nil && !bytes.Equal(old, content) {
					t.Error("the file under its new name was changed")
				} else if fate.name == "renamed" && err != nil {
					t.Error(err)
				}
				newer, err := os.ReadFile(path + newerSuffix)
				if made := fate.name == "replaced" || fate.name == "deleted, made again"; made && string(newer) != "another" {
					t.Errorf("what had the name is %q, %v", newer, err)
				} else if !made && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("there is a newer file: %q, %v", newer, err)
				}
				if how == KeepLink {
					if n, err := CheckKept(table, epoch); n != 1 || err != nil {
						t.Errorf("%d, %v", n, err)
					}
				}
			})
		}
	}
}

// TestKeepSmallOnesFirst: what may be copied in all goes to many small files rather than to one.
func TestKeepSmallOnesFirst(t *testing.T) {
	dir, epoch := t.TempDir(), t.TempDir()
	a := newApp(t)
	for name, size := range map[string]int{"big": 9000, "small": 100, "middle": 2000, "input": 50} {
		put(t, filepath.Join(dir, name), noise(size, 4))
		flags := unix.O_RDWR
		if name == "input" {
			flags = unix.O_RDONLY
		}
		a.open(filepath.Join(dir, name), flags)
	}
	table := a.epoch(&KeepOptions{Dir: epoch, Prefix: "rank-00000", Copy: 2100})
	got := map[string]string{}
	for _, k := range table.Kept {
		got[filepath.Base(string(k.Path))] = k.How
	}
	if len(got) != 3 || got["small"] != KeepCopy || got["middle"] != KeepCopy || got["big"] != KeepLink {
		t.Fatal(got)
	}
	if list, err := os.ReadDir(epoch); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
}

// TestElect: of processes that have one file open, the first one that writes keeps it; a file of the same
// name that is another one is kept by its own process.
func TestElect(t *testing.T) {
	dir := t.TempDir()
	shared, local := filepath.Join(dir, "shared"), filepath.Join(dir, "local")
	put(t, shared, noise(10, 1))
	var tables []Table
	var lists [][]string
	for i, flags := range []int{unix.O_RDONLY, unix.O_RDWR, unix.O_WRONLY} {
		_ = os.Remove(local) // each has its own
		put(t, local, noise(20+i, 1))
		a := newApp(t)
		a.open(shared, flags)
		a.open(local, unix.O_RDWR)
		tables = append(tables, a.capture())
		lists = append(lists, tables[i].Shared())
	}
	key := Key(shared)
	put(t, shared, noise(30, 1)) // the first process goes on while others still ask
	one := 1
	for i := range tables {
		if several, written := tables[i].Elect(i, lists); !several || !written(key) || written(Key(dir)) || written("") {
			t.Error("several write to a file, and nobody noticed")
		}
		f := tables[i].Files[0]
		if string(f.Path) != shared {
			t.Fatal(f.Path)
		}
		if !f.Written || (f.KeptBy == nil) != (i == one) || f.KeptBy != nil && *f.KeptBy != one {
			t.Errorf("process %d: %+v", i, f)
		}
		if f = tables[i].Files[1]; !f.Written || f.KeptBy != nil {
			t.Errorf("process %d: %+v", i, f)
		}
	}
	if several, _ := tables[0].Elect(0, [][]string{lists[0], lists[0][:1]}); several {
		t.Error("one process writes, and is taken for several")
	}
}

// TestHeldTakesNoLocks: closing any descriptor of a file takes the process's POSIX locks on it away.
func TestHeldTakesNoLocks(t *testing.T) {
	for _, flags := range []int{unix.O_WRONLY, unix.O_RDWR} {
		path := filepath.Join(t.TempDir(), "locked")
		put(t, path, noise(1000, 5))
		a := newApp(t)
		fd := a.open(path, flags)
		lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 10}
		if err := unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &lock); err != nil {
			t.Fatal(err)
		}
		a.epoch(&KeepOptions{Dir: t.TempDir(), Prefix: "rank-00000", Copy: 1000})
		var info fdinfo
		info, err := readFdinfo(fd)
		if err != nil || len(info.locks) != 1 {
			t.Errorf("flags %d: locks %v, %v", flags, info.locks, err)
		}
	}
}

// TestHeldHoldsNothingElse: the end of a pipe that the application closes is closed.
func TestHeldHoldsNothingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	put(t, path, noise(10, 1))
	a := newApp(t)
	a.open(path, unix.O_RDWR)
	r, w := a.pipe(unix.O_NONBLOCK)
	if _, err := unix.Write(w, []byte("x")); err != nil {
		t.Fatal(err)
	}
	table := a.capture()
	h, err := Hold(&table, nil, a.fds)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Done()
	unix.Close(w)
	a.fds = slices.DeleteFunc(a.fds, func(fd int) bool { return fd == w })
	if n, err := unix.Read(r, make([]byte, 2)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := unix.Read(r, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("the pipe has not ended: %d, %v", n, err)
	}
	// And what it holds can be synced when the application has closed and deleted it.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Sync(); err != nil {
		t.Error(err)
	}
}
