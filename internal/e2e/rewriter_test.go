// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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

// Where the checkpoints are on another file system than the files, these are copied; a file for which there was no room stays as it is, and the
// restart names it.
func TestRewriterElsewhere(t *testing.T) {
	needCommands(t)
	program := filepath.Join(built.Bin, "rewriter")
	want, err := NewRun(t.TempDir())
	must(t, err)
	must(t, want.Once(time.Minute, program, "1200", t.TempDir()))
	for _, room := range []string{"64M", "100"} {
		t.Run(room, func(t *testing.T) {
			run, mark := runOf(t)
			dir := fmt.Sprintf("/dev/shm/libckpt-rewriter-%d", os.Getpid())
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			p, err := run.Start(mark, built.CkptRun(), "--dir", dir, "--files-copy", room, "--", program, "1200", run.Dir)
			must(t, err)
			count := func(what string) int {
				list, _ := filepath.Glob(what)
				return len(list)
			}
			if !Poll(patience, p.Done(), func() bool { return count(filepath.Join(run.Dir, "d2", "*")) > 2 }) {
				t.Fatalf("it does not begin\n%s", mustRead(t, run.Stderr))
			}
			asked, err := NewRun(t.TempDir())
			must(t, err)
			must(t, asked.Once(checkpointLimit, built.CkptCtl(), "checkpoint", dir))
			if asked.Exit != (Exit{}) {
				t.Fatalf("%v: %s", asked.Exit, mustRead(t, asked.Stderr))
			}
			changed := func() bool {
				if room == "64M" {
					return count(filepath.Join(dir, "made", "*.kept", "*")) > 6
				}
				st, err := os.Stat(filepath.Join(dir, "made", "rank-00000"))
				return err == nil && st.Size() > 4000
			}
			if !Poll(patience, p.Done(), changed) {
				t.Fatalf("nothing is noted\n%s", mustRead(t, run.Stderr))
			}
			mark.KillAll()
			_, err = p.Wait(time.Minute)
			must(t, err)
			again, err := NewRun(t.TempDir())
			must(t, err)
			must(t, again.Once(time.Minute, built.CkptRun(), "--restart", dir))
			got, said := mustRead(t, again.Stdout), string(mustRead(t, again.Stderr))
			if room == "64M" {
				if again.Exit != (Exit{}) || !bytes.Equal(got, mustRead(t, want.Stdout)) {
					t.Errorf("%v: %s\n%s", again.Exit, got, said)
				}
				return
			}
			if !strings.Contains(said, "was not kept") || !strings.Contains(said, "--files-copy") || !strings.Contains(said, run.Dir) {
				t.Errorf("it does not say what is not as it was: %s", said)
			}
		})
	}
}

// A job that goes on with another directory for its checkpoints finds its files as they were at those, too.
func TestRewriterMoves(t *testing.T) {
	needCommands(t)
	program := filepath.Join(built.Bin, "rewriter")
	want, err := NewRun(t.TempDir())
	must(t, err)
	must(t, want.Once(time.Minute, program, "2500", t.TempDir()))
	run, mark := runOf(t)
	dirs := []string{run.Checkpoints(), filepath.Join(t.TempDir(), "other")}
	p, err := run.Start(mark, built.CkptRun(), "--dir", dirs[0], "--", program, "2500", run.Dir)
	must(t, err)
	for i, dir := range dirs {
		kept := func() int {
			list, _ := filepath.Glob(filepath.Join(dir, "made", "*.kept", "*"))
			return len(list)
		}
		if !Poll(patience, p.Done(), func() bool {
			list, _ := filepath.Glob(filepath.Join(run.Dir, "d2", "*"))
			return len(list) > 2
		}) {
			t.Fatalf("it does not go on\n%s", mustRead(t, run.Stderr))
		}
		asked, err := NewRun(t.TempDir())
		must(t, err)
		must(t, asked.Once(checkpointLimit, built.CkptCtl(), "checkpoint", "--timeout", "30s", dir))
		if asked.Exit != (Exit{}) {
			t.Fatalf("%v: %s\n%s", asked.Exit, mustRead(t, asked.Stderr), mustRead(t, run.Stderr))
		}
		if !Poll(patience, p.Done(), func() bool { return kept() > 6 }) {
			t.Fatalf("%d files are kept in %s\n%s", kept(), dir, mustRead(t, run.Stderr))
		}
		mark.KillAll()
		_, err = p.Wait(time.Minute)
		must(t, err)
		if i == 0 {
			p, err = run.Start(mark, built.CkptRun(), "--dir", dirs[1], "--restart", dirs[0])
			must(t, err)
		}
	}
	again, err := NewRun(t.TempDir())
	must(t, err)
	must(t, again.Once(time.Minute, built.CkptRun(), "--restart", dirs[1]))
	if got := mustRead(t, again.Stdout); again.Exit != (Exit{}) || !bytes.Equal(got, mustRead(t, want.Stdout)) {
		t.Errorf("%v: %s\n%s", again.Exit, got, mustRead(t, again.Stderr))
	}
}
