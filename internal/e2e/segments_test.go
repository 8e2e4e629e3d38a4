// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// segmentsKey is that of the next job of segments.c.
var segmentsKey = 0x436b0000 | os.Getpid()&0xff<<8

// sharing prepares a job of segments.c.
func sharing(t *testing.T, n, steps int) (w *Whole, key int) {
	t.Helper()
	w = newTogether(t, n)
	segmentsKey++
	key = segmentsKey
	w.Argv = []string{built.Bin + "/segments", fmt.Sprintf("%#x", key), fmt.Sprint(steps), w.Run.Dir + "/end"}
	before := sharedIDs(t)
	t.Cleanup(func() {
		for id := range sharedIDs(t) {
			if !before[id] {
				if !t.Failed() { // else the program had no end
					t.Errorf("the segment %s is left", id)
				}
				_ = exec.Command("ipcrm", "-m", id).Run()
			}
		}
	})
	return w, key
}

// sharedIDs are those of segments of the size that only segments.c has.
func sharedIDs(t *testing.T) map[string]bool {
	t.Helper()
	ids := map[string]bool{}
	for line := range strings.Lines(string(mustRead(t, "/proc/sysvipc/shm"))) {
		if f := strings.Fields(line); len(f) > 4 && (f[3] == "12248" || f[3] == "12280") {
			ids[f[1]] = true
		}
	}
	return ids
}

// goodEnd lets the processes of a job of segments.c come to their end, which they say is good.
func goodEnd(t *testing.T, w *Whole) {
	t.Helper()
	must(t, os.WriteFile(w.Run.Dir+"/end", nil, 0o644))
	must(t, w.MustEnd(togetherLimit))
	for r := range w.Ranks {
		if got := string(mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, r))); got != "begun\ngood\n" {
			t.Errorf("rank %d says %q", r, got)
		}
	}
}

// lifeAfter kills a job, at once or by a last checkpoint, and continues it.
func lifeAfter(t *testing.T, w *Whole, save bool) {
	t.Helper()
	if save {
		saveTogether(t, w, "kill")
		_, err := w.Wait(togetherLimit)
		must(t, err)
	} else {
		must(t, w.Kill(togetherLimit, true))
	}
	must(t, w.Restart("shell", options()...))
	if !Poll(patience, nil, func() bool { return answers(w.Run.Checkpoints()) || w.Ended() }) || w.Ended() {
		t.Fatalf("it was not continued: %s", w.Said())
	}
}

// Processes that share System V memory, and one by itself, are saved, killed and continued, twice from the same epoch: what
// is in the segments, their ids and all that can be asked of them stays, and none is left behind.
func TestSegments(t *testing.T) {
	for _, n := range []int{3, 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w, _ := sharing(t, n, 50)
			if n == 1 {
				w.Together = true
			}
			must(t, w.Start("shell", options()...))
			goes(t, w)
			saveTogether(t, w, "continue")
			for i := range 4 {
				lifeAfter(t, w, i%2 == 0)
			}
			goodEnd(t, w)
		})
	}
}

// inNamespace has ckptrun run where ids of System V segments are others, as on another node.
func inNamespace(t *testing.T, w *Whole) {
	t.Helper()
	if err := exec.Command("unshare", "--ipc", "true").Run(); err != nil {
		needmpi.Skip(t, "no namespaces", fmt.Sprintf("unshare --ipc: %v", err))
	}
	w.CkptRun = filepath.Join(w.Run.Dir, "elsewhere")
	must(t, os.WriteFile(w.CkptRun, []byte("#!/bin/sh\nexec unshare --ipc "+built.CkptRun()+" \"$@\"\n"), 0o755))
}

// elsewhere has a job saved and continued where objects get other ids, of which the program knows nothing.
func elsewhere(t *testing.T, w *Whole) {
	t.Helper()
	inNamespace(t, w)
	must(t, w.Start("shell", options()...))
	goes(t, w)
	saveTogether(t, w, "continue")
	for i := range 3 {
		lifeAfter(t, w, i == 1)
	}
	goodEnd(t, w)
}

// onTwoNodes has a job of two processes saved on one node, where it is continued, after it was not on two.
func onTwoNodes(t *testing.T, w *Whole) {
	t.Helper()
	must(t, w.Start("shell", options()...))
	goes(t, w)
	saveTogether(t, w, "kill")
	_, err := w.Wait(togetherLimit)
	must(t, err)
	inNamespace(t, w)
	must(t, w.Restart("shell", options()...))
	_, err = w.Wait(togetherLimit)
	must(t, err)
	if said := w.Said(); !strings.Contains(said, "was shared by ranks [0 1] on one node, but ranks 0 and 1, both on host ") ||
		!strings.Contains(said, "are in different IPC namespaces: start these ranks on one node") {
		t.Errorf("it says %q", said)
	}
	w.CkptRun = built.CkptRun()
	must(t, w.Restart("shell", options()...))
	goodEnd(t, w)
}

func TestSegmentsElsewhere(t *testing.T) {
	w, _ := sharing(t, 1, 50)
	elsewhere(t, w)
}

// What was shared on one node is not continued on several.
func TestSegmentsTwoNodes(t *testing.T) {
	w, key := sharing(t, 2, 50)
	onTwoNodes(t, w)
	if _, err := unix.SysvShmGet(key, 0, 0); err == nil {
		t.Errorf("the segment is left")
	}
}

// A segment that a process outside the job has attached, too, is refused, and that process named.
func TestSegmentsOfStrangers(t *testing.T) {
	w, key := sharing(t, 2, 50)
	w.Env = []string{"SEGMENTS_STRANGERS=1"}
	must(t, w.Start("shell", options()...))
	goes(t, w)
	id, err := unix.SysvShmGet(key, 0, 0)
	must(t, err)
	memory, err := unix.SysvShmAttach(id, 0, 0)
	must(t, err)
	exit, said, err := w.Ckptctl(t.TempDir(), checkpointLimit, "checkpoint", w.Run.Checkpoints(), "--timeout", "30s")
	want := fmt.Sprintf("is attached by process %d (e2e.test), outside the job, too", os.Getpid())
	if err != nil || exit == (Exit{}) || !strings.Contains(said, want) {
		t.Errorf("checkpoint: %v %v %q, want %q", exit, err, said, want)
	}
	must(t, unix.SysvShmDetach(memory))
	saveTogether(t, w, "continue")
	lifeAfter(t, w, false)
	goodEnd(t, w)
}
