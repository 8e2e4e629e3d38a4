// SPDX-License-Identifier: Apache-2.0

package regular

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// soon fails the test when f does not return: what it waits for never comes.
func soon(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it waits")
	}
}

func TestOthersAreRefused(t *testing.T) {
	dir := t.TempDir()
	pipe, socket := filepath.Join(dir, "pipe"), filepath.Join(dir, "socket")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]string{pipe: "named pipe", link: "named pipe", socket: "socket", "/dev/zero": "device", dir: "directory"} {
		soon(t, func() {
			for what, err := range map[string]error{
				"Open": func() error { _, err := Open(path, os.O_RDONLY); return err }(),
				"Read": func() error { _, err := ReadFile(path, 10); return err }(),
			} {
				if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), kind) {
					t.Errorf("%s of %s: %v", what, path, err)
				}
			}
		})
	}
	// It became a pipe after Open looked.
	soon(t, func() {
		f, err := os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if st, err := f.Stat(); err != nil || check(pipe, st) == nil {
			t.Errorf("an open pipe: %v", err)
		}
	})
}

func TestFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if _, err := Open(path, os.O_RDONLY); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	want := bytes.Repeat([]byte("0123456789"), 100)
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := f.WriteAt([]byte("x"), 0); err != nil {
		t.Error(err)
	}
	if got, err := ReadFile(path, 1000); err != nil || len(got) != 1000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := ReadFile(path, 999); err == nil || !strings.Contains(err.Error(), "999") {
		t.Errorf("longer than allowed: %v", err)
	}
	if _, err := ReadFile("/proc/self/status", 1<<20); err != nil { // a regular file of size 0
		t.Error(err)
	}
}
