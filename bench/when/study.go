// SPDX-License-Identifier: Apache-2.0

package when

import (
	"fmt"
	"math"
	"slices"

	"github.com/libckpt/libckpt/ckpt/period"
)

// Case is a job on a machine.
type Case struct {
	Name     string
	Job      Job
	Failures period.Failures // as the chooser is told
	Traces   []Trace
	Levels   [period.Top + 1]bool
}

// Result is what came out: means over the traces, in seconds, and the choice that held at the end of the first trace.
type Result struct {
	Case       *Case
	Chosen     float64
	Last       period.Choice
	Best       float64
	BestPeriod float64
	BestEvery  period.Every
	Played     int // fixed settings that were tried
}

// Excess is how much longer than with the best the job takes with what was chosen; 0.05 is the goal.
func (r *Result) Excess() float64 { return r.Chosen/r.Best - 1 }

// Waste is the time beyond the work, as a share of the time.
func Waste(work, total float64) float64 { return 1 - work/total }

// Run plays a case with the chooser, and searches the best fixed setting for the same traces.
func (c *Case) Run() (*Result, error) {
	r := &Result{Case: c}
	for i, t := range c.Traces {
		p := Chosen{period.NewChooser(period.Settings{Failures: c.Failures, Local: c.Job.Local, Levels: c.Levels})}
		took, err := Play(c.Job, p, t, uint64(i))
		if err != nil {
			return nil, fmt.Errorf("%s, trace %d: %w", c.Name, i, err)
		}
		r.Chosen += took / float64(len(c.Traces))
		if i == 0 {
			r.Last, _ = p.Choice()
		}
	}
	c.hindsight(r)
	return r, nil
}

// step is the ratio of neighbouring periods in the search.
const step = 1.12

// hindsight searches the period and the policy with the least mean time, from several beginnings, always to the best
// neighbour. It knows the traces; a chooser cannot.
func (c *Case) hindsight(r *Result) {
	type setting struct {
		period int // power of step
		every  period.Every
	}
	known := map[setting]float64{}
	try := func(s setting) float64 {
		if v, ok := known[s]; ok {
			return v
		}
		sum := 0.0
		for i, t := range c.Traces {
			took, err := Play(c.Job, NewFixed(math.Pow(step, float64(s.period)), s.every), t, uint64(i))
			if err == errShort { // far from the best
				took = never
			}
			sum += took / float64(len(c.Traces))
		}
		known[s] = sum
		return sum
	}
	r.Best = never
	for _, e := range c.beginnings(r.Last.Every) {
		mean := c.Failures.Mean().Seconds()
		cost := c.Job.Costs.Stop.Seconds() + c.Job.Slow*c.Job.Costs.Write.Seconds()
		at := setting{int(math.Log(math.Sqrt(2*cost*mean)+cost) / math.Log(step)), e}
		best := try(at)
		for {
			to, value := at, best
			for _, d := range []int{-4, -2, -1, 1, 2, 4} {
				s := setting{at.period + d, at.every}
				if v := try(s); v < value {
					to, value = s, v
				}
			}
			for _, e := range neighbours(at.every, c.Levels) {
				s := setting{at.period, e}
				if v := try(s); v < value {
					to, value = s, v
				}
			}
			if to == at {
				break
			}
			at, best = to, value
		}
		if best < r.Best {
			r.Best, r.BestPeriod, r.BestEvery = best, math.Pow(step, float64(at.period)), at.every
		}
	}
	r.Played = len(known)
}

// beginnings are policies from which the search starts.
func (c *Case) beginnings(chosen period.Every) []period.Every {
	if !c.Job.Local {
		return []period.Every{{period.Top: 1}}
	}
	list := []period.Every{chosen, {0, 1, 4, 8, 32}, {0, 1, 1, 0, 4}}
	for i := range list {
		for k := 2; k <= period.Top; k++ {
			if !c.Levels[k] {
				list[i][k] = 0
			}
		}
	}
	return list
}

// neighbours change how often one level is raised to.
func neighbours(e period.Every, levels [period.Top + 1]bool) (list []period.Every) {
	for k := 2; k <= period.Top; k++ {
		if e[1] == 0 || !levels[k] {
			continue
		}
		for _, n := range []int{e[k] - 1, e[k] + 1, e[k] * 3 / 4, e[k]*4/3 + 1, e[k] / 2, e[k] * 2, 0, 1, 4} {
			if n >= 0 && n != e[k] && n <= 4096 {
				c := e
				c[k] = n
				if !slices.Contains(list, c) {
					list = append(list, c)
				}
			}
		}
	}
	return list
}
