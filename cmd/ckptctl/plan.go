// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/libckpt/libckpt/ckpt/period"
	"github.com/libckpt/libckpt/ckpt/store"
)

func init() { register(newPlanCmd) }

func newPlanCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "plan [DIR] --mtbf T | --overhead P%",
		GroupID: groupPlan,
		Short:   "Say how often to checkpoint",
		Long: `Compute the period between checkpoints, to give to ckptrun --interval.

  --overhead P%   spend at most P percent of the run on checkpoints: period = cost / P%.
  --mtbf T        lose as little as possible when the job fails every T on average: the period that
                  balances the cost of checkpoints against the work that a failure destroys (Young's
                  and Daly's formulas). The mean time between failures of a job is that of one node
                  divided by the number of nodes.

The cost of a checkpoint is given with --cost, or taken from the epochs in DIR: the median time from the
request to the commit. That is on the safe side, since the application is stopped only for a part of that
time; in the rest, writing and the application share the processors.`,
		Example: `  ckptctl plan ckpt --mtbf 12h
  ckptctl plan ckpt --overhead 5%
  ckptctl plan --cost 90s --mtbf 2d --json`,
		Args: cobra.MaximumNArgs(1),
	}
	asJSON := addJSON(cmd)
	mtbf := cmd.Flags().String("mtbf", "", "mean time between failures of the job, such as 12h or 2d")
	overhead := cmd.Flags().String("overhead", "", "share of the run time for checkpoints, such as 5%")
	cost := cmd.Flags().String("cost", "", "what a checkpoint costs, such as 90s (default: measured, from DIR)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		report, err := plan(args, *mtbf, *overhead, *cost)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), report)
		}
		report.print(cmd.OutOrStdout())
		return nil
	}
	return cmd
}

// planReport is what `plan` prints. Times are in seconds.
type planReport struct {
	Cost       float64      `json:"costSeconds"`
	CostSource string       `json:"costSource"`
	Stop       float64      `json:"stopSeconds,omitempty"` // the application stands still
	Overhead   *planPeriod  `json:"overhead,omitempty"`
	MTBF       float64      `json:"mtbfSeconds,omitempty"`
	Young      *planPeriod  `json:"young,omitempty"`
	Daly       *planPeriod  `json:"daly,omitempty"`
	Interval   string       `json:"interval"` // for ckptrun --interval
	Waste      *wasteReport `json:"waste,omitempty"`
	budget     float64
}

type planPeriod struct {
	Period  float64 `json:"periodSeconds"`
	Formula string  `json:"formula"`
}

// wasteReport holds shares of the run time.
type wasteReport struct {
	Checkpoints float64 `json:"checkpoints"`
	Failures    float64 `json:"failures"`
}

func plan(args []string, mtbf, overhead, cost string) (*planReport, error) {
	if mtbf == "" && overhead == "" {
		return nil, usagef("want --mtbf T or --overhead P%%")
	}
	r := &planReport{}
	c, err := r.setCost(args, cost)
	if err != nil {
		return nil, err
	}
	var best time.Duration
	if overhead != "" {
		if r.budget, err = parsePercent(overhead); err != nil {
			return nil, usagef("--overhead: %w", err)
		}
		if best, err = period.Overhead(c, r.budget); err != nil {
			return nil, usageError{err}
		}
		r.Overhead = &planPeriod{best.Seconds(), "cost / budget"}
	}
	if mtbf != "" {
		m, err := parseTime(mtbf)
		if err != nil {
			return nil, usagef("--mtbf: %w", err)
		}
		young, err := period.Young(c, m)
		if err != nil {
			return nil, usageError{err}
		}
		daly, err := period.Daly(c, m)
		if err != nil {
			return nil, usageError{err}
		}
		r.MTBF = m.Seconds()
		r.Young = &planPeriod{young.Seconds(), "sqrt(2 cost mtbf) + cost"}
		r.Daly = &planPeriod{daly.Seconds(), "sqrt(2 cost mtbf) (1 + sqrt(x)/3 + x/9), x = cost/(2 mtbf)"}
		best = max(best, daly) // with both, the budget is a limit
		w := &wasteReport{}
		w.Checkpoints, w.Failures = period.Waste(c, m, best)
		r.Waste = w
	}
	r.Interval = intervalText(best)
	return r, nil
}

// setCost finds out what a checkpoint costs.
func (r *planReport) setCost(args []string, cost string) (time.Duration, error) {
	if cost != "" {
		c, err := parseTime(cost)
		if err != nil {
			return 0, usagef("--cost: %w", err)
		}
		r.Cost, r.CostSource = c.Seconds(), "given"
		return c, nil
	}
	if len(args) == 0 {
		return 0, usagef("want DIR, to take the cost of a checkpoint from, or --cost T")
	}
	dir, only, err := store.SplitSpec(args[0])
	if err != nil {
		return 0, err
	}
	s, err := store.Open(dir)
	if err != nil {
		return 0, err
	}
	list, err := s.Epochs()
	if err != nil {
		return 0, err
	}
	var total, stop []float64
	committed := 0
	for _, e := range list {
		if !e.Committed() || only != 0 && e.Number != only {
			continue
		}
		committed++
		if e.Manifest.TotalSeconds > 0 {
			total = append(total, e.Manifest.TotalSeconds)
			stop = append(stop, e.Manifest.StopSeconds)
		}
	}
	if committed == 0 {
		return 0, fmt.Errorf("%s: %w to take the cost from: make one, or give --cost T", args[0], store.ErrNone)
	}
	if len(total) == 0 {
		return 0, fmt.Errorf("%s: no manifest records what its checkpoint cost: give --cost T", args[0])
	}
	slices.Sort(total)
	slices.Sort(stop)
	r.Cost, r.Stop = total[len(total)/2], stop[len(stop)/2]
	r.CostSource = fmt.Sprintf("median of %d epochs in %s", len(total), dir)
	return time.Duration(r.Cost * 1e9), nil
}

// parseTime understands 90s, 1h30m, 2d and plain seconds.
func parseTime(s string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not a time: want for example 90s, 15m, 12h or 2d", s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil || !(n > 0) || n > 36500 {
			return 0, bad
		}
		return time.Duration(n * 24 * float64(time.Hour)), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || !(n < math.MaxInt64/1e9) {
			return 0, bad
		}
		d = time.Duration(n * 1e9)
	}
	if d <= 0 {
		return 0, bad
	}
	return d, nil
}

// parsePercent understands 5% and 5, both five percent.
func parsePercent(s string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || !(n > 0 && n < 100) {
		return 0, fmt.Errorf("%q is not a share: want a percentage between 0 and 100, such as 5%%", s)
	}
	return n / 100, nil
}

// intervalText writes a period as ckptrun --interval takes it, to the second unless it is short.
func intervalText(d time.Duration) string {
	if d >= time.Minute {
		d = d.Round(time.Second)
	} else {
		d = d.Round(100 * time.Millisecond)
	}
	return d.String()
}

func (r *planReport) print(w io.Writer) {
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	sec := func(s float64) string { return durationText(time.Duration(s * 1e9)) }
	p("A checkpoint costs %s (%s).", sec(r.Cost), r.CostSource)
	if r.CostSource != "given" {
		p("For %s of that the application stands still.", sec(r.Stop))
	}
	if r.Overhead != nil {
		p("A budget of %g%% allows one every %s (%s).", r.budget*100, sec(r.Overhead.Period), r.Overhead.Formula)
	}
	if r.Young != nil {
		p("With a failure every %s on average, the least is lost with one every", sec(r.MTBF))
		p("  %s by Young's formula, %s,", sec(r.Young.Period), r.Young.Formula)
		p("  %s by Daly's, %s.", sec(r.Daly.Period), r.Daly.Formula)
	}
	if r.Waste != nil {
		p("At the period below %.2g%% of the time goes into checkpoints and about %.2g%% is lost with failures.",
			100*r.Waste.Checkpoints, 100*r.Waste.Failures)
	}
	p("\nckptrun --interval %s ...", r.Interval)
}
