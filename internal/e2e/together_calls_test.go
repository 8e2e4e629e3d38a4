// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// rounds prepares a job of rounds.c: 3 processes that call MPIX_Checkpoint. Those of hold ("1-2": rank 1 before round 2)
// wait before their calls.
func rounds(t *testing.T, n int, hold ...string) *Whole {
	t.Helper()
	w := newTogether(t, 3)
	program := filepath.Join(built.Bin, "rounds")
	build := exec.Command("gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror",
		"-I", filepath.Join(built.Root, "build/include"), "-o", program, filepath.Join(built.Src, "rounds.c"),
		"-L", filepath.Join(built.Root, "build/lib"), "-lckpt", "-Wl,-rpath,"+filepath.Join(built.Root, "build/lib"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, os.Mkdir(w.Run.Dir+"/holds", 0o755))
	for _, h := range hold {
		must(t, os.WriteFile(w.Run.Dir+"/holds/hold-"+h, nil, 0o644))
	}
	w.Argv = []string{program, fmt.Sprint(n), w.Run.Dir + "/holds"}
	return w
}

func letGo(t *testing.T, w *Whole, hold string) {
	t.Helper()
	must(t, os.Remove(w.Run.Dir+"/holds/hold-"+hold))
}

// statusHas waits until ckptctl status has all these words.
func statusHas(t *testing.T, w *Whole, words ...string) {
	t.Helper()
	said := ""
	if !Poll(patience, nil, func() bool {
		_, said, _ = w.Ckptctl(t.TempDir(), checkpointLimit, "status", w.Run.Checkpoints())
		for _, word := range words {
			if !strings.Contains(said, word) {
				return w.Ended()
			}
		}
		return true
	}) || w.Ended() {
		t.Fatalf("the status is %s\nwant %q; %s", said, words, w.Said())
	}
}

// printed waits until a rank has printed that.
func printed(t *testing.T, w *Whole, rank int, want string) {
	t.Helper()
	got := ""
	if !Poll(patience, nil, func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("%s.out.%d", w.Files, rank))
		got = string(b)
		return got == want
	}) {
		t.Fatalf("rank %d prints %q, want %q; %s", rank, got, want, w.Said())
	}
}

// MPIX_Checkpoint is collective over processes without MPI: one epoch with all in the call, from which all go on with
// MPIX_CR_STATE_RESTART. Who waits is named, has its signals, and waits on after an epoch that somebody else asked for.
func TestTogetherCalls(t *testing.T) {
	w := rounds(t, 4, "1-2", "1-3")
	must(t, w.Start("shell"))
	before := "round 0\ncheckpoint\nround 1\ncheckpoint\nround 2\n"
	waiting := []string{"in MPIX_Checkpoint, waits for rank 1", "has not called MPIX_Checkpoint, in which ranks 0, 2 wait"}
	for r := range w.Ranks {
		printed(t, w, r, before)
	}
	statusHas(t, w, waiting...)
	if !Poll(patience, nil, func() bool {
		return strings.Contains(w.Said(), "ranks 0, 2 wait in MPIX_Checkpoint for rank 1")
	}) {
		t.Errorf("no warning: %s", w.Said())
	}
	if epoch, err := w.Epoch(); err != nil || epoch != 2 {
		t.Fatalf("epoch %d, %v", epoch, err)
	}
	must(t, syscall.Kill(w.launched[2].PID(), syscall.SIGUSR2))
	if !Poll(patience, nil, func() bool {
		_, err := os.Stat(w.Run.Dir + "/holds/signal-2")
		return err == nil
	}) {
		t.Error("a signal does not reach a process that waits")
	}

	saveTogether(t, w, "kill") // two wait, one computes
	_, err := w.Wait(togetherLimit)
	must(t, err)
	must(t, w.Restart("shell"))
	statusHas(t, w, waiting...)
	letGo(t, w, "1-2")
	for r := range w.Ranks {
		printed(t, w, r, before+"checkpoint\nround 3\n")
	}
	if !Poll(patience, nil, func() bool { epoch, err := w.Epoch(); return err == nil && epoch == 4 }) {
		t.Fatalf("not committed: %s", w.Said())
	}
	must(t, w.Kill(togetherLimit, true))
	letGo(t, w, "1-3")
	must(t, w.Restart("shell"))
	must(t, w.MustEnd(togetherLimit))
	for r := range w.Ranks {
		printed(t, w, r, before+"restart\nround 3\ncheckpoint\n")
	}
}

// Processes that wait in MPIX_Checkpoint are told when one of them has ended, or was killed: nobody waits for ever.
func TestTogetherCallsOneGone(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("killed ", killed), func(t *testing.T) {
			w := rounds(t, 2, "1-1")
			words := "ignore: rank 1 is gone, and has not ended by itself"
			if !killed {
				words = "ignore: rank 1 has ended: an epoch needs all processes"
				w.RankArgv = map[int][]string{1: append(w.Argv, "1")}
			}
			must(t, w.Start("shell"))
			if killed {
				statusHas(t, w, "in MPIX_Checkpoint, waits for rank 1")
				_ = syscall.Kill(w.launched[1].PID(), syscall.SIGKILL)
			}
			exits, err := w.Wait(togetherLimit)
			must(t, err)
			for _, r := range []int{0, 2} {
				got := string(mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, r)))
				if exits[r] != (Exit{}) || !strings.HasPrefix(got, "round 0\ncheckpoint\nround 1\n"+words) {
					t.Errorf("rank %d: %v, %q", r, exits[r], got)
				}
			}
		})
	}
}
