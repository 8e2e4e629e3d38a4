// SPDX-License-Identifier: Apache-2.0

package needmpi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Gather names the file to which the names of skipped tests are appended.
const Gather = "LIBCKPT_SKIPPED"

// Test skips a test when the tree has no back for one of these MPIs, or no time is left. Without a tree nothing is skipped:
// the test fails by itself.
func Test(t testing.TB, mpis ...string) {
	t.Helper()
	Time(t)
	dir := tree()
	if _, err := os.Stat(filepath.Join(dir, "lib", "ckpt", "libckpt-core.so")); err != nil {
		return
	}
	for _, mpi := range mpis {
		if Has(mpi) {
			continue
		}
		Skip(t, "no back for "+mpi, fmt.Sprintf("this tree has no back for %s (make BACKS=...)", mpi))
	}
}

// Skip skips a test because of what this machine or tree lacks: in a few words for the list, and in full.
func Skip(t testing.TB, lack, why string) {
	t.Helper()
	note(lack, t.Name())
	t.Skip(why)
}

// Terminals skips a test where no pseudo-terminals can be made, as where nothing is mounted on /dev/pts: for example in a
// chroot. Any other reason is the test's own to see.
func Terminals(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	switch {
	case err == nil:
		_ = f.Close()
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.EIO):
		Skip(t, "no pseudo-terminals", fmt.Sprintf("no pseudo-terminals here (%v): mount a devpts on /dev/pts", err))
	}
}

// note adds a test to the list for people.
func note(lack, name string) {
	path := os.Getenv(Gather)
	if path == "" {
		return
	}
	if f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
		_, _ = fmt.Fprintln(f, lack+": "+name)
		_ = f.Close()
	}
}

// Has tells whether the tree has a back for an MPI.
func Has(mpi string) bool {
	_, err := os.Stat(filepath.Join(tree(), "lib", "ckpt", "back", "libckptback-"+mpi+".so"))
	return err == nil
}

// tree is the built tree: what LIBCKPT_BUILD names, else build beside go.mod.
func tree() string {
	if dir := os.Getenv("LIBCKPT_BUILD"); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "build")
		}
	}
	return ""
}
