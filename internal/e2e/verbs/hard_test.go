// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// oneStands has rank 1 of a job of edges be stopped for a checkpoint while the program of rank 0 still runs: it calls
// meanwhile then, and returns when the checkpoint is made.
func oneStands(t *testing.T, w *e2e.Whole, then string, meanwhile func()) {
	t.Helper()
	w.CkptRun = filepath.Join(built.Root, "build/obj/faults/bin/ckptrun")
	if _, err := os.Stat(w.CkptRun); err != nil {
		t.Fatalf("%v: run make faults first", err)
	}
	stall := filepath.Join(w.Run.Dir, "stall")
	must(t, os.WriteFile(stall, nil, 0o644))
	w.RankEnv = map[int][]string{0: {"CKPT_FAULT=stage.stop=stall", "CKPT_FAULT_STALL=" + stall}}
	must(t, w.Start("shell"))
	ready(t, w)
	l := life{t: t, w: w}
	beat := filepath.Join(w.Run.Dir, "edges", "beat-1")
	if !l.begun() || !e2e.Poll(patience, nil, func() bool { _, err := os.Stat(beat); return err == nil || w.Ended() }) || w.Ended() {
		t.Fatalf("it does not run: %s", w.Said())
	}
	saved := make(chan bool, 1)
	go func() { saved <- l.save(then) }()
	// It stands when nothing changes for long; and more so than the queue pair would wait for a receive.
	last, since := "", time.Now()
	if !e2e.Poll(patience, nil, func() bool {
		if now := mustRead(t, beat); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 2500*time.Millisecond || w.Ended()
	}) || w.Ended() {
		t.Errorf("rank 1 is not stopped before rank 0: %s", w.Said())
	}
	meanwhile()
	must(t, os.Remove(stall))
	if !<-saved {
		t.Fatalf("it was not saved: %s", w.Said())
	}
	w.RankEnv = nil
}

// TestRetriesWhileStopped: a queue pair that waits for receives for 1.3 s only has a peer that is stopped for longer.
func TestRetriesWhileStopped(t *testing.T) {
	need(t)
	for _, then := range []string{"continue", "kill"} {
		t.Run(then, func(t *testing.T) {
			w, letGo := newEdges(t, "stream", 2)
			oneStands(t, w, then, func() {})
			if then == "kill" {
				_, err := w.Wait(jobLimit)
				must(t, err)
				must(t, w.Restart("shell"))
			}
			letGo()
			rightEdges(t, w)
		})
	}
}

// TestEventWhileStopped: a program that sleeps until there is an event is stopped when the message comes.
func TestEventWhileStopped(t *testing.T) {
	need(t)
	w, letGo := newEdges(t, "blocked", 2)
	edges := filepath.Join(w.Run.Dir, "edges")
	oneStands(t, w, "kill", func() {
		must(t, os.WriteFile(filepath.Join(edges, "send"), nil, 0o644))
		if !e2e.Poll(patience, nil, func() bool { _, err := os.Stat(filepath.Join(edges, "sent-0")); return err == nil }) {
			t.Errorf("the message is not sent: %s", w.Said())
		}
	})
	_, err := w.Wait(jobLimit)
	must(t, err)
	must(t, w.Restart("shell"))
	letGo()
	rightEdges(t, w)
}

// savedAndKilled saves a job of edges that is ready, and ends it.
func savedAndKilled(t *testing.T, w *e2e.Whole) {
	t.Helper()
	must(t, w.Start("shell"))
	ready(t, w)
	l := life{t: t, w: w}
	if !l.begun() || !l.save("kill") {
		t.Fatalf("it ended too early: %s", w.Said())
	}
	_, err := w.Wait(jobLimit)
	must(t, err)
}

// refused restarts a job, which must not begin, for the reason want.
func refused(t *testing.T, w *e2e.Whole, want ...string) {
	t.Helper()
	must(t, w.Restart("shell"))
	exits, err := w.Wait(jobLimit)
	must(t, err)
	for rank, exit := range exits {
		if exit == (e2e.Exit{}) {
			t.Errorf("rank %d has ended well", rank)
		}
	}
	for _, words := range want {
		if !strings.Contains(w.Said(), words) {
			t.Errorf("it does not say %q: %s", words, w.Said())
		}
	}
	if said, err := w.Printed("out"); err != nil || strings.Contains(said, "right") {
		t.Errorf("the program has run: %q, %v", said, err)
	}
}

// TestDeviceTooSmall: a device that cannot hold what the program has is named before anything runs.
func TestDeviceTooSmall(t *testing.T) {
	need(t)
	w, letGo := newEdges(t, "small", 2)
	savedAndKilled(t, w)
	w.Env = []string{"CKPTSOFT_MOST_WRS=64"}
	refused(t, w, "no device here can hold queue pair 0x", "it has 200 sends, soft0 allows 64")
	w.Env = nil
	must(t, w.Restart("shell"))
	letGo()
	rightEdges(t, w)
}

// TestDeviceVanishes: what the program has on a device that goes away has failed, also after a restart on another device, on
// which what it makes anew works. The device goes away while the program runs, or while it is being saved.
func TestDeviceVanishes(t *testing.T) {
	need(t)
	for _, saving := range []bool{false, true} {
		t.Run(map[bool]string{false: "running", true: "saving"}[saving], func(t *testing.T) {
			w, letGo := newEdges(t, "vanishes", 2)
			gone := filepath.Join(w.Run.Dir, "gone")
			w.Env = []string{"CKPTSOFT_GONE=" + gone}
			pull := func() { must(t, os.WriteFile(gone, nil, 0o644)) }
			edges := filepath.Join(w.Run.Dir, "edges")
			seen := func() bool {
				names, err := filepath.Glob(filepath.Join(edges, "seen-?"))
				return err == nil && len(names) == w.Ranks
			}
			l := life{t: t, w: w}
			if saving {
				// Both ranks are stopped, and then stand before they are captured.
				w.CkptRun = filepath.Join(built.Root, "build/obj/faults/bin/ckptrun")
				stall := filepath.Join(w.Run.Dir, "stall")
				must(t, os.WriteFile(stall, nil, 0o644))
				w.RankEnv = map[int][]string{0: {"CKPT_FAULT=stage.drain=stop:1"}, 1: {"CKPT_FAULT=stage.drain=stall", "CKPT_FAULT_STALL=" + stall}}
				must(t, w.Start("shell"))
				ready(t, w)
				if !l.begun() {
					t.Fatalf("it ended too early: %s", w.Said())
				}
				saved := make(chan bool, 1)
				go func() { saved <- l.save("kill") }()
				letOn(t, w, pull)
				must(t, os.Remove(stall))
				if !<-saved {
					t.Fatalf("it was not saved: %s", w.Said())
				}
			} else {
				must(t, w.Start("shell"))
				ready(t, w)
				pull()
				if !l.begun() || !e2e.Poll(patience, nil, seen) || !l.save("kill") {
					t.Fatalf("it ended too early: %s", w.Said())
				}
			}
			_, err := w.Wait(jobLimit)
			must(t, err)
			if want := "the InfiniBand device soft0 is gone"; !strings.Contains(w.Said(), want) {
				t.Errorf("it does not say %q: %s", want, w.Said())
			}
			w.Env, w.RankEnv = nil, nil
			must(t, w.Restart("shell"))
			letGo()
			rightEdges(t, w)
		})
	}
}

// letOn waits until a process of the job has stopped itself, does what it is told, and has it go on.
func letOn(t *testing.T, w *e2e.Whole, do func()) {
	t.Helper()
	pid := 0
	if !e2e.Poll(patience, nil, func() bool { pid = stopped(w); return pid != 0 }) {
		t.Fatalf("no rank stops: %s", w.Said())
	}
	do()
	time.Sleep(100 * time.Millisecond) // the other rank's adapter sees it
	must(t, goOn(pid))
}

// TestLateLook: what an event is of is there until the event is given back, though the thread that has read it has not come to
// look at it when another destroys it.
func TestLateLook(t *testing.T) {
	need(t)
	if onRxe {
		needmpi.Skip(t, "no such event on rdma_rxe", "it does not say that a queue pair was flushed")
	}
	w, _ := newEdges(t, "looked", 2)
	w.Env = []string{"LD_PRELOAD=" + filepath.Join(built.Bin, "late"), "LATE_READ=20"}
	must(t, w.Natively())
	rightEdges(t, w)
}

// TestManyEvents: a program that takes no asynchronous events can be saved when it has taken some.
func TestManyEvents(t *testing.T) {
	need(t)
	w, letGo := newEdges(t, "events", 2)
	must(t, w.Start("shell"))
	ready(t, w)
	l := life{t: t, w: w}
	if !l.begun() {
		t.Fatalf("it ended too early: %s", w.Said())
	}
	exit, said, err := w.Ckptctl(t.TempDir(), jobLimit, "checkpoint", w.Run.Checkpoints(), "--timeout", "5s")
	must(t, err)
	want := "more than 16 asynchronous events of the InfiniBand device soft0 wait for the program"
	if exit == (e2e.Exit{}) || !strings.Contains(said, want) {
		t.Errorf("%v: %q, want %q", exit, said, want)
	}
	edges := filepath.Join(w.Run.Dir, "edges")
	must(t, os.WriteFile(filepath.Join(edges, "take"), nil, 0o644))
	if !e2e.Poll(patience, nil, func() bool {
		names, err := filepath.Glob(filepath.Join(edges, "taken-?"))
		return err == nil && len(names) == w.Ranks
	}) || !l.save("kill") {
		t.Fatalf("it is not saved: %s", w.Said())
	}
	_, err = w.Wait(jobLimit)
	must(t, err)
	must(t, w.Restart("shell"))
	letGo()
	rightEdges(t, w)
}
