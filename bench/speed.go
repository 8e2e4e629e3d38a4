// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// Two processors of a shared host talk at several speeds, since its host moves them about on its own: a message takes three
// to five times as long when they have no cache in common, and when they are threads of one core all code is slower. Which
// it is changes from run to run. A median over all says nothing, and a ratio in the slow ones flatters whoever adds the same
// few nanoseconds to each call. So runs are told apart by what the processors themselves take (pair.h), and goals of ratios
// count where ranks should be: on a core each, with a cache in common.

// distance is between the processors of two ranks.
type distance int

const (
	oneCore distance = iota
	near
	far
	distances
)

// What a cache line takes to the other processor and back, in ns: less than the first on two threads of a core
// (55 to 65 were seen), less than the second where a cache is in common (115 to 145; 400 to 500 elsewhere).
const (
	mostInCore  = 90
	mostInCache = 200
)

func distanceOf(apart float64) distance {
	switch {
	case apart < mostInCore:
		return oneCore
	case apart < mostInCache:
		return near
	}
	return far
}

func (d distance) String() string {
	return [...]string{"threads of a core", "a core each", "no cache in common"}[d]
}

// at are the runs of each way at that distance.
func (r *row) at(d distance) []series {
	out := make([]series, len(r.Values))
	for way, values := range r.Values {
		for i, v := range values {
			if distanceOf(r.Apart[way][i]) == d {
				out[way] = append(out[way], v)
			}
		}
	}
	return out
}

// fewest runs of a way that a ratio is made of: the speed of a lone run may be anybody's doing.
const fewest = 3

// ratioAt is that of the last way's median to the native one; 0 when there are too few runs.
func (r *row) ratioAt(d distance) float64 {
	s := r.at(d)
	last := s[len(s)-1]
	if len(s[0]) < fewest || len(last) < fewest {
		return 0
	}
	return last.median() / s[0].median()
}

// judged is what became of a goal of a ratio.
type judged string

const (
	ratioMet    judged = "met"
	ratioMissed judged = "missed"
	ratioOpen   judged = "too few runs to tell"
)

// judge compares with the goal.
func (r *row) judge() judged {
	switch got := r.ratioAt(near); {
	case got == 0:
		return ratioOpen
	case got > r.Ratio:
		return ratioMissed
	}
	return ratioMet
}

// tableOfSpeeds follows the table of a comparison that has goals of ratios.
func (c *comparison) tableOfSpeeds(out *strings.Builder) {
	fmt.Fprintf(out, "\nBy where the processors of the two ranks were; medians, and of how many runs:\n\n")
	last := len(c.Ways) - 1
	head(out, "", "processors", c.Ways[0].Name+", "+c.Unit, c.Ways[last].Name+", "+c.Unit, "ratio", "goal")
	for _, r := range c.Rows {
		for d := range distances {
			s := r.at(d)
			if len(s[0]) == 0 && len(s[last]) == 0 {
				continue
			}
			ratio, goal := "", ""
			if f := r.ratioAt(d); f > 0 {
				ratio = number(f)
			}
			if r.Ratio != 0 && d == near {
				goal = fmt.Sprintf("at most %s: %s", number(r.Ratio), r.judge())
			}
			line(out, r.Name, d.String(), medianOf(s[0]), medianOf(s[last]), ratio, goal)
		}
	}
}

func medianOf(s series) string {
	if len(s) == 0 {
		return "no run"
	}
	return fmt.Sprintf("%s (%d)", number(s.median()), len(s))
}
