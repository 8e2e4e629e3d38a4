// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A completion came and its event had not, as it is with a kernel's adapter: the event comes after the restart.
func TestLateEvent(t *testing.T) {
	need(t)
	w, letGo := newEdges(t, "event", 2)
	hold := filepath.Join(w.Run.Dir, "hold")
	must(t, os.WriteFile(hold, nil, 0o644))
	w.Env = []string{"CKPTSOFT_HOLD_EVENTS=" + hold}
	savedAndKilled(t, w)
	must(t, os.Remove(hold))
	must(t, w.Restart("shell"))
	letGo()
	rightEdges(t, w)
}

// A job goes on where packets are smaller and fewer reads are answered at once than the program has asked for.
func TestSmallerAdapter(t *testing.T) {
	need(t)
	job := shuffle{ranks: 2, seed: 4, steps: 3000, pace: 200}
	w := newShuffle(t, job)
	must(t, w.Start("shell"))
	l := life{t: t, w: w}
	if !l.begun() || !l.save("kill") {
		t.Fatal("it ended before it was saved")
	}
	_, err := w.Wait(jobLimit)
	must(t, err)
	w.Env = []string{"CKPTSOFT_MTU=1", "CKPTSOFT_RD_ATOMIC=1"}
	must(t, w.Restart("shell"))
	must(t, w.MustEnd(jobLimit))
	must(t, w.Same(job.natively(t)))
}

// Each piece of memory could be registered, and all of them cannot: the restart is refused, and goes on where it can.
func TestAllMemoryLimit(t *testing.T) {
	need(t)
	w, letGo := newEdges(t, "forks", 2)
	savedAndKilled(t, w)
	ckptrun := w.CkptRun
	w.CkptRun = filepath.Join(w.Run.Dir, "limited")
	must(t, os.WriteFile(w.CkptRun, []byte("#!/bin/sh\nulimit -l 4\nexec "+ckptrun+" \"$@\"\n"), 0o755))
	w.Env = []string{"CKPTSOFT_MEMLOCK=1"}
	must(t, w.Restart("shell"))
	exits, err := w.Wait(jobLimit)
	must(t, err)
	want := "with which there would be 8.0 KiB: RLIMIT_MEMLOCK is 4.0 KiB (ulimit -l)"
	if exits[0].Code != 1 || !strings.Contains(w.Said(), want) {
		t.Errorf("%v: %s, want %q", exits, w.Said(), want)
	}
	w.CkptRun = ckptrun
	must(t, w.Restart("shell"))
	letGo()
	rightEdges(t, w)
}
