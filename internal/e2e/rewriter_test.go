// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Files that the ranks of a job write over, replace, rename and remove, in turn and each the files of the others, are in every life as they were at the
// checkpoint: continued again and again, from the newest epoch and from one before it, under either MPI.
func TestRewriters(t *testing.T) {
	needCommands(t)
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			program := buildMPI(t, mpi, "rewriter", "-DMPI=1")
			hold := filepath.Join(t.TempDir(), "hold")
			writeFile(t, hold, nil)
			j := startMPI(t, mpi, 3, func(run *Run) []string {
				return []string{built.CkptRun(), "--dir", run.Checkpoints(), "--keep", "3", "--", program, hold}
			})
			dir, first := j.run.Checkpoints(), j.mark
			if !Poll(mpiLimit, j.Done(), func() bool { return len(mustRead(t, j.run.Stdout)) > 0 }) {
				t.Fatalf("it does not begin\n%s", mustRead(t, j.run.Stderr))
			}
			// What is kept says that the job goes on: the longest names are of this life.
			spoils := func(j *mpiJob) {
				t.Helper()
				kept := func() int {
					list, _ := filepath.Glob(filepath.Join(dir, "made", "*.kept", "*"))
					return len(list)
				}
				before := kept()
				if !Poll(mpiLimit, j.Done(), func() bool { return kept() > before+8 }) {
					t.Fatalf("%d files are kept, and then %d\n%s\n%s", before, kept(), mustRead(t, j.run.Stdout), mustRead(t, j.run.Stderr))
				}
			}
			save := func() {
				t.Helper()
				asked, err := NewRun(t.TempDir())
				must(t, err)
				must(t, asked.Once(checkpointLimit, built.CkptCtl(), "checkpoint", dir))
				if asked.Exit != (Exit{}) {
					t.Fatalf("%v: %s", asked.Exit, mustRead(t, asked.Stderr))
				}
			}
			kill := func(j *mpiJob) {
				t.Helper()
				pids := first.Ranks() // also in a life that is continued: /proc shows the environment of the saved one
				for _, pid := range pids {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
				if _, err := j.Wait(mpiLimit); err != nil {
					t.Fatalf("%v: of processes %v\n%s\n%s", err, pids, mustRead(t, j.run.Stdout), mustRead(t, j.run.Stderr))
				}
			}
			save()
			spoils(j)
			kill(j)
			for i, life := range append(lives(mpi), [2]string{mpi, "eager"}) {
				j = startMPI(t, life[0], 3, func(*Run) []string {
					return []string{built.CkptRun(), "--keep", "3", "--restart-mode", life[1], "--restart", dir}
				})
				spoils(j)
				if i == 1 {
					save()
					spoils(j)
				}
				kill(j)
			}
			for _, epoch := range []string{dir, dir + "@1"} {
				writeFile(t, hold, nil)
				j = startMPI(t, mpi, 3, func(*Run) []string { return []string{built.CkptRun(), "--keep", "3", "--restart", epoch} })
				spoils(j)
				must(t, os.Remove(hold))
				j.mustEnd(t)
				if got := string(mustRead(t, j.run.Stdout)); got != "good\n" {
					t.Errorf("%s: it says %q\n%s", epoch, got, mustRead(t, j.run.Stderr))
				}
			}
		})
	}
}
