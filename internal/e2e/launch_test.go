// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// buildMPI compiles a program of this package against one of the MPIs.
func buildMPI(t *testing.T, mpi, name string, flags ...string) string {
	t.Helper()
	needmpi.Test(t, mpi)
	out := filepath.Join(built.Bin, name+"-"+mpi)
	cmd := exec.Command("mpicc."+mpi, append(flags, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread",
		"-I", filepath.Join(built.Root, "build/include"), "-o", out, filepath.Join(built.Src, name+".c"),
		"-L", filepath.Join(built.Root, "build/lib"), "-lckpt", "-Wl,-rpath,"+filepath.Join(built.Root, "build/lib"))...)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, b)
	}
	return out
}

// mpiJob is a job of either MPI.
type mpiJob struct {
	run  *Run
	mark Mark
	*Process
}

// startMPI starts ranks of a command, which is made when the folders of the run are known.
func startMPI(t *testing.T, mpi string, n int, command func(*Run) []string) *mpiJob {
	t.Helper()
	needmpi.Test(t, mpi)
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
	t.Setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
	mark := NewMark()
	t.Cleanup(mark.KillAll)
	argv := append(append([]string{}, launchers[mpi]...), "-n", strconv.Itoa(n))
	p, err := run.Start(mark, append(argv, command(run)...)...)
	if err != nil {
		t.Fatal(err)
	}
	return &mpiJob{run: run, mark: mark, Process: p}
}

// mustEnd waits for the job's end, which must be a good one.
func (j *mpiJob) mustEnd(t *testing.T) {
	t.Helper()
	if exit, err := j.Wait(mpiLimit); err != nil || exit != (Exit{}) {
		t.Fatalf("%v %v\n%s\n%s", exit, err, mustRead(t, j.run.Stdout), mustRead(t, j.run.Stderr))
	}
}
