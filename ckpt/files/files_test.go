// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// app plays the application: descriptors at low numbers of this process, away from those of the
// test's own runtime.
type app struct {
	t         *testing.T
	fds       []int
	inherited [3]int
}

func newApp(t *testing.T) *app {
	a := &app{t: t, inherited: [3]int{-1, -1, -1}}
	t.Cleanup(a.closeAll)
	return a
}

func (a *app) closeAll() {
	for _, fd := range a.fds {
		unix.Close(fd)
	}
}

// add moves fd to an application's number and returns that.
func (a *app) add(fd int, err error) int {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
	how := unix.F_DUPFD
	if flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC != 0 {
		how = unix.F_DUPFD_CLOEXEC
	}
	low, err := unix.FcntlInt(uintptr(fd), how, 100)
	if err != nil {
		a.t.Fatal(err)
	}
	unix.Close(fd)
	a.fds = append(a.fds, low)
	return low
}

func (a *app) dup(fd int) int {
	a.t.Helper()
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 100)
	return a.keep(n, err)
}

func (a *app) keep(fd int, err error) int {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
	a.fds = append(a.fds, fd)
	return fd
}

func (a *app) open(path string, flags int) int {
	a.t.Helper()
	return a.add(unix.Open(path, flags|unix.O_CLOEXEC, 0o644))
}

func (a *app) pipe(flags int) (r, w int) {
	a.t.Helper()
	var p [2]int
	err := unix.Pipe2(p[:], flags)
	return a.add(p[0], err), a.add(p[1], err)
}

// give makes fd the launcher's descriptor k, shared with application number n.
func (a *app) give(k, fd int) {
	a.t.Helper()
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, MaxNumber+1)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { unix.Close(high) })
	a.inherited[k] = high
}

func (a *app) capture() Table {
	a.t.Helper()
	table, obstacles, err := Capture(a.fds, a.inherited)
	if err != nil {
		a.t.Fatal(err)
	}
	if len(obstacles) > 0 {
		a.t.Fatalf("obstacles: %v", obstacles)
	}
	// Every table goes through its encoded form, as in an image.
	b, err := table.Encode()
	if err != nil {
		a.t.Fatal(err)
	}
	decoded, err := Decode(b)
	if err != nil {
		a.t.Fatal(err)
	}
	if diff := cmp.Diff(table, decoded, cmp.AllowUnexported(Pipe{}, Extent{}), cmp.Comparer(bytes.Equal), cmpopts.EquateEmpty()); diff != "" {
		a.t.Fatalf("encode and decode (-was +is):\n%s", diff)
	}
	return decoded
}

// restart closes everything, as the end of the process does, and restores.
func (a *app) restart(table Table, o Options) error {
	a.t.Helper()
	for _, fd := range a.fds {
		unix.Close(fd)
	}
	if o.Inherited == [3]int{} {
		o.Inherited = a.inherited
	}
	return Restore(table, o)
}

func (a *app) mustRestart(table Table) {
	a.t.Helper()
	if err := a.restart(table, Options{}); err != nil {
		a.t.Fatal(err)
	}
	// What was restored must look to a second checkpoint as it did to the first.
	again := a.capture()
	unnamed := cmp.FilterPath(func(p cmp.Path) bool { // the kernel calls an unnamed file by its inode
		return strings.HasSuffix(p.String(), "Path") || strings.HasSuffix(p.String(), "Name")
	}, cmp.Comparer(func(a, b Path) bool { return a == b || strings.Contains(string(a)+string(b), "#") }))
	if diff := cmp.Diff(table, again, unnamed, cmpopts.IgnoreFields(Inode{}, "Mtime"), cmpopts.IgnoreFields(Content{}, "Dev", "Ino"), cmpopts.IgnoreFields(Timer{}, "Left"),
		cmp.AllowUnexported(Pipe{}, Extent{}), cmp.Comparer(bytes.Equal), cmpopts.EquateEmpty()); diff != "" {
		a.t.Fatalf("captured again after the restart (-before +after):\n%s", diff)
	}
}

func write(t *testing.T, fd int, s string) {
	t.Helper()
	if n, err := unix.Write(fd, []byte(s)); err != nil || n != len(s) {
		t.Fatalf("write: %d, %v", n, err)
	}
}

func read(t *testing.T, fd, n int) string {
	t.Helper()
	b := make([]byte, n)
	got, err := unix.Read(fd, b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:got])
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestOutputIsCutBack(t *testing.T) {
	for name, flags := range map[string]int{"write": unix.O_WRONLY, "append": unix.O_WRONLY | unix.O_APPEND, "both": unix.O_RDWR} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t)
			path := filepath.Join(t.TempDir(), "out")
			fd := a.open(path, flags|unix.O_CREAT)
			write(t, fd, "saved ")
			table := a.capture()
			write(t, fd, "written after the checkpoint")
			a.mustRestart(table)
			write(t, fd, "and on")
			wantFile(t, path, "saved and on")
		})
	}
}

func TestKeep(t *testing.T) {
	a := newApp(t)
	path := filepath.Join(t.TempDir(), "out")
	fd := a.open(path, unix.O_WRONLY|unix.O_CREAT)
	write(t, fd, "saved ")
	table := a.capture()
	write(t, fd, "later")
	if err := a.restart(table, Options{Keep: true}); err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, "saved later")
	write(t, fd, "L")
	wantFile(t, path, "saved Later")
}

func TestSharedDescriptionStaysShared(t *testing.T) {
	a := newApp(t)
	path := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(path, []byte("abcdefghij"), 0o644); err != nil {
		t.Fatal(err)
	}
	one := a.open(path, unix.O_RDONLY)
	two := a.dup(one)
	other := a.open(path, unix.O_RDONLY)
	read(t, one, 3)
	read(t, other, 3) // equal offset and flags, yet not shared
	table := a.capture()
	if len(table.Files) != 2 {
		t.Fatalf("%d descriptions, expected 2", len(table.Files))
	}
	a.mustRestart(table)
	if got := read(t, one, 2) + read(t, two, 2) + read(t, other, 2); got != "defgde" {
		t.Errorf("read %q, expected %q", got, "defgde")
	}
	for fd, want := range map[int]int{one: unix.FD_CLOEXEC, two: 0} {
		if got, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); got != want {
			t.Errorf("descriptor flags of %d: %d, expected %d", fd, got, want)
		}
	}
}

func TestWithoutKcmp(t *testing.T) {
	a := newApp(t)
	path := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(path, []byte("abcdefghij"), 0o644); err != nil {
		t.Fatal(err)
	}
	one := a.open(path, unix.O_RDONLY)
	two := a.dup(one)
	other := a.open(path, unix.O_RDONLY)
	read(t, one, 3)
	e1, e2 := a.add(unix.Eventfd(1, 0)), a.add(unix.Eventfd(1, 0))
	if !sameDescription(one, two, false) || sameDescription(one, other, false) || sameDescription(e1, e2, false) {
		t.Error("descriptions are told apart wrongly")
	}
}

func TestChangedInputIsRefused(t *testing.T) {
	change := map[string]struct {
		do   func(path string) error
		want string
	}{
		"longer":  {func(p string) error { return os.WriteFile(p, []byte("0123456789x"), 0o644) }, "has 11 bytes, it had 10"},
		"tail":    {func(p string) error { return os.WriteFile(p, []byte("012345678x"), 0o644) }, "ends in other bytes"},
		"time":    {func(p string) error { return os.Chtimes(p, time.Time{}, time.Unix(1e9, 0)) }, "was written at 2001-09-09"},
		"missing": {os.Remove, "is missing"},
		"pipe":    {func(p string) error { os.Remove(p); return os.Mkdir(p, 0o755) }, "is no regular file any more"},
	}
	for name, c := range change {
		t.Run(name, func(t *testing.T) {
			a := newApp(t)
			dir := t.TempDir()
			in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
			if err := os.WriteFile(in, []byte("0123456789"), 0o644); err != nil {
				t.Fatal(err)
			}
			// The output comes first in the table: it must stay as it is all the same.
			fd := a.open(out, unix.O_WRONLY|unix.O_CREAT)
			write(t, fd, "saved ")
			a.open(in, unix.O_RDONLY)
			table := a.epoch(nil)
			write(t, fd, "later")
			if err := c.do(in); err != nil {
				t.Fatal(err)
			}
			err := a.restart(table, Options{})
			var changed *ChangedError
			if !errors.As(err, &changed) || !strings.Contains(err.Error(), in) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, expected %q about %s", err, c.want, in)
			}
			wantFile(t, out, "saved later")

			var warnings []string
			err = Restore(table, Options{Inherited: a.inherited, IgnoreChanged: true,
				Warn: func(s string) { warnings = append(warnings, s) }})
			if name == "missing" || name == "pipe" {
				if err == nil {
					t.Error("ignoring changes must not make a file that is not there")
				}
				return
			}
			if err != nil || len(warnings) != 1 {
				t.Fatalf("ignoring changes: %v, warnings %q", err, warnings)
			}
			wantFile(t, out, "saved ")
		})
	}
}

func TestShorterOutputIsRefused(t *testing.T) {
	a := newApp(t)
	path := filepath.Join(t.TempDir(), "out")
	fd := a.open(path, unix.O_WRONLY|unix.O_CREAT)
	write(t, fd, "saved")
	table := a.capture()
	if err := os.Truncate(path, 2); err != nil {
		t.Fatal(err)
	}
	if err := a.restart(table, Options{}); err == nil || !strings.Contains(err.Error(), "has 2 bytes, fewer than the 5 it had") {
		t.Fatalf("error %v", err)
	}
}

func TestUnlinkedFile(t *testing.T) {
	a := newApp(t)
	path := filepath.Join(t.TempDir(), "temporary")
	fd := a.open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	write(t, fd, "head")
	if _, err := unix.Pwrite(fd, []byte("tail"), 1<<20); err != nil { // with a hole between
		t.Fatal(err)
	}
	second := a.open(path, unix.O_RDONLY)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	table := a.capture()
	if n := table.dataBytes(); n > 128<<10 {
		t.Errorf("%d bytes saved of a file with a hole", n)
	}
	a.mustRestart(table)
	b := make([]byte, 4)
	if _, err := unix.Pread(second, b, 1<<20); err != nil || string(b) != "tail" {
		t.Errorf("end: %q, %v", b, err)
	}
	write(t, fd, "!")
	if got := read(t, second, 5); got != "head!" {
		t.Errorf("start %q, expected %q: offset and inode are shared", got, "head!")
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestUnlinkedAttributes: what fstat tells of a file without a name is as it was.
func TestUnlinkedAttributes(t *testing.T) {
	a := newApp(t)
	path := filepath.Join(t.TempDir(), "scratch")
	fd := a.open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	write(t, fd, "content")
	if os.Getuid() == 0 {
		if err := unix.Fchown(fd, 12, 34); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Fchmod(fd, 0o6604); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Unix(123456, 789)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	what := func() string {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("mode %o, owner %d:%d, changed %v, %d bytes", st.Mode, st.Uid, st.Gid, st.Mtim, st.Size)
	}
	before := what()
	a.mustRestart(a.capture())
	if now := what(); now != before {
		t.Errorf("%s, expected %s", now, before)
	}
}

// TestUnlinkedHoles: holes that would take an hour to read cost nothing, of a file whose offset the program knows, and of one that may
// only be written.
func TestUnlinkedHoles(t *testing.T) {
	const size, middle = 1 << 40, 300<<30 + 12345
	for name, flags := range map[string]int{"read and written": unix.O_RDWR, "written": unix.O_WRONLY} {
		a := newApp(t)
		path := filepath.Join(t.TempDir(), "scratch")
		fd := a.open(path, flags|unix.O_CREAT|unix.O_EXCL)
		write(t, fd, "head")
		if _, err := unix.Pwrite(fd, []byte("middle"), middle); err != nil {
			t.Fatal(err)
		}
		if err := unix.Ftruncate(fd, size); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		table := a.capture()
		if n := table.dataBytes(); n > 4*extentBlock {
			t.Errorf("%s: %d bytes saved of two blocks", name, n)
		}
		if at, err := unix.Seek(fd, 0, unix.SEEK_CUR); err != nil || at != 4 {
			t.Errorf("%s: offset %d after the checkpoint, %v", name, at, err)
		}
		a.mustRestart(table)
		r, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 6)
		if _, err := unix.Pread(r, b, middle); err != nil || string(b) != "middle" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(r, &st); err != nil || st.Size != size || st.Blocks > 4*extentBlock/512 {
			t.Errorf("%s: %d bytes, %d blocks, %v", name, st.Size, st.Blocks, err)
		}
		_ = unix.Close(r)
		if at, err := unix.Seek(fd, 0, unix.SEEK_CUR); err != nil || at != 4 {
			t.Errorf("%s: offset %d after the restart, %v", name, at, err)
		}
	}
}

func TestDirectory(t *testing.T) {
	a := newApp(t)
	dir := t.TempDir()
	for _, name := range strings.Fields("a b c d e f") {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fd := a.open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	b := make([]byte, 80) // three entries
	n, err := unix.Getdents(fd, b)
	if err != nil || n == 0 {
		t.Fatal(n, err)
	}
	table := a.capture()
	// A signal that is pending ends a reading after one entry, and Go's runtime sends itself some.
	entries := func() []byte {
		var all []byte
		for {
			var b [4096]byte
			n, err := unix.Getdents(fd, b[:])
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				return all
			}
			all = append(all, b[:n]...)
		}
	}
	rest := entries()
	if err := a.restart(table, Options{}); err != nil {
		t.Fatal(err)
	}
	if again := entries(); len(rest) == 0 || !bytes.Equal(rest, again) {
		t.Errorf("the rest of the directory has %d bytes, it had %d", len(again), len(rest))
	}
}

func TestLocks(t *testing.T) {
	a := newApp(t)
	path := filepath.Join(t.TempDir(), "locked")
	whole := a.open(path, unix.O_RDWR|unix.O_CREAT)
	part := a.open(path, unix.O_RDWR)
	if err := unix.Flock(whole, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 10, Len: 5}
	if err := unix.FcntlFlock(uintptr(part), unix.F_OFD_SETLK, &lock); err != nil {
		t.Fatal(err)
	}
	posix := unix.Flock_t{Type: unix.F_RDLCK, Start: 100}
	if err := unix.FcntlFlock(uintptr(part), unix.F_SETLK, &posix); err != nil {
		t.Fatal(err)
	}
	table := a.capture()
	if err := a.restart(table, Options{}); err != nil {
		t.Fatal(err)
	}
	info, err := readFdinfo(part)
	if err != nil {
		t.Fatal(err)
	}
	want := []Lock{{Kind: "posix", Start: 100}, {Kind: "ofd", Write: true, Start: 10, Len: 5}}
	if diff := cmp.Diff(want, info.locks, cmpopts.SortSlices(func(a, b Lock) bool { return a.Start > b.Start })); diff != "" {
		t.Errorf("locks (-want +got):\n%s", diff)
	}
	other, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("the file is not locked: %v", err)
	}
}

func TestPlaceFailureIsReported(t *testing.T) {
	a := newApp(t)
	path := filepath.Join(t.TempDir(), "out")
	write(t, a.open(path, unix.O_WRONLY|unix.O_CREAT), "x")
	table := a.capture()
	want := errors.New("no place")
	err := a.restart(table, Options{Place: func(int, int, bool) error { return want }})
	if !errors.Is(err, want) {
		t.Fatalf("error %v", err)
	}
}
