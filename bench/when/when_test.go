// SPDX-License-Identifier: Apache-2.0

package when

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/ckpt/period"
)

// goal is how much longer than with the best in hindsight a job may take.
const goal = 0.05

// TestWithinGoal: over costs, times between failures and their laws, with one level and with four, a job whose periods are
// chosen from what it measures takes at most 5 % longer than with the best fixed setting for the same failures.
func TestWithinGoal(t *testing.T) {
	cases, err := Cases(Effort{Traces: 2, Failures: 100}, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) < 16 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		r, err := c.Run()
		if err != nil {
			t.Error(err)
			continue
		}
		if r.Excess() > goal || r.Played < 5 {
			t.Errorf("%s, failures every %v, %v and %v: %.1f %% longer than the best: %v %v, the best %.0f s %v of %d", c.Name, c.Failures.Mean(),
				c.Job.Costs.Stop, c.Job.Costs.Write, 100*r.Excess(), r.Last.Period, r.Last.Every, r.BestPeriod, r.BestEvery, r.Played)
		}
	}
}

// TestGoalCanBeMissed: a period that is five times too long or too short, and the usual policy of levels, do miss it.
func TestGoalCanBeMissed(t *testing.T) {
	c := four(Effort{Traces: 2, Failures: 100}, "exponential", 6*time.Hour, 2*time.Second, time.Minute)
	r, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*Fixed{NewFixed(r.BestPeriod*5, r.BestEvery), NewFixed(r.BestPeriod/5, r.BestEvery), NewFixed(r.BestPeriod, period.Every{0, 1, 0, 0, 1})} {
		sum := 0.0
		for i, tr := range c.Traces {
			took, err := Play(c.Job, NewFixed(f.T, f.Every), tr, uint64(i))
			if err != nil {
				t.Fatal(err)
			}
			sum += took / float64(len(c.Traces))
		}
		if sum/r.Best-1 < goal {
			t.Errorf("%.0f s %v takes %.3f of the best", f.T, f.Every, sum/r.Best)
		}
	}
}

// TestPlay counts by hand.
func TestPlay(t *testing.T) {
	s := time.Second
	end := Failure{1e9, 4}
	costs := period.Costs{Stop: 10 * s, Write: 20 * s, Raise: [5]time.Duration{4: 30 * s}, Restart: [5]time.Duration{0, 5 * s, 0, 0, 50 * s}}
	leveled := period.Every{0, 1, 0, 0, 2}
	for _, c := range []struct {
		name  string
		work  float64
		every period.Every
		trace Trace
		want  float64
	}{
		// Requests at 100, 200: each stops for 10 s, and half of 20 s is lost.
		{"no failure", 225, period.Every{4: 1}, Trace{end}, 265},
		// The epoch of 100 has 100 s of work and is there at 130; after the restart the next request is at 300.
		{"one", 225, period.Every{4: 1}, Trace{{150, 1}, end}, 150 + 50 + 100 + 10 + 25 + 10},
		// While it is written it is not there yet.
		{"too early", 150, period.Every{4: 1}, Trace{{125, 1}, end}, 125 + 100 + 10 + 20 + 40},
		// The first epoch is at level 4 at 160, after half of 30 s.
		{"raised", 190, leveled, Trace{{161, 4}, end}, 161 + 50 + 90},
		{"not raised yet", 150, leveled, Trace{{159, 4}, end}, 159 + 100 + 10 + 20 + 30 + 25},
		{"local", 190, leveled, Trace{{159, 1}, end}, 159 + 5 + 90},
		// A failure in a restart begins it again, from what that one leaves.
		{"again", 190, leveled, Trace{{161, 1}, {163, 4}, end}, 163 + 50 + 90},
	} {
		j := Job{Work: c.work, Local: c.every[1] > 0, Costs: costs, Slow: 0.5}
		if got, err := Play(j, NewFixed(100, c.every), c.trace, 1); err != nil || math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: %.3f s, %v; want %.3f", c.name, got, err, c.want)
		}
	}
	if _, err := Play(Job{Work: 1000, Costs: costs}, NewFixed(100, period.Every{4: 1}), Trace{{10, 1}}, 1); err != errShort {
		t.Errorf("a trace that ends before the job: %v", err)
	}
}

// TestTraces: they come out with their means, the same for the same seed, and Weibull's with bursts.
func TestTraces(t *testing.T) {
	f := period.Shared(time.Hour)
	const until = 3600 * 20000
	spread := func(tr Trace) float64 { // of the times between failures of class 1, by their mean
		var sum, square, n, last float64
		for _, one := range tr {
			if one.Class == 1 {
				d := one.At - last
				sum, square, n, last = sum+d, square+d*d, n+1, one.At
			}
		}
		mean := sum / n
		return math.Sqrt(square/n-mean*mean) / mean
	}
	for _, c := range []struct {
		name   string
		draw   func(seed uint64) Trace
		spread float64
	}{
		{"exponential", func(seed uint64) Trace { return Exponential(seed, f, until) }, 1},
		{"Weibull", func(seed uint64) Trace { return Weibull(seed, 0.7, f, until) }, 1.46},
	} {
		tr := c.draw(1)
		for k, want := range f {
			if got := tr.Failures()[k]; want > 0 && math.Abs(float64(got)/float64(want)-1) > 0.06 {
				t.Errorf("%s: class %d every %v, want %v", c.name, k, got, want)
			}
		}
		if s := spread(tr); math.Abs(s-c.spread) > 0.05 {
			t.Errorf("%s: deviation %.2f of the mean, want %.2f", c.name, s, c.spread)
		}
		if !slices.Equal(tr, c.draw(1)) || slices.Equal(tr, c.draw(2)) {
			t.Errorf("%s: seeds", c.name)
		}
		var text bytes.Buffer
		if err := tr[:50].Write(&text); err != nil {
			t.Fatal(err)
		}
		read, err := Read(&text)
		if err != nil || len(read) != 50 || read[49].Class != tr[49].Class || math.Abs(read[49].At-tr[49].At) > 0.1 {
			t.Errorf("%s: %v, %v", c.name, read, err)
		}
	}
	for _, bad := range []string{"", "# nothing\n", "x\n", "1 5\n", "1 0\n", "5\n4\n", "1 2 3\n", "-1\n", "NaN\n", "Inf\n", "1 x\n"} {
		if tr, err := Read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: %v", bad, tr)
		}
	}
	if tr, err := Read(strings.NewReader("# one\n\n10\n20.5 4\n")); err != nil || !slices.Equal(tr, Trace{{10, 1}, {20.5, 4}}) || tr.After(15)[0] != (Failure{5.5, 4}) {
		t.Errorf("%v, %v", tr, err)
	}
}
