// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/internal/e2e"
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

// TestEdgesContinued saves a job in moments that are hard, kills it, and continues it, twice; in the other case it
// goes on after the first checkpoint.
func TestEdgesContinued(t *testing.T) {
	need(t)
	for _, name := range []string{"late", "event", "numbers", "forks"} {
		t.Run(name, func(t *testing.T) {
			w, letGo := newEdges(t, name, 2)
			must(t, w.Start("shell"))
			ready(t, w)
			l := life{t: t, w: w}
			for range 2 {
				if !l.begun() || !l.save("kill") {
					t.Fatalf("it ended too early: %s", w.Said())
				}
				_, err := w.Wait(jobLimit)
				must(t, err)
				must(t, w.Restart("shell"))
			}
			letGo()
			rightEdges(t, w)
		})
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

// TestForeignPeer: a connection that leads out of the job is named, and the job goes on.
func TestForeignPeer(t *testing.T) {
	need(t)
	w, _ := newEdges(t, "foreign", 1)
	must(t, w.Start("shell"))
	ready(t, w)
	exit, said, err := w.Ckptctl(t.TempDir(), jobLimit, "checkpoint", w.Run.Checkpoints(), "--timeout", "5s")
	must(t, err)
	want := "is connected to lid 5, queue pair 0x0002b1, which is no process of this job"
	if exit == (e2e.Exit{}) || !strings.Contains(said, want) {
		t.Errorf("%v: %q, want %q", exit, said, want)
	}
	if w.Ended() {
		t.Errorf("the job has ended: %s", w.Said())
	}
}
