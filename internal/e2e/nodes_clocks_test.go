// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Calendars differ by days between nodes, and are set while the job runs. Nothing that a job does may depend on them: when
// it is saved, who owns its directory, and for how long it stood. (The kernel has one calendar for all namespaces:
// calendar.c gives each process that of its node.)
func TestNodesClocks(t *testing.T) {
	needNodes(t)
	const day = 86400
	for _, mpi := range mpis {
		t.Run(mpi, func(t *testing.T) {
			t.Parallel()
			a := newAwaits(t, mpi)
			r := newRoom(t, a.run.Dir, 4)
			clocks := filepath.Join(a.run.Dir, "clocks")
			must(t, os.Mkdir(clocks, 0o755))
			set := func(node, days int) {
				t.Helper()
				name := filepath.Join(clocks, fmt.Sprintf("node%d", node))
				must(t, os.WriteFile(name+".new", fmt.Appendln(nil, days*day), 0o644))
				must(t, os.Rename(name+".new", name))
			}
			launch := func(perNode map[int]int, argv ...string) *Process {
				t.Helper()
				return a.launch(r, perNode, append([]string{filepath.Join(built.Bin, "calendar"), clocks, built.CkptRun()}, argv...)...)
			}
			more := func(p *Process, n int, what string) {
				t.Helper()
				before := a.newest(t)
				if !Poll(mpiLimit, p.Done(), func() bool { return a.newest(t) >= before+n }) {
					t.Fatalf("no more epochs %s: %s", what, mustRead(t, a.run.Stderr))
				}
			}
			set(1, 1)
			set(3, -1)
			set(4, -30)
			restart := func(perNode map[int]int) *Process {
				t.Helper()
				return launch(perNode, "--restart", a.run.Checkpoints(), "--lease", "2s", "--interval", "2s")
			}
			dir := a.run.Checkpoints()
			p := launch(map[int]int{1: 1, 2: 1, 3: 1}, append([]string{"--dir", dir, "--lease", "2s", "--interval", "2s", "--keep", "9", "--"}, a.argv...)...)
			a.stands(p)
			more(p, 1, "with calendars that differ")
			set(1, -2)
			more(p, 2, "after rank 0's calendar went back by three days")
			set(2, 3)
			set(1, 5)
			more(p, 2, "after calendars went forward by days")

			// Whoever sees another day may not take the directory of a job that lives.
			for _, node := range []int{1, 4} {
				other, err := NewRun(filepath.Join(a.run.Dir, fmt.Sprint("other", node))) // where the nodes can be in
				must(t, err)
				must(t, other.Once(mpiLimit, r.mpiexec(mpi, map[int]int{node: 3}, filepath.Join(built.Bin, "calendar"), clocks, built.CkptRun(), "--restart", dir)...))
				if said := string(mustRead(t, other.Stderr)); other.Exit == (Exit{}) || !strings.Contains(said, "a job that runs") || p.Ended() {
					t.Fatalf("a second restart, on node %d: %v: %s\nthe job: %s", node, other.Exit, said, mustRead(t, a.run.Stderr))
				}
			}
			a.save(r, p, "kill")

			// From a calendar that is ahead to those that are behind: the epoch is of a day that has not come there.
			p = restart(map[int]int{3: 2, 4: 1})
			more(p, 1, "where the newest one is of a later day")
			a.mark.KillAll() // with the lease as it was
			<-p.Done()
			// And back: the lease was renewed a month ago, as it seems. It is over when it has not been for as long as it lasts.
			p = restart(map[int]int{1: 2, 2: 1})
			more(p, 1, "after a restart where the lease seems old")
			a.save(r, p, "kill")
			a.letGo()
			a.ends(restart(map[int]int{4: 1, 1: 1, 2: 1}), 3)

			exit, said := a.ckptctl(r, "trace", dir)
			var trace struct {
				TraceEvents []struct {
					Name string
					Ph   string
					Dur  float64 // microseconds
				}
			}
			if err := json.Unmarshal([]byte(said), &trace); err != nil || exit != (Exit{}) || len(trace.TraceEvents) == 0 {
				t.Fatalf("ckptctl trace: %v, %v: %s", exit, err, said)
			}
			for _, e := range trace.TraceEvents {
				if took := time.Duration(e.Dur) * time.Microsecond; took < 0 || took > time.Hour {
					t.Errorf("%s took %v", e.Name, took)
				}
			}
		})
	}
}
