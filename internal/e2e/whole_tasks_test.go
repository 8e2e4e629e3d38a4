// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libckpt/libckpt/ckpt/store"
)

// leavers is leavers.c.
var leavers = sync.OnceValues(func() (string, error) {
	return compileRuntime(built.Bin, "leavers", filepath.Join(built.Root, "build", "include"))
})

// TestTasksLeave: when all tasks of a process have left, that process takes part in the checkpoints of the others, those
// that the programs ask for and those of operators, and again after a restart.
func TestTasksLeave(t *testing.T) {
	for _, every := range []int{0, 100} {
		t.Run(map[bool]string{true: "asked", false: "called"}[every == 0], func(t *testing.T) {
			t.Parallel()
			const steps = 1500
			start := func() *Whole {
				w := newWholeOf(t, leavers, steps, every)
				w.Ranks = 2
				return w
			}
			native := start()
			must(t, native.Natively())
			must(t, native.MustEnd(wholeLimit))
			w := start()
			w.Env = []string{"LEAVERS_WHOLE=1"}
			must(t, w.Start("shell"))
			asked := 0
			for generation := range 3 {
				if !Poll(wholeLimit, nil, func() bool { return strings.Contains(w.Said(), "all have left") || w.Ended() }) {
					t.Fatalf("nobody leaves\n%s", w.Said())
				}
				before := epochOf(t, w)
				for i := 0; every == 0 && i < 2 && !w.Ended(); i++ {
					dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
					exit, said, err := w.Ckptctl(dir, wholeLimit, "checkpoint", w.Run.Checkpoints(), "--timeout", "60s")
					must(t, err)
					if exit == (Exit{}) {
						asked++
					} else if !w.Ended() {
						t.Fatalf("ckptctl checkpoint: %v: %s\n%s", exit, said, w.Said())
					}
				}
				if !awaitEpochAfter(t, w, before) {
					break
				}
				time.Sleep(50 * time.Millisecond)
				if w.Ended() {
					break
				}
				must(t, w.Kill(wholeLimit, true))
				must(t, w.Restart("shell"))
				t.Logf("generation %d: epochs %d to %d", generation, before, epochOf(t, w))
			}
			must(t, w.MustEnd(wholeLimit))
			if err := w.Same(native); err != nil {
				t.Errorf("%v\n%s", err, w.Said())
			}
			list := mustManifest(t, w)
			if list != "4 ranks in 2 processes: [0 1] [3 2]" {
				t.Errorf("the manifest says %s", list)
			}
			if said := w.Said(); every == 0 && asked == 0 || strings.Contains(said, ": error:") || strings.Contains(said, ": ignore:") {
				t.Errorf("%d requests:\n%s", asked, said)
			}
		})
	}
}

// mustManifest says how many ranks the last epoch has, and where.
func mustManifest(t *testing.T, w *Whole) string {
	t.Helper()
	s, n, err := store.Resolve(w.Run.Checkpoints())
	must(t, err)
	m, err := s.Manifest(n)
	must(t, err)
	text := fmt.Sprintf("%d ranks in %d processes:", m.Ranks, m.Processes)
	for _, im := range m.Images {
		text += fmt.Sprint(" ", im.Tasks)
	}
	return text
}
