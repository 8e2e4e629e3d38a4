// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A descriptor of a rail that was closed is the program's again: what it opens under that number is saved.
func TestIgnoredUntilClosed(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	j := &Job{}
	if err := j.IgnoreFD(pair[0], true); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(j.ignoredFDs(), pair[0]) {
		t.Error("it is saved while it is open")
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "of the program"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Dup3(int(file.Fd()), pair[0], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	if slices.Contains(j.ignoredFDs(), pair[0]) {
		t.Error("a file of the program is not saved, since a rail had a descriptor of that number")
	}

	if err := j.IgnoreFD(pair[1], true); err != nil {
		t.Fatal(err)
	}
	if err := j.IgnoreFD(pair[1], false); err != nil || slices.Contains(j.ignoredFDs(), pair[1]) {
		t.Errorf("given back, %v, it is not saved", err)
	}
	if err := j.IgnoreFD(1<<20, true); err == nil {
		t.Error("a descriptor that is not open is left out")
	}
}
