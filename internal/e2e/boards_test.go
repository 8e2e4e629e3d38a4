// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// boardsOf are the files in memory of a job of programs/boards.c, and those that a restart gives names for a moment.
func boardsOf(t *testing.T, name string) (list []string) {
	t.Helper()
	for _, pattern := range []string{name + "-*", "sem." + name + "-*", "libckpt-posix-*"} {
		found, err := filepath.Glob("/dev/shm/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, found...)
	}
	return list
}

// savedAndKilled starts a job of a program that says "saved" after its checkpoint and stays then, and kills its ranks.
func savedAndKilled(t *testing.T, mpi, program, name string, options ...string) *mpiJob {
	t.Helper()
	hold := filepath.Join(t.TempDir(), "hold")
	writeFile(t, hold, nil)
	j := startMPI(t, mpi, 3, func(run *Run) []string {
		return slices.Concat([]string{built.CkptRun(), "--dir", run.Checkpoints()}, options, []string{"--", program, name, hold})
	})
	saved := func() bool {
		_, err := os.Stat(filepath.Join(j.run.Checkpoints(), "epoch-000001", "manifest.json"))
		return err == nil && strings.Contains(string(mustRead(t, j.run.Stdout)), "saved")
	}
	if !Poll(mpiLimit, j.Done(), saved) || !saved() {
		t.Fatalf("it was not saved\n%s", mustRead(t, j.run.Stderr))
	}
	for _, pid := range j.mark.Ranks() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if _, err := j.Wait(mpiLimit); err != nil {
		t.Fatal(err)
	}
	return j
}

// goodAgain continues it, to an end that it says is good.
func goodAgain(t *testing.T, j *mpiJob, mpi, mode string) {
	t.Helper()
	again := startMPI(t, mpi, 3, func(*Run) []string {
		return []string{built.CkptRun(), "--restart-mode", mode, "--restart", j.run.Checkpoints()}
	})
	again.mustEnd(t)
	if got := string(mustRead(t, again.run.Stdout)); got != "good\n" {
		t.Errorf("above %s, %s: it says %q\n%s", mpi, mode, got, mustRead(t, again.run.Stderr))
	}
}

// lives are the MPIs above which a job of mpi goes on, and how its memory comes.
func lives(mpi string) (list [][2]string) {
	list = [][2]string{{mpi, "eager"}, {mpi, "lazy"}}
	if other := map[string]string{"mpich": "openmpi", "openmpi": "mpich"}[mpi]; needmpi.Has(other) {
		list = append(list, [2]string{other, "eager"})
	}
	return list
}

// Files in memory that ranks share, with names, without, and with names that were removed, are as they were after a restart, and are shared: where
// they are still there, written over since, and where they are not, as on another node or after a reboot.
func TestSharedFilesInMemory(t *testing.T) {
	needCommands(t)
	for _, one := range [][2]string{{"mpich", "cow"}, {"openmpi", "cow"}, {"mpich", "stop"}} {
		mpi, snapshot := one[0], one[1] // stop: what others write to is not copied either
		t.Run(mpi+"/"+snapshot, func(t *testing.T) {
			program := buildMPI(t, mpi, "boards")
			name := fmt.Sprintf("ckpt-boards-%s-%d", mpi, os.Getpid())
			t.Cleanup(func() {
				for _, path := range boardsOf(t, name) {
					_ = os.Remove(path)
				}
			})
			before := boardsOf(t, name)
			j := savedAndKilled(t, mpi, program, name, "--snapshot", snapshot)
			if left := boardsOf(t, name); len(left) < 3 {
				t.Errorf("of the killed job only %v is left", left)
			}
			for _, life := range lives(mpi) {
				goodAgain(t, j, life[0], life[1])
				if left := boardsOf(t, name); !slices.Equal(left, before) {
					t.Errorf("above %s, %s: %v is left, %v before", life[0], life[1], left, before)
				}
			}
		})
	}
}

// heldAndKilled starts a job of a program that says something when it is under way, saves it then, and kills its ranks.
func heldAndKilled(t *testing.T, mpi string, n int, argv func(run *Run) []string) *mpiJob {
	t.Helper()
	j := startMPI(t, mpi, n, argv)
	if !Poll(mpiLimit, j.Done(), func() bool { return len(mustRead(t, j.run.Stdout)) > 0 }) {
		t.Fatalf("it does not begin\n%s", mustRead(t, j.run.Stderr))
	}
	asked, err := NewRun(t.TempDir())
	must(t, err)
	must(t, asked.Once(checkpointLimit, built.CkptCtl(), "checkpoint", j.run.Checkpoints()))
	if asked.Exit != (Exit{}) {
		t.Fatalf("%v: %s", asked.Exit, mustRead(t, asked.Stderr))
	}
	for _, pid := range j.mark.Ranks() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if _, err := j.Wait(mpiLimit); err != nil {
		t.Fatal(err)
	}
	return j
}

// untilLetGo continues it for a second, and then to an end that it says is good.
func untilLetGo(t *testing.T, j *mpiJob, mpi string, n int, hold, mode string) {
	t.Helper()
	writeFile(t, hold, nil)
	again := startMPI(t, mpi, n, func(*Run) []string {
		return []string{built.CkptRun(), "--restart-mode", mode, "--restart", j.run.Checkpoints()}
	})
	time.Sleep(time.Second)
	must(t, os.Remove(hold))
	again.mustEnd(t)
	if got := string(mustRead(t, again.run.Stdout)); got != "good\n" {
		t.Errorf("above %s, %s: it says %q\n%s", mpi, mode, got, mustRead(t, again.run.Stderr))
	}
}

// Where memory that ranks share is not copied, all of them stand until it is written.
func TestSharedStands(t *testing.T) {
	needCommands(t)
	for _, option := range []string{"--snapshot=stop", "--snapshot-memory=1M"} {
		t.Run(option, func(t *testing.T) {
			program := buildMPI(t, "mpich", "pacer")
			hold := filepath.Join(t.TempDir(), "hold")
			writeFile(t, hold, nil)
			j := heldAndKilled(t, "mpich", 2, func(run *Run) []string {
				return []string{built.CkptRun(), option, "--same-pages", "each", "--dir", run.Checkpoints(), "--", program, fmt.Sprintf("/ckpt-pacer-%d", os.Getpid()), hold}
			})
			untilLetGo(t, j, "mpich", 2, hold, "auto")
		})
	}
}

// What is mapped to be read of a file that the job writes to is that file after a restart, too.
func TestMirrors(t *testing.T) { continuedAboveBoth(t, "mirror") }

// continuedAboveBoth has three ranks of a program, which goes on for as long as there is a file, killed and continued in all ways.
func continuedAboveBoth(t *testing.T, name string, flags ...string) {
	t.Helper()
	needCommands(t)
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			program := buildMPI(t, mpi, name, flags...)
			hold := filepath.Join(t.TempDir(), "hold")
			writeFile(t, hold, nil)
			j := heldAndKilled(t, mpi, 3, func(run *Run) []string {
				return []string{built.CkptRun(), "--dir", run.Checkpoints(), "--", program, hold}
			})
			for _, life := range lives(mpi) {
				untilLetGo(t, j, life[0], 3, hold, life[1])
			}
		})
	}
}

// Threads that wait in shared memory while the job is saved wait on after a restart, and are woken by other ranks; a robust mutex that is held is
// not one of a process that died.
func TestWaitsInSharedMemory(t *testing.T) {
	needCommands(t)
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			program := buildMPI(t, mpi, "latches")
			j := savedAndKilled(t, mpi, program, fmt.Sprintf("/ckpt-latches-%s-%d", mpi, os.Getpid()))
			for _, life := range lives(mpi) {
				goodAgain(t, j, life[0], life[1])
			}
		})
	}
}
