// SPDX-License-Identifier: Apache-2.0

package files

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLauncher(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	a := newApp(t)
	fd := a.open(out, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND)
	saved := a.dup(fd)
	a.give(1, fd)
	write(t, fd, "saved ")
	table := a.capture()
	if len(table.Files) != 1 || table.Files[0].Kind != KindLauncher || table.Files[0].Launcher != 1 {
		t.Fatalf("files %+v", table.Files)
	}
	write(t, saved, "later")

	t.Run("same file", func(t *testing.T) {
		a.t = t
		a.mustRestart(table)
		write(t, fd, "on ")
		write(t, saved, "and on")
		wantFile(t, out, "saved on and on")
	})
	t.Run("emptied file", func(t *testing.T) {
		b := newApp(t)
		b.fds = []int{fd, saved}
		again, err := unix.Open(out, unix.O_WRONLY|unix.O_TRUNC|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.give(1, again)
		unix.Close(again)
		warned := ""
		if err := b.restart(table, Options{Inherited: b.inherited, Warn: func(s string) { warned = s }}); err != nil {
			t.Fatal(err)
		}
		write(t, fd, "new")
		wantFile(t, out, "new")
		if !strings.Contains(warned, "emptied") {
			t.Errorf("warning %q", warned)
		}
	})
	t.Run("pipe", func(t *testing.T) {
		b := newApp(t)
		b.fds = []int{fd, saved}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		b.give(1, int(w.Fd()))
		if err := b.restart(table, Options{Inherited: b.inherited}); err != nil {
			t.Fatal(err)
		}
		write(t, saved, "to the pipe")
		w.Close()
		if got := read(t, int(r.Fd()), 100); got != "to the pipe" {
			t.Errorf("read %q", got)
		}
	})
	t.Run("closed", func(t *testing.T) {
		b := newApp(t)
		b.fds = []int{fd, saved}
		err := b.restart(table, Options{Inherited: [3]int{-1, -1, -1}})
		if err == nil || !strings.Contains(err.Error(), "stdout is closed") {
			t.Errorf("error %v", err)
		}
	})
}

func TestLauncherPipeOpenedAnew(t *testing.T) {
	a := newApp(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	a.give(2, int(w.Fd()))
	fd := a.open("/proc/self/fd/"+itoa(int(w.Fd())), unix.O_WRONLY)
	table := a.capture()
	if f := table.Files[0]; f.Kind != KindLauncher || !f.Reopened || f.Launcher != 2 {
		t.Fatalf("file %+v", f)
	}
	a.mustRestart(table)
	write(t, fd, "hello")
	if got := read(t, int(r.Fd()), 10); got != "hello" {
		t.Errorf("read %q", got)
	}
}

func itoa(n int) string {
	b, _ := json.Marshal(n)
	return string(b)
}

func TestStdinFileGoesOnWhereItWas(t *testing.T) {
	a := newApp(t)
	path := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(path, []byte("one two"), 0o644); err != nil {
		t.Fatal(err)
	}
	fd := a.open(path, unix.O_RDONLY)
	a.give(0, fd)
	read(t, fd, 4)
	table := a.capture()
	unix.Close(fd)
	b := newApp(t)
	b.fds = []int{fd}
	again, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.give(0, again)
	unix.Close(again)
	if err := Restore(table, Options{Inherited: b.inherited}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, fd, 10); got != "two" {
		t.Errorf("read %q, expected %q", got, "two")
	}
}
