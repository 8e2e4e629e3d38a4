// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Two processors of a shared host talk at two speeds: quickly while what they share is near both of them, three to
// five times slower else. Which of the two holds changes from run to run. A median over both says nothing, and a
// ratio in the slow one flatters whoever adds the same few nanoseconds to each call. So both are reported, and
// goals of ratios count in the quick one.

// gap is between two speeds of one question, as a factor; what varies less is one speed.
const gap = 1.4

// split is the limit between the two speeds of a series; 0 when there is one.
func split(s series) float64 {
	sorted := slices.Sorted(slices.Values(s))
	limit, widest := 0.0, gap
	for i := 1; i < len(sorted); i++ {
		if f := sorted[i] / sorted[i-1]; f >= widest {
			limit, widest = math.Sqrt(sorted[i]*sorted[i-1]), f
		}
	}
	return limit
}

// speeds are the runs of each way, quick ones and slow ones; nil in place of those that there are not.
type speeds struct {
	quick, slow []series
}

// speeds tells by the time that each way took; ok is false when the native way has one speed, or another way
// one of which nobody can tell which it is.
func (r *row) speeds() (s speeds, ok bool) {
	one := speeds{quick: r.Values}
	native := split(r.Values[0])
	if native == 0 {
		return one, false
	}
	for _, values := range r.Values {
		limit := split(values)
		if limit == 0 { // all its runs were quick if they are quicker than natively in the slow ones
			limit = math.Inf(1)
			if values.median() >= s.slow[0].median() {
				return one, false
			}
		}
		var quick, slow series
		for _, v := range values {
			if v < limit {
				quick = append(quick, v)
			} else {
				slow = append(slow, v)
			}
		}
		s.quick, s.slow = append(s.quick, quick), append(s.slow, slow)
	}
	return s, true
}

// ratioOf is that of a way's median to the native one; 0 when one of them has no run.
func ratioOf(values []series, way int) float64 {
	if len(values[0]) == 0 || len(values[way]) == 0 {
		return 0
	}
	return values[way].median() / values[0].median()
}

// quickRatio is what a goal of a ratio is compared with.
func (r *row) quickRatio() float64 {
	s, _ := r.speeds()
	return ratioOf(s.quick, len(s.quick)-1)
}

// judged is what became of a goal of a ratio.
type judged string

const (
	ratioMet    judged = "met"
	ratioMissed judged = "missed"
	ratioOpen   judged = "one speed was seen, which may be the slow one"
)

// judge compares with the goal. A ratio that is too large is so at any speed.
func (r *row) judge() judged {
	s, two := r.speeds()
	switch got := ratioOf(s.quick, len(s.quick)-1); {
	case got == 0 || got > r.Ratio:
		return ratioMissed
	case !two:
		return ratioOpen
	}
	return ratioMet
}

// tableOfSpeeds follows the table of a comparison that has goals of ratios.
func (c *comparison) tableOfSpeeds(out *strings.Builder) {
	fmt.Fprintf(out, "\nThe quick runs, and the slow ones, by what each took; medians, and of how many runs:\n\n")
	last := len(c.Ways) - 1
	head(out, "", "quick: "+c.Ways[0].Name+", "+c.Unit, c.Ways[last].Name+", "+c.Unit, "ratio", "goal",
		"slow: "+c.Ways[0].Name+", "+c.Unit, c.Ways[last].Name+", "+c.Unit, "ratio")
	for _, r := range c.Rows {
		s, ok := r.speeds()
		goal := "none"
		if r.Ratio != 0 {
			goal = fmt.Sprintf("at most %s: %s", number(r.Ratio), r.judge())
		}
		cells := append(append([]string{r.Name}, cellsOfSpeed(s.quick, last)...), goal)
		if ok {
			cells = append(cells, cellsOfSpeed(s.slow, last)...)
		} else {
			cells = append(cells, "one speed", "", "")
		}
		line(out, cells...)
	}
}

func cellsOfSpeed(values []series, way int) []string {
	ratio := "no run"
	if f := ratioOf(values, way); f > 0 {
		ratio = number(f)
	}
	return []string{medianOf(values[0]), medianOf(values[way]), ratio}
}

func medianOf(s series) string {
	if len(s) == 0 {
		return "no run"
	}
	return fmt.Sprintf("%s (%d)", number(s.median()), len(s))
}
