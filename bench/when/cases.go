// SPDX-License-Identifier: Apache-2.0

package when

import (
	"bytes"
	_ "embed"
	"slices"
	"strings"
	"time"

	"github.com/libckpt/libckpt/ckpt/period"
)

// shape is that of the Weibull distribution: what is reported of large machines lies between 0.7 and 0.8.
const shape = 0.7

// Effort is how much is played.
type Effort struct {
	Traces   int
	Failures float64 // in a trace
}

// Cases are the grid.
func Cases(effort Effort, more bool) ([]*Case, error) {
	var list []*Case
	s := time.Second
	for _, law := range []string{"exponential", "Weibull"} {
		for _, mean := range []time.Duration{time.Hour, 6 * time.Hour, 24 * time.Hour} {
			for _, cost := range [][2]time.Duration{{s / 5, 5 * s}, {2 * s, 60 * s}, {120 * s, 0}, {10 * s, 600 * s}} {
				if !more && (mean == 6*time.Hour || cost[0] == 120*s && law == "Weibull") {
					continue
				}
				list = append(list, single(effort, law, mean, cost[0], cost[1]))
				if cost[1] > 0 && 10*cost[1] < mean { // else L4 takes longer than the machine lasts
					list = append(list, four(effort, law, mean, cost[0], cost[1]))
				}
			}
		}
	}
	for name, slow := range map[string]float64{"busy": 1, "idle": 0.1} {
		c := four(effort, "exponential", 6*time.Hour, 2*s, 60*s)
		c.Name, c.Job.Slow = "four levels, "+name, slow
		list = append(list, c)
	}
	slices.SortFunc(list[len(list)-2:], func(a, b *Case) int { return strings.Compare(a.Name, b.Name) })
	// The levels that are not worth it here are others: copies cost little, parities much.
	c := four(effort, "exponential", 6*time.Hour, 2*s, 60*s)
	c.Name = "four levels, dear parities"
	c.Job.Costs.Raise = [period.Top + 1]time.Duration{2: 20 * s, 3: 300 * s, 4: 2000 * s}
	list = append(list, c)
	for _, cost := range [][2]time.Duration{{s / 5, 5 * s}, {2 * s, 60 * s}} {
		c, err := recorded(effort, cost[0], cost[1])
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// single is a job without local directories.
func single(effort Effort, law string, mean, stop, write time.Duration) *Case {
	c := &Case{Name: "one level, " + law, Failures: period.Failures{period.Top: mean}}
	c.Levels[period.Top] = true
	c.Job = Job{Costs: period.Costs{Stop: stop, Write: write}, Slow: 0.5, Vary: 0.2}
	c.Job.Costs.Restart[period.Top] = stop + write
	c.draw(effort, law)
	return c
}

// four is a job with all levels. To copy takes as long as to write, parities twice, and the shared file system ten times.
func four(effort Effort, law string, mean, stop, write time.Duration) *Case {
	c := &Case{Name: "four levels, " + law, Failures: period.Shared(mean)}
	c.Levels = [period.Top + 1]bool{2: true, 3: true, period.Top: true}
	c.Job = Job{Local: true, Costs: period.Costs{Stop: stop, Write: write}, Slow: 0.5, Vary: 0.2}
	for k, times := range []time.Duration{0, 0, 1, 2, 10} {
		c.Job.Costs.Raise[k] = times * write
		c.Job.Costs.Restart[k] = stop + write + c.Job.Costs.Raise[k]
	}
	c.draw(effort, law)
	return c
}

func (c *Case) draw(effort Effort, law string) {
	mean := c.Failures.Mean().Seconds()
	c.Job.Work = effort.Failures * mean
	for i := range effort.Traces {
		until := 6 * c.Job.Work // a job that takes longer is nowhere near the best
		switch law {
		case "Weibull":
			c.Traces = append(c.Traces, Weibull(uint64(1+i), shape, c.Failures, until))
		default:
			c.Traces = append(c.Traces, Exponential(uint64(1+i), c.Failures, until))
		}
	}
}

//go:embed testdata/baddays.trace
var badDays []byte

// recorded are jobs with the failures of a file, which begin at different places in it.
func recorded(effort Effort, stop, write time.Duration) (*Case, error) {
	t, err := Read(bytes.NewReader(badDays))
	if err != nil {
		return nil, err
	}
	return FromTrace("four levels, bad days", effort, t, stop, write), nil
}

// FromTrace is a job with four levels and the failures of a trace.
func FromTrace(name string, effort Effort, t Trace, stop, write time.Duration) *Case {
	c := four(Effort{}, "", time.Hour, stop, write)
	c.Name, c.Failures = name, t.Failures()
	length := t[len(t)-1].At
	c.Job.Work = length / 4
	for i := range effort.Traces {
		c.Traces = append(c.Traces, t.After(length*float64(i)/float64(effort.Traces)))
	}
	return c
}
