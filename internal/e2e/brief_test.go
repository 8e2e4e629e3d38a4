// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A thread that asks for a checkpoint may end while the image is written: that is the process's, not the
// thread's.
func TestThreadThatAskedEnds(t *testing.T) {
	needCommands(t)
	both := func(t *testing.T, run *Run) {
		t.Helper()
		for _, epoch := range []string{"epoch-000001", "epoch-000002"} {
			if _, err := os.Stat(filepath.Join(run.Checkpoints(), epoch, "manifest.json")); err != nil {
				t.Errorf("%v: %s", err, mustRead(t, run.Stderr))
			}
		}
	}
	t.Run("without MPI", func(t *testing.T) {
		program := filepath.Join(built.Bin, "brief")
		build := exec.Command("gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread",
			"-I", filepath.Join(built.Root, "build/include"), "-o", program, filepath.Join(built.Src, "brief.c"),
			"-L", filepath.Join(built.Root, "build/lib"), "-lckpt", "-Wl,-rpath,"+filepath.Join(built.Root, "build/lib"))
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		run, err := NewRun(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Once(mpiLimit, built.CkptRun(), "--dir", run.Checkpoints(), "--", program); err != nil || run.Exit != (Exit{}) {
			t.Fatalf("%v %v: %s", err, run.Exit, mustRead(t, run.Stderr))
		}
		both(t, run)
		if err := run.Once(mpiLimit, built.CkptRun(), "--restart", run.Checkpoints()+"@1"); err != nil || run.Exit != (Exit{}) {
			t.Fatalf("restart: %v %v: %s", err, run.Exit, mustRead(t, run.Stderr))
		}
	})
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			program := buildMPI(t, mpi, "brief", "-DMPI")
			j := startMPI(t, mpi, 2, func(r *Run) []string {
				return []string{built.CkptRun(), "--dir", r.Checkpoints(), "--", program}
			})
			j.mustEnd(t)
			both(t, j.run)
		})
	}
}
