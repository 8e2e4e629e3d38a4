// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"testing"
)

// Calls that wait get addresses at which nothing is: the program is told what the kernel would tell it.
func TestBadAddresses(t *testing.T) {
	needCommands(t)
	program := filepath.Join(built.Bin, "badaddress")
	said := func(argv ...string) string {
		t.Helper()
		r, err := NewRun(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Once(mpiLimit, argv...); err != nil {
			t.Fatal(err)
		}
		if r.Exit != (Exit{}) {
			t.Fatalf("%v: %v: %s", argv, r.Exit, mustRead(t, r.Stderr))
		}
		return string(mustRead(t, r.Stdout))
	}
	want := said(program)
	for _, trap := range []string{"seccomp", "sud"} {
		if got := said(built.CkptRun(), "--dir", filepath.Join(t.TempDir(), "ckpt"), "--trap", trap, "--", program); got != want {
			t.Errorf("%s: it says\n%s\nand without ckptrun\n%s", trap, got, want)
		}
	}
}
