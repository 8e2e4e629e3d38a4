// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/internal/history"
)

// Living jobs are hurt at random moments of checkpoints, restarts and their ends, and the whole history of each
// is checked. Environment, for longer ones (`make campaign`):
//
//	CKPT_E2E_SEED           the seed; life n has the seed plus n
//	LIBCKPT_CAMPAIGN        so many faults in all
//	LIBCKPT_CAMPAIGN_ONLY   of one kind alone
//	LIBCKPT_CAMPAIGN_STORY  a folder for the stories of all lives
//	LIBCKPT_CAMPAIGN_LOG    a file for the table
func TestCampaign(t *testing.T) {
	needRoot(t)
	seed := fromEnv(t, "CKPT_E2E_SEED", *seedFlag)
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	t.Logf("seed: %d (again with CKPT_E2E_SEED=%d)", seed, seed)
	faults := int(fromEnv(t, "LIBCKPT_CAMPAIGN", 0))
	each := 12
	if faults == 0 {
		each = 3
	}
	y := &faultTally{}
	for n := 0; n < len(mpis) || y.came() < faults; n++ {
		mpi := mpis[n%len(mpis)]
		t.Run(fmt.Sprint(mpi, " ", seed+uint64(n)), func(t *testing.T) {
			l := newHurtLife(t, mpi, buildMPI(t, mpi, "logbook"), seed+uint64(n), y)
			l.judge(l.lead(each), fmt.Sprint(seed+uint64(n)))
		})
	}
	for _, r := range y.rows {
		t.Log(r)
	}
	if path := os.Getenv("LIBCKPT_CAMPAIGN_LOG"); path != "" {
		text := fmt.Sprintf("seed %d\n\n%v", seed, y)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// sweepLife is how many calls of a sweep fail in one life: the history of a longer one takes ever longer to look at.
const sweepLife = 100

// Each system call of the library, the first, the second and so on, fails in a checkpoint, and in a restart: of
// rank 0, which decides, and of another. LIBCKPT_SWEEP=checkpoint or restart has it done; it takes long. Each life is judged at
// its end, so that who has to stop goes on from there: LIBCKPT_SWEEP_FROM is the call to begin with, and
// `-run 'TestEachCallFails$/openmpi1'` has rank 1 above Open MPI alone.
func TestEachCallFails(t *testing.T) {
	what := os.Getenv("LIBCKPT_SWEEP")
	if what != "checkpoint" && what != "restart" {
		t.Skip("an hour's work: LIBCKPT_SWEEP=checkpoint or LIBCKPT_SWEEP=restart has it done")
	}
	needRoot(t)
	first := int(max(1, fromEnv(t, "LIBCKPT_SWEEP_FROM", 1)))
	for _, mpi := range mpis {
		for rank := range 2 {
			t.Run(fmt.Sprint(mpi, rank), func(t *testing.T) {
				y := &faultTally{}
				program := buildMPI(t, mpi, "logbook")
				for from, over := first, false; !over && !t.Failed(); from += sweepLife {
					t.Run(fmt.Sprint("from ", from), func(t *testing.T) {
						l := newHurtLife(t, mpi, program, uint64(from), y)
						var found []history.Violation
						before := len(y.rows)
						found, over = l.sweep(rank, what == "restart", from)
						for _, r := range y.rows[before:] {
							t.Log(r)
						}
						l.judge(found, fmt.Sprint(what, "-", mpi, rank, "-", from))
					})
				}
				t.Logf("\n%v", y)
			})
		}
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	needCommands(t)
	if os.Geteuid() != 0 {
		t.Skip("to hurt processes from the outside needs root")
	}
}

// judge reports what is wrong with the life's history.
func (l *hurtLife) judge(found []history.Violation, name string) {
	l.t.Helper()
	var text strings.Builder
	for _, v := range found {
		fmt.Fprintf(&text, "%5d %v\n", v.Event, v)
	}
	if len(found) > 0 {
		l.t.Errorf("%s\n%s", text.String(), l.story())
	}
	l.tally.violations += len(found)
	l.tally.lives++
	if folder := os.Getenv("LIBCKPT_CAMPAIGN_STORY"); folder != "" {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text.String()+l.story()), 0o644); err != nil {
			l.t.Error(err)
		}
	}
}

// faultTally counts what was done and what came of it.
type faultTally struct {
	rows              []tallied
	lives, violations int
}

type tallied struct{ mpi, fault, stage, where, outcome string }

func (r tallied) String() string {
	return fmt.Sprintf("%-8s %-18s %-9s %-10s %s", r.mpi, r.fault, r.stage, r.outcome, r.where)
}

const neverCame = "never came"

func (y *faultTally) add(mpi string, f *fault, r reply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	row := tallied{mpi: mpi, fault: f.name, stage: "checkpoint", where: f.where, outcome: "failed"}
	if r.then == "restart" || r.then == "end" {
		row.stage = r.then
	}
	if row.where == "" {
		row.where = neverCame
	}
	if r.epoch != 0 {
		row.outcome = "done"
	}
	y.rows = append(y.rows, row)
}

// came is how many faults there were.
func (y *faultTally) came() int {
	n := 0
	for _, r := range y.rows {
		if r.where != neverCame {
			n++
		}
	}
	return n
}

// String is a table: by fault and stage, how often it came, and how often what it came into was done all the
// same.
func (y *faultTally) String() string {
	type cell struct{ came, done int }
	table := map[string]map[string]*cell{}
	mpis := map[string]int{}
	for _, r := range y.rows {
		if r.where == neverCame {
			continue
		}
		if table[r.fault] == nil {
			table[r.fault] = map[string]*cell{"checkpoint": {}, "restart": {}, "end": {}}
		}
		c := table[r.fault][r.stage]
		c.came++
		mpis[r.mpi]++
		if r.outcome == "done" {
			c.done++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d lives, %d faults (%v), %d violations\n\n", y.lives, y.came(), mpis, y.violations)
	fmt.Fprintf(&b, "%-18s %22s %22s %22s\n", "", "checkpoint: came, done", "restart: came, done", "end: came, done")
	for _, name := range slices.Sorted(maps.Keys(table)) {
		fmt.Fprintf(&b, "%-18s", name)
		for _, stage := range []string{"checkpoint", "restart", "end"} {
			fmt.Fprintf(&b, " %17d %4d", table[name][stage].came, table[name][stage].done)
		}
		b.WriteString("\n")
	}
	return b.String()
}
