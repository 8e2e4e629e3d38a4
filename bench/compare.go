// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"
)

// way is one way to run the program of a comparison. The first of a comparison is the native one.
type way struct {
	Name    string   `json:"name"`
	Command []string `json:"-"`
	Shown   string   `json:"command"`
}

// comparison is what one program said in every way, round by round.
type comparison struct {
	Title string `json:"title"`
	Unit  string `json:"unit"`
	Ways  []way  `json:"ways"`
	Rows  []*row `json:"rows"`
	goals map[string]float64
	// ratios are goals of runs with a core for each rank, see speed.go.
	ratios map[string]float64
}

// row is one question. Values are in the comparison's unit.
type row struct {
	Name   string   `json:"name"`
	Goal   float64  `json:"goal,omitempty"`  // largest difference to the native way; 0: none
	Ratio  float64  `json:"ratio,omitempty"` // largest ratio to the native way with a core for each rank; 0: none
	Values []series `json:"values"`          // of each way, one a round
	Apart  []series `json:"apart,omitempty"` // of each way and round, what a cache line took to the other rank and back, ns
	Least  series   `json:"least"`           // of each way, the quickest batch of all rounds
}

// units are what a nanosecond is multiplied with.
var units = map[string]float64{"ns": 1, "us": 1e-3, "ms": 1e-6, "s": 1e-9}

// limitOfRun is enough for any run of a program that is not about large images.
const limitOfRun = 60 * time.Second

// measure runs all ways once a round, in turns: forwards in one round, backwards in the next, so that
// no way always comes after the same other.
func (c *comparison) measure(ctx context.Context, b *bench, rounds int) error {
	fmt.Printf("   %s: %d rounds of %d ways\n", c.Title, rounds, len(c.Ways))
	for i := range c.Ways {
		c.Ways[i].Shown = b.shown(c.Ways[i].Command)
	}
	for round := range rounds {
		for i := range c.Ways {
			if round%2 == 1 {
				i = len(c.Ways) - 1 - i
			}
			answers, err := b.run(ctx, limitOfRun, c.Ways[i].Command)
			if err != nil {
				return err
			}
			if err := c.add(round, i, answers); err != nil {
				return fmt.Errorf("%s: %w", c.Ways[i].Shown, err)
			}
		}
	}
	return nil
}

// add takes the answers of one run. Every run must answer the same questions in the same order.
func (c *comparison) add(round, way int, answers []answer) error {
	if c.Rows == nil {
		for _, a := range answers {
			r := &row{Name: a.name, Goal: c.goals[a.name], Ratio: c.ratios[a.name], Values: make([]series, len(c.Ways)), Least: make(series, len(c.Ways))}
			if a.apart > 0 {
				r.Apart = make([]series, len(c.Ways))
			} else if r.Ratio != 0 {
				return fmt.Errorf("there is a goal for the ratio of %q, but no distance of its ranks", a.name)
			}
			c.Rows = append(c.Rows, r)
		}
		for _, goals := range []map[string]float64{c.goals, c.ratios} {
			for name := range goals {
				if c.row(name) == nil {
					return fmt.Errorf("there is a goal for %q, but no answer", name)
				}
			}
		}
	}
	if len(answers) != len(c.Rows) {
		return fmt.Errorf("%d answers, where there were %d before", len(answers), len(c.Rows))
	}
	for i, a := range answers {
		r := c.Rows[i]
		if a.name != r.Name {
			return fmt.Errorf("answers %q, where there was %q before", a.name, r.Name)
		}
		r.Values[way] = append(r.Values[way], a.value*units[c.Unit])
		if r.Apart != nil {
			r.Apart[way] = append(r.Apart[way], a.apart)
		}
		if least := a.least * units[c.Unit]; round == 0 || least < r.Least[way] {
			r.Least[way] = least
		}
		if len(r.Values[way]) != round+1 {
			return fmt.Errorf("%q was answered twice in a round", a.name)
		}
	}
	return nil
}

func (c *comparison) row(name string) *row {
	for _, r := range c.Rows {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// difference and ratio of a way to the native one, paired by round.
func (r *row) difference(way int) series { return pairwise(r.Values[way], r.Values[0], minus) }
func (r *row) ratio(way int) series      { return pairwise(r.Values[way], r.Values[0], over) }
