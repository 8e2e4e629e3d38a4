// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/collclock/scenario"
)

// entry is a line of what a rank of a job wrote down (CKPT_DEBUG=clocktrace).
type entry struct {
	time            int64
	rank            int
	what, clock     string
	value, returned int
}

func parseRecords(rank int, text string) ([]entry, error) {
	var all []entry
	for line := range strings.Lines(text) {
		r := entry{rank: rank}
		want := 4
		if strings.Contains(line, " counted ") {
			want = 5
		}
		if n, err := fmt.Sscan(line, &r.time, &r.what, &r.clock, &r.value, &r.returned); n != want {
			return nil, fmt.Errorf("rank %d wrote %q: %w", rank, line, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// ReadTrace translates what the ranks of a job that ran the program wrote down, up to the end of the
// first epoch. The job's communicators are those that the program declares, made in that order.
func ReadTrace(p *scenario.Program, texts []string) (*Trace, error) {
	n := len(clocks(p))
	t := &Trace{calls: make([]int, p.Ranks*n), returns: make([]int, p.Ranks*n)}
	var all []entry
	index := map[string]int{} // of a clock, by its name in the traces
	for rank, text := range texts {
		records, err := parseRecords(rank, text)
		if err != nil {
			return nil, err
		}
		if err := nameClocks(p, rank, records, index); err != nil {
			return nil, err
		}
		end := slices.IndexFunc(records, func(r entry) bool { return r.what == collclock.TraceResume.String() })
		if end < 0 {
			return nil, fmt.Errorf("rank %d has not seen the end of an epoch", rank)
		}
		all = append(all, records[:end+1]...)
	}
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.time, b.time) })
	for _, r := range all {
		if clock, ok := index[r.clock]; ok && r.what == "counted" {
			t.calls[r.rank*n+clock], t.returns[r.rank*n+clock] = r.value, r.returned
		}
	}
	for _, r := range all {
		t.addRecord(p, r, index)
	}
	return t, nil
}

// nameClocks finds out which clock of the program each clock of a rank's trace is.
func nameClocks(p *scenario.Program, rank int, records []entry, index map[string]int) error {
	world := collclock.World()
	var made []string
	for _, r := range records {
		if r.what == collclock.TraceCreate.String() && r.clock != world.String() {
			made = append(made, r.clock)
		}
	}
	for i, c := range clocks(p) {
		switch {
		case c.ID == world:
			index[world.String()] = i
		case !slices.Contains(c.Members, int32(rank)):
		case len(made) == 0:
			return fmt.Errorf("rank %d made no communicator %s", rank, c.Name)
		default:
			index[made[0]], made = i, made[1:]
		}
	}
	return nil
}

// addRecord appends a line's step, unless the counters told of it before the machine was told.
func (t *Trace) addRecord(p *scenario.Program, r entry, index map[string]int) {
	clock, ok := index[r.clock]
	if !ok {
		clock = -1
	}
	for _, kind := range events {
		if kind.String() != r.what {
			continue
		}
		if clock >= 0 {
			at := r.rank*len(clocks(p)) + clock
			switch {
			case kind == collclock.TraceReturn && r.value <= t.returns[at],
				(kind == collclock.TraceCall || kind == collclock.TraceEnter) && r.value <= t.calls[at]:
				return
			}
		}
		t.add(p, kind, r.rank, clock, r.value)
	}
}
