// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/libckpt/libckpt/bench/when"
)

// playedJob is a row of results. Times are in seconds.
type playedJob struct {
	Name       string  `json:"name"`
	Between    float64 `json:"betweenFailures"`
	Stop       float64 `json:"stop"`
	Write      float64 `json:"write"`
	Raise      string  `json:"raise,omitempty"`
	Chosen     string  `json:"chosen"` // at the end of the first trace
	Best       string  `json:"best"`
	ChosenLost float64 `json:"chosenLost"` // shares of the time
	BestLost   float64 `json:"bestLost"`
	Excess     float64 `json:"excess"` // of the time of the job
	Tried      int     `json:"tried"`
}

// playWhen plays jobs that fail. It measures nothing, so its figures are the same on every machine.
func playWhen(ctx context.Context, b *bench) (*report, error) {
	effort := when.Effort{Traces: 2, Failures: 100}
	if b.full {
		effort = when.Effort{Traces: 6, Failures: 300}
	}
	cases, err := when.Cases(effort, b.full)
	if err != nil {
		return nil, err
	}
	r := &report{Title: "When: chosen periods against the best in hindsight", Text: fmt.Sprintf(
		"Jobs of %g times the mean time between failures are played with `ckpt/period`'s chooser, which begins without a cost, and with fixed "+
			"periods and policies, among which the best for the same failures is searched (`bench/when`). Means of %d traces with fixed seeds. "+
			"\"longer\" is how much longer than with the best the job takes: the goal is at most 5 %%. Lost is all time beyond the work. Weibull's shape is 0.7. "+
			"With four levels, failures need level 1, 2, 3 and 4 in the shares 8:4:2:1; \"bad days\" is a file in which every tenth day has five times as many failures. "+
			"Each cost varies by 20 %%; while something is written or raised the program has half of its speed, which is what the chooser supposes; "+
			"\"idle\" and \"busy\" are jobs that lose 10 %% and all of it instead.", effort.Failures, effort.Traces)}
	for _, c := range cases {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		one, err := c.Run()
		if err != nil {
			return nil, err
		}
		k := c.Job.Costs
		row := &playedJob{Name: c.Name, Between: c.Failures.Mean().Seconds(), Stop: k.Stop.Seconds(), Write: k.Write.Seconds(),
			Chosen: setting(one.Last.Period.Seconds(), one.Last.Every), Best: setting(one.BestPeriod, one.BestEvery),
			ChosenLost: when.Waste(c.Job.Work, one.Chosen), BestLost: when.Waste(c.Job.Work, one.Best), Excess: one.Excess(), Tried: one.Played}
		if c.Job.Local {
			row.Raise = fmt.Sprintf("%g, %g, %g", k.Raise[2].Seconds(), k.Raise[3].Seconds(), k.Raise[4].Seconds())
		}
		r.Played = append(r.Played, row)
	}
	return r, nil
}

// setting is a period and how often each level is reached.
func setting(period float64, every [5]int) string {
	text := time.Duration(period * float64(time.Second)).Round(time.Second).String()
	for level := 2; level <= 4 && every[1] > 0; level++ {
		if every[level] > 0 {
			text += fmt.Sprintf(", L%d:%d", level, every[level])
		}
	}
	return text
}

func tableOfPlayed(out *strings.Builder, list []*playedJob) {
	worst := 0.0
	out.WriteString("\n")
	head(out, "job", "failure every", "stop, write, s", "raise to L2, L3, L4, s", "chosen", "best", "lost, chosen", "lost, best", "longer")
	for _, p := range list {
		worst = max(worst, p.Excess)
		line(out, p.Name, (time.Duration(p.Between) * time.Second).String(), fmt.Sprintf("%g, %g", p.Stop, p.Write), p.Raise, p.Chosen, p.Best,
			fmt.Sprintf("%.2f %%", 100*p.ChosenLost), fmt.Sprintf("%.2f %%", 100*p.BestLost), fmt.Sprintf("%.2f %%", 100*p.Excess))
	}
	fmt.Fprintf(out, "\nWorst: %.2f %% longer than with the best in hindsight.\n", 100*worst)
}
