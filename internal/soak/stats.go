// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"slices"
	"time"
)

// Durations are measurements of one kind.
type Durations []time.Duration

// String tells the median, the 99th percentile and the worst.
func (d Durations) String() string {
	if len(d) == 0 {
		return "none"
	}
	s := slices.Clone(d)
	slices.Sort(s)
	at := func(q float64) time.Duration {
		return s[min(len(s)-1, int(q*float64(len(s))))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("median %v, 99%% within %v, worst %v (%d)", at(0.5), at(0.99), at(1), len(s))
}

// Totals are the results of many lives.
type Totals struct {
	Lives, Cycles, Failures int
	Events                  map[string]int     // what was done, and how often
	Safe, Commit            Durations          // from the request to the safe state, and to the commit
	Programs                map[string]*Totals // the same, by program; nil in these
}

// Add counts one life.
func (t *Totals) Add(l *Life) {
	if t.Programs == nil {
		t.Programs = map[string]*Totals{}
	}
	p := t.Programs[l.Program.Name]
	if p == nil {
		p = &Totals{}
		t.Programs[l.Program.Name] = p
	}
	t.add(l)
	p.add(l)
}

func (t *Totals) add(l *Life) {
	t.Lives++
	t.Cycles += l.Cycles
	if l.Err != nil {
		t.Failures++
	}
	if t.Events == nil {
		t.Events = map[string]int{}
	}
	for name, n := range l.Events {
		t.Events[name] += n
	}
	t.Safe = append(t.Safe, l.Safe...)
	t.Commit = append(t.Commit, l.Commit...)
}
