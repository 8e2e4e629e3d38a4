// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// newEdges prepares a job of edges, which waits for the file go before it looks at what became of it.
func newEdges(t *testing.T, name string, ranks int) (w *e2e.Whole, letGo func()) {
	t.Helper()
	dir := t.TempDir()
	meet := filepath.Join(dir, "edges")
	must(t, os.Mkdir(meet, 0o755))
	w, err := e2e.NewWhole(built, dir, filepath.Join(built.Bin, "edges"), name, meet)
	must(t, err)
	w.Ranks, w.Together = ranks, true
	t.Cleanup(w.Mark.KillAll)
	return w, func() { must(t, os.WriteFile(filepath.Join(meet, "go"), nil, 0o644)) }
}

// ready waits until each rank has done what makes a checkpoint hard.
func ready(t *testing.T, w *e2e.Whole) {
	t.Helper()
	if !e2e.Poll(patience, nil, func() bool {
		said, err := w.Printed("out")
		return err == nil && strings.Count(said, ": ready\n") == w.Ranks
	}) {
		t.Fatalf("it is not ready: %s", w.Said())
	}
}

func rightEdges(t *testing.T, w *e2e.Whole) {
	t.Helper()
	must(t, w.MustEnd(jobLimit))
	said, err := w.Printed("out")
	must(t, err)
	if n := strings.Count(said, ": right\n"); n != w.Ranks {
		t.Errorf("%d of %d ranks say that all was right: %s%s", n, w.Ranks, said, w.Said())
	}
}

// TestEdgesContinued saves a job in moments that are hard, kills it, and continues it, over TCP and on the adapter; in the other
// case it goes on after the first checkpoint.
func TestEdgesContinued(t *testing.T) {
	need(t)
	for _, name := range []string{"late", "event", "numbers", "forks", "shared", "limit", "windows", "idle", "reply", "flushed"} {
		if onRxe && name == "flushed" {
			t.Run(name, func(t *testing.T) {
				needmpi.Skip(t, "no such event on rdma_rxe", "it does not say that a queue pair was flushed")
			})
			continue
		}
		t.Run(name, func(t *testing.T) {
			w, letGo := newEdges(t, name, 2)
			must(t, w.Start("shell"))
			ready(t, w)
			l := life{t: t, w: w}
			for _, back := range []string{"tcp", "ibv", "ibv"}[few(0, 2):] {
				if !l.begun() || !l.save("kill") {
					t.Fatalf("it ended too early: %s", w.Said())
				}
				_, err := w.Wait(jobLimit)
				must(t, err)
				w.Env = []string{"CKPT_VERBS=" + back}
				anotherDevice(t)
				must(t, w.Restart("shell"))
			}
			letGo()
			rightEdges(t, w)
		})
		if onRxe && name != "late" && name != "event" {
			continue // for the time that it takes
		}
		t.Run(name+",resumed", func(t *testing.T) {
			w, letGo := newEdges(t, name, 2)
			must(t, w.Start("shell"))
			ready(t, w)
			l := life{t: t, w: w}
			if !l.begun() || !l.save("continue") {
				t.Fatalf("it ended too early: %s", w.Said())
			}
			letGo()
			rightEdges(t, w)
		})
	}
}

// TestAddressChanged: datagrams of RoCE, before which there is a header of IPv4, go on where the adapter has another address.
func TestAddressChanged(t *testing.T) {
	need(t)
	if !onRxe {
		needmpi.Skip(t, "no rdma_rxe", "an adapter on Ethernet is needed: make test-verbs-vm")
	}
	for _, then := range []string{"same", "another"} {
		t.Run(then, func(t *testing.T) {
			w, letGo := newEdges(t, "reply", 2)
			w.Env = []string{"EDGES_GID=1"}
			savedAndKilled(t, w)
			w.Env = nil
			if then == "same" {
				anotherDevice(t)
			} else {
				anotherAddress(t)
			}
			must(t, w.Restart("shell"))
			letGo()
			rightEdges(t, w)
		})
	}
}

// TestForeignPeer: a connection that leads out of the job is named, and the job goes on.
func TestForeignPeer(t *testing.T) {
	need(t)
	w, _ := newEdges(t, "foreign", 1)
	must(t, w.Start("shell"))
	ready(t, w)
	exit, said, err := w.Ckptctl(t.TempDir(), jobLimit, "checkpoint", w.Run.Checkpoints(), "--timeout", "5s")
	must(t, err)
	want := "is connected to lid 5, queue pair 0x0002b1, which is no process of this job"
	if onRxe {
		want = ", queue pair 0x0002b1, which is no process of this job" // behind a gid
	}
	if exit == (e2e.Exit{}) || !strings.Contains(said, want) {
		t.Errorf("%v: %q, want %q", exit, said, want)
	}
	if w.Ended() {
		t.Errorf("the job has ended: %s", w.Said())
	}
}

// stopped is the process of the job that has stopped itself, 0 if none has.
func stopped(w *e2e.Whole) int {
	for _, pid := range w.Mark.Ranks() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if end := strings.LastIndexByte(string(stat), ')'); err == nil && end > 0 && strings.HasPrefix(string(stat[end:]), ") T") {
			return pid
		}
	}
	return 0
}

// goOn has a stopped process run.
func goOn(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }

// TestLateCopy: rank 0 adds to memory of rank 1, whose frozen copy is made late. What rank 0 adds after its own image
// must not be in that of rank 1, so it waits for that copy.
func TestLateCopy(t *testing.T) {
	need(t)
	w, letGo := newEdges(t, "adds", 2)
	w.CkptRun = filepath.Join(built.Root, "build/obj/faults/bin/ckptrun")
	if _, err := os.Stat(w.CkptRun); err != nil {
		t.Fatalf("%v: run make faults first", err)
	}
	stall := filepath.Join(w.Run.Dir, "stall")
	must(t, os.WriteFile(stall, nil, 0o644))
	w.RankEnv = map[int][]string{
		0: {"CKPT_FAULT=stage.snapshot=stop:1"},
		1: {"CKPT_FAULT=stage.snapshot=stall", "CKPT_FAULT_STALL=" + stall},
	}
	must(t, w.Start("shell"))
	ready(t, w)
	sum := filepath.Join(w.Run.Dir, "edges", "sum-0")
	l := life{t: t, w: w}
	if !l.begun() || !e2e.Poll(patience, nil, func() bool { _, err := os.Stat(sum); return err == nil }) {
		t.Fatalf("it ended too early: %s", w.Said())
	}
	saved := make(chan bool, 1)
	go func() { saved <- l.save("continue") }()
	pid, before, early := 0, "", false
	if e2e.Poll(patience, nil, func() bool { pid = stopped(w); return pid != 0 }) {
		before = mustRead(t, sum)
		must(t, goOn(pid))
		// Rank 1 stands. If rank 0 went on, it would add now, and the sum be wrong after a restart.
		early = e2e.Poll(3*time.Second, nil, func() bool { return mustRead(t, sum) != before })
	}
	must(t, os.Remove(stall))
	switch ok := <-saved; {
	case pid == 0:
		t.Fatalf("rank 0 does not come to its copy: %s", w.Said())
	case early:
		t.Fatal("rank 0 goes on while rank 1 has no copy of its memory")
	case !ok:
		t.Fatalf("it was not saved: %s", w.Said())
	}
	must(t, w.Kill(jobLimit, true))
	w.RankEnv = nil
	must(t, w.Restart("shell"))
	if !l.begun() {
		t.Fatalf("it has ended: %s", w.Said())
	}
	letGo()
	rightEdges(t, w)
}
