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
)

// togetherLimit is what a job of small programs may take on a loaded machine.
const togetherLimit = 5 * time.Minute

// newTogether prepares a job of several processes without MPI.
func newTogether(t *testing.T, n int, argv ...string) *Whole {
	t.Helper()
	needCommands(t)
	w, err := NewWhole(built, t.TempDir(), argv...)
	if err != nil {
		t.Fatal(err)
	}
	w.Ranks, w.Together = n, true
	t.Cleanup(w.Mark.KillAll)
	return w
}

// saveTogether makes a checkpoint, and asks again while the program is in the way of it.
func saveTogether(t *testing.T, w *Whole, then string) {
	t.Helper()
	exit, said, err := w.Ckptctl(t.TempDir(), checkpointLimit, "checkpoint", w.Run.Checkpoints(), "--then", then, "--timeout", checkpointLimit.String())
	if err != nil || exit != (Exit{}) {
		t.Fatalf("checkpoint: %v %v: %s%s", exit, err, said, w.Said())
	}
}

// goes waits until every process has printed something.
func goes(t *testing.T, w *Whole) {
	t.Helper()
	ok := Poll(patience, nil, func() bool {
		for r := range w.Ranks {
			if st, err := os.Stat(fmt.Sprintf("%s.out.%d", w.Files, r)); err != nil || st.Size() == 0 {
				return w.Ended()
			}
		}
		return true
	})
	if !ok || w.Ended() {
		t.Fatalf("it does not go: %s", w.Said())
	}
}

// count prints numbers up to a given one, one in a hundredth of a second.
func count(n int) []string {
	return []string{"/usr/bin/python3", "-u", "-c", fmt.Sprintf("import time\nfor i in range(%d):\n  print(i)\n  time.sleep(.01)", n)}
}

func wantCount(t *testing.T, w *Whole, n int) {
	t.Helper()
	var want strings.Builder
	for i := range n {
		fmt.Fprintln(&want, i)
	}
	for r := range w.Ranks {
		if got := string(mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, r))); got != want.String() {
			t.Errorf("rank %d prints %d bytes, want %d", r, len(got), want.Len())
		}
	}
}

// Processes that know nothing of each other are one job: one epoch has them all, and they go on together, under a shell
// and under launchers.
func TestTogether(t *testing.T) {
	for _, launcher := range []string{"shell", "mpich", "openmpi"} {
		t.Run(launcher, func(t *testing.T) {
			const n = 400
			w := newTogether(t, 3, count(n)...)
			must(t, w.Start(launcher))
			for i := range 2 {
				if i == 0 {
					goes(t, w)
				} else if !Poll(patience, nil, func() bool { return answers(w.Run.Checkpoints()) }) {
					t.Fatalf("it was not continued: %s", w.Said())
				}
				saveTogether(t, w, []string{"kill", "exit"}[i])
				_, err := w.Wait(togetherLimit)
				must(t, err)
				if epoch, err := w.Epoch(); err != nil || epoch != i+1 {
					t.Fatalf("epoch %d, %v", epoch, err)
				}
				for r := range w.Ranks {
					if _, err := os.Stat(filepath.Join(w.Run.Checkpoints(), fmt.Sprintf("epoch-%06d", i+1), fmt.Sprintf("rank-%05d.ckpt", r))); err != nil {
						t.Error(err)
					}
				}
				must(t, w.Restart(launcher))
			}
			must(t, w.MustEnd(togetherLimit))
			wantCount(t, w, n)
		})
	}
}

// answers tells whether a job answers in the directory.
func answers(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "job.json"))
	return err == nil
}

// Without numbers the processes get them in the order of arrival, at a restart others than before.
func TestTogetherArrive(t *testing.T) {
	const n = 300
	w := newTogether(t, 3, "/usr/bin/python3", "-c", fmt.Sprintf("import time,os\nfor i in range(%d):\n  time.sleep(.01)\nprint(i)", n))
	w.Arrive = true
	must(t, w.Start("shell"))
	if !Poll(patience, nil, func() bool { return answers(w.Run.Checkpoints()) }) {
		t.Fatal(w.Said())
	}
	saveTogether(t, w, "kill")
	_, err := w.Wait(togetherLimit)
	must(t, err)
	must(t, w.Restart("shell"))
	must(t, w.MustEnd(togetherLimit))
	if got, err := w.Printed("out"); err != nil || got != strings.Repeat(fmt.Sprintln(n-1), 3) {
		t.Errorf("%q, %v", got, err)
	}
}

// What is wrong with numbers and directories is told by everybody, before a program has run.
func TestTogetherRefused(t *testing.T) {
	refused := func(t *testing.T, w *Whole, launcher, words string) {
		t.Helper()
		must(t, w.Start(launcher))
		exits, err := w.Wait(togetherLimit)
		must(t, err)
		if slices.Contains(exits, Exit{}) || !strings.Contains(w.Said(), words) {
			t.Errorf("%v: %s\nwant %q", exits, w.Said(), words)
		}
		if got, _ := w.Printed("out"); got != "" {
			t.Errorf("it printed %q", got)
		}
	}
	t.Run("a rank twice", func(t *testing.T) {
		w := newTogether(t, 3, count(1)...)
		w.Arrive = true
		w.RankEnv = map[int][]string{0: {"CKPT_RANK=0", "CKPT_SIZE=3"}, 1: {"CKPT_RANK=1", "CKPT_SIZE=3"}, 2: {"CKPT_RANK=1", "CKPT_SIZE=3"}}
		refused(t, w, "shell", "rank 1 came twice")
	})
	t.Run("a rank does not come", func(t *testing.T) {
		t.Setenv("CKPT_DEBUG", "patience=3s")
		w := newTogether(t, 3, count(1)...)
		w.Absent = map[int]bool{1: true}
		refused(t, w, "shell", "rank 1 has not come within 3 s")
	})
	t.Run("rank 0 does not come", func(t *testing.T) {
		t.Setenv("CKPT_DEBUG", "patience=3s")
		w := newTogether(t, 2, count(1)...)
		w.Absent = map[int]bool{0: true}
		refused(t, w, "shell", "rank 0 has not come within 3 s")
	})
	t.Run("another number", func(t *testing.T) {
		t.Setenv("CKPT_DEBUG", "patience=3s")
		w := newTogether(t, 3, count(1)...)
		w.RankEnv = map[int][]string{2: {"CKPT_SIZE=4"}}
		refused(t, w, "shell", "has 3 processes, and the launcher started 4")
	})
	t.Run("an MPI program", func(t *testing.T) {
		w := newTogether(t, 2, buildMPI(t, "mpich", "steps"), "stop", "far")
		refused(t, w, "mpich", "started with --ranks")
	})
}

// A directory belongs to one job: another one is told so at once, and the first goes on.
func TestTogetherSecondJob(t *testing.T) {
	const n = 300
	w := newTogether(t, 2, count(n)...)
	must(t, w.Start("shell"))
	goes(t, w)
	for i, numbers := range []bool{true, false} {
		other := newTogether(t, 2, count(1)...)
		other.Run.Dir, other.Arrive, other.starts = w.Run.Dir, !numbers, 10+2*i
		must(t, other.Start("shell"))
		exits, err := other.Wait(togetherLimit)
		must(t, err)
		if slices.Contains(exits, Exit{}) || !strings.Contains(other.Said(), "belongs to a job that runs") {
			t.Errorf("%v: %s", exits, other.Said())
		}
	}
	saveTogether(t, w, "continue")
	must(t, w.MustEnd(togetherLimit))
	wantCount(t, w, n)
}

// The first process that ends is the end of the saving; one that is killed, too, with other words. The others go on.
func TestTogetherOneGone(t *testing.T) {
	const n = 500
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("killed ", killed), func(t *testing.T) {
			w := newTogether(t, 3, "/usr/bin/python3", "-u", "-c", fmt.Sprintf("import os,time\nfor i in range(int(os.environ.get('LAST', '%d'))):\n  print(i)\n  time.sleep(.01)", n))
			if w.RankEnv = map[int][]string{1: {"LAST=1"}}; killed {
				w.RankEnv[1] = []string{"LAST=100000"}
			}
			must(t, w.Start("shell"))
			goes(t, w)
			if killed {
				_ = syscall.Kill(w.launched[1].PID(), syscall.SIGKILL)
			}
			exit, err := w.launched[1].Wait(togetherLimit)
			must(t, err)
			want, words := Exit{}, "rank 1 has ended: an epoch needs all processes"
			if killed {
				want, words = Exit{Signal: syscall.SIGKILL}, "rank 1 is gone, and has not ended by itself"
			}
			if exit != want {
				t.Errorf("rank 1 ended with %v", exit)
			}
			said := ""
			if !Poll(patience, nil, func() bool {
				exit, text, err := w.Ckptctl(t.TempDir(), checkpointLimit, "checkpoint", w.Run.Checkpoints(), "--timeout", "60s")
				said = text
				return err != nil || exit != (Exit{})
			}) || !strings.Contains(said, words) {
				t.Errorf("%s\nwant %q", said, words)
			}
			for _, r := range []int{0, 2} {
				if exit, err := w.launched[r].Wait(togetherLimit); err != nil || exit != (Exit{}) {
					t.Errorf("rank %d: %v, %v", r, exit, err)
				}
			}
			if !killed && strings.Contains(w.Said(), "WARN") {
				t.Errorf("a warning: %s", w.Said())
			}
		})
	}
}
