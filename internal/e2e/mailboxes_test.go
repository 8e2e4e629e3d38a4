// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// passing prepares a job of mailboxes.c.
func passing(t *testing.T, n int) (w *Whole, key int) {
	t.Helper()
	w = newTogether(t, n)
	w.Together = true
	segmentsKey++
	key = segmentsKey
	w.Argv = []string{built.Bin + "/mailboxes", fmt.Sprintf("%#x", key), "50", w.Run.Dir + "/end"}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, option := range []string{"-S", "-Q"} { // the program had no end
			_ = exec.Command("ipcrm", option, fmt.Sprintf("%#x", key)).Run()
		}
	})
	return w, key
}

// mailboxSet is the job's set of semaphores; below 0: there is none.
func mailboxSet(key int) int {
	id, _, e := unix.Syscall(unix.SYS_SEMGET, uintptr(key), 0, 0)
	if e != 0 {
		return -1
	}
	return int(id)
}

// privateObjects are sets of semaphores, and queues, without a key that have as many of what is in them as only mailboxes.c's.
func privateObjects(t *testing.T) (n int) {
	t.Helper()
	for line := range strings.Lines(string(mustRead(t, "/proc/sysvipc/sem"))) {
		if f := strings.Fields(line); len(f) > 3 && f[0] == "0" && f[3] == "5" {
			n++
		}
	}
	for line := range strings.Lines(string(mustRead(t, "/proc/sysvipc/msg"))) {
		if f := strings.Fields(line); len(f) > 4 && f[0] == "0" && f[3] == "56" && f[4] == "7" {
			n++
		}
	}
	return n
}

// Processes that wait for each other by semaphores and message queues are saved, killed and continued, twice from the same
// epoch: values, messages, ids, owners of the last change, and what the kernel undoes when a process ends, stay, and nothing is
// left behind.
func TestMailboxes(t *testing.T) {
	for _, n := range []int{3, 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			before := privateObjects(t)
			w, key := passing(t, n)
			must(t, w.Start("shell", options()...))
			goes(t, w)
			saveTogether(t, w, "continue")
			for i := range 4 {
				lifeAfter(t, w, i%2 == 0)
			}
			goodEnd(t, w)
			if mailboxSet(key) >= 0 || privateObjects(t) != before {
				t.Error("some are left")
			}
		})
	}
}

func TestMailboxesElsewhere(t *testing.T) {
	w, _ := passing(t, 1)
	elsewhere(t, w)
}

func TestMailboxesTwoNodes(t *testing.T) {
	w, _ := passing(t, 2)
	onTwoNodes(t, w)
}

// A set that a process outside the job uses, too, is refused as long as that is so.
func TestMailboxesOfStrangers(t *testing.T) {
	w, key := passing(t, 2)
	must(t, w.Start("shell", options()...))
	goes(t, w)
	stranger := exec.Command("/usr/bin/python3", "-c",
		fmt.Sprintf("import ctypes; ctypes.CDLL(None).semop(%d, (ctypes.c_short*3)(0, -1000, 0), 1)", mailboxSet(key)))
	must(t, stranger.Start())
	t.Cleanup(func() { _ = stranger.Process.Kill() })
	said := ""
	if !Poll(patience, nil, func() bool {
		exit := Exit{}
		exit, said, _ = w.Ckptctl(t.TempDir(), checkpointLimit, "checkpoint", w.Run.Checkpoints(), "--timeout", "2s")
		return exit != Exit{} && strings.Contains(said, fmt.Sprintf("(key %#x) is used by a process that waits for it, outside the job, too", key))
	}) {
		t.Errorf("checkpoint: %q", said)
	}
	must(t, stranger.Process.Kill())
	_ = stranger.Wait()
	saveTogether(t, w, "continue")
	lifeAfter(t, w, false)
	goodEnd(t, w)
}

// A restart from a copy of a checkpoint that does not say whose it is, while the job goes on, is refused, and the job is not hurt.
func TestMailboxesBesideLivingJob(t *testing.T) {
	w, key := passing(t, 2)
	must(t, w.Start("shell", options()...))
	goes(t, w)
	saveTogether(t, w, "continue")
	other := newTogether(t, 2)
	must(t, exec.Command("cp", "-a", w.Run.Checkpoints(), other.Run.Checkpoints()).Run())
	must(t, os.Remove(other.Run.Checkpoints()+"/job.json"))
	must(t, os.RemoveAll(other.Run.Checkpoints()+"/lease"))
	must(t, other.Restart("shell", options()...))
	status, err := other.Wait(togetherLimit)
	must(t, err)
	if said := other.Said(); !strings.Contains(said, "its key is in use on host ") || !strings.Contains(said, fmt.Sprintf("`ipcrm -S %#x`", key)) {
		t.Errorf("it ends with %v and says %q", status, said)
	}
	goodEnd(t, w)
}
