// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// A program linked with -lckpt that asks for checkpoints while messages are under way: they are received
// and kept, and nothing may be lost.
func TestMPIUnderWay(t *testing.T) {
	needCommands(t)
	needmpi.Test(t, "mpich")
	program := filepath.Join(built.Bin, "pending")
	build := exec.Command("mpicc.mpich", "-Wall", "-Wextra", "-Werror", "-O1", "-I", filepath.Join(built.Root, "build/include"),
		"-o", program, filepath.Join(built.Src, "pending.c"), "-L", filepath.Join(built.Root, "build/lib"), "-lckpt")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(t *testing.T, argv ...string) []string {
		t.Helper()
		r, err := NewRun(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("LD_LIBRARY_PATH", filepath.Join(built.Root, "build/lib"))
		if err := r.Once(mpiLimit, append([]string{"mpiexec.mpich", "-n", "2"}, argv...)...); err != nil {
			t.Fatal(err)
		}
		if r.Exit != (Exit{}) {
			t.Fatalf("%v: %s", r.Exit, mustRead(t, r.Stderr))
		}
		return strings.Split(strings.TrimSpace(string(mustRead(t, r.Stdout))), "\n")
	}
	expect := func(t *testing.T, lines []string, want ...string) {
		t.Helper()
		if len(lines) != len(want) {
			t.Fatalf("%d lines, expected %d:\n%s", len(lines), len(want), strings.Join(lines, "\n"))
		}
		for i, w := range want {
			if !regexp.MustCompile("^" + w + "$").MatchString(lines[i]) {
				t.Errorf("said    %s\nexpected %s", lines[i], w)
			}
		}
	}
	t.Run("natively", func(t *testing.T) {
		const none = `: ignored: the program was not started by ckptrun, and names no state that could be saved \(MPIX_Checkpoint_protect\)`
		expect(t, run(t, program), "unmatched"+none, "pending"+none, "nothing"+none)
	})
	t.Run("under ckptrun", func(t *testing.T) {
		expect(t, run(t, built.CkptRun(), "--dir", filepath.Join(t.TempDir(), "ckpt"), "--", program),
			"unmatched: saved", "pending: saved", "nothing: saved")
	})
}
