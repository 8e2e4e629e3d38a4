// SPDX-License-Identifier: Apache-2.0

package period

import (
	"math"
	"strings"
	"testing"
	"time"
)

var all = [Top + 1]bool{2: true, 3: true, 4: true}

// TestOneLevelIsDaly: with one level, a cost that stops the program and no restart cost, the best period is Daly's, and
// the time lost is what his exact model says.
func TestOneLevelIsDaly(t *testing.T) {
	s := Settings{Levels: [Top + 1]bool{Top: true}}
	for _, cost := range []time.Duration{time.Second, time.Minute, 10 * time.Minute} {
		for _, mean := range []time.Duration{time.Hour, 24 * time.Hour} {
			s.Failures = Failures{Top: mean}
			c := Best(s, Costs{Stop: cost})
			daly, err := Daly(cost, mean)
			if err != nil {
				t.Fatal(err)
			}
			if r := float64(c.Period) / float64(daly); r < 0.96 || r > 1.04 || c.By != ByFailures || c.Every != (Every{Top: 1}) {
				t.Errorf("cost %v, failures every %v: %v %v by %v, Daly says %v", cost, mean, c.Period, c.Every, c.By, daly)
			}
			// A segment takes M (e^(T/M) - 1). A checkpoint that is not complete when the failure comes does not count.
			m, T := mean.Seconds(), c.Period.Seconds()
			exact := (T - cost.Seconds()) / (m * math.Expm1(T/m))
			if useful := 1 - c.Checkpoints - c.Failures; math.Abs(useful-exact) > 0.02*exact {
				t.Errorf("cost %v, failures every %v: %.4f of the time is useful, exactly it is %.4f", cost, mean, useful, exact)
			}
		}
	}
}

// TestLevelsFirstOrder: with cheap checkpoints the periods of the levels are about those of first order, and so is the loss.
func TestLevelsFirstOrder(t *testing.T) {
	sec := time.Second
	f := Failures{0, 10 * time.Hour, 0, 0, 1000 * time.Hour}
	costs := Costs{Stop: sec, Raise: [Top + 1]time.Duration{Top: 200 * sec}}
	c := Best(Settings{Local: true, Levels: [Top + 1]bool{Top: true}, Failures: f}, costs)
	first := math.Sqrt(2 * 1 * 36000)                // of level 1
	top := math.Sqrt(2 * Behind * 200 * 3600 * 1000) // of level 4
	loss := math.Sqrt(2*1/36000.) + math.Sqrt(2*Behind*200/3.6e6)
	if r := c.Period.Seconds() / first; r < 0.85 || r > 1.15 {
		t.Errorf("a period of %v, to first order %.0f s", c.Period, first)
	}
	if r := c.Period.Seconds() * float64(c.Every[Top]) / top; r < 0.85 || r > 1.15 || c.Every[2] != 0 || c.Every[1] != 1 {
		t.Errorf("level 4 every %v, to first order every %.0f s", c.Every, top)
	}
	if r := (c.Checkpoints + c.Failures) / loss; r < 0.9 || r > 1.1 {
		t.Errorf("%.4f and %.4f are lost, to first order %.4f", c.Checkpoints, c.Failures, loss)
	}
}

// TestUselessLevels: a level that costs more than the one above it is not used, nor one that no failure needs; each
// failure has a level that survives it.
func TestUselessLevels(t *testing.T) {
	s := Settings{Local: true, Levels: all, Failures: Shared(6 * time.Hour)}
	sec := time.Second
	c := Best(s, Costs{Stop: sec, Raise: [Top + 1]time.Duration{2: 5 * sec, 3: 200 * sec, 4: 60 * sec}})
	if c.Every[3] != 0 || c.Every[2] == 0 || c.Every[4] == 0 {
		t.Errorf("%v", c.Every)
	}
	s.Failures = Failures{1: time.Hour, 2: 10 * time.Hour}
	c = Best(s, Costs{Stop: sec, Raise: [Top + 1]time.Duration{2: 5 * sec, 3: 30 * sec, 4: 60 * sec}})
	if c.Every[2] == 0 || c.Every[3] != 0 || c.Every[4] < 100 {
		t.Errorf("%v", c.Every)
	}
}

// TestOverheadIsALimit: with failures so frequent that they ask for more, the limit holds; what is raised counts.
func TestOverheadIsALimit(t *testing.T) {
	sec := time.Second
	costs := Costs{Stop: sec, Write: 9 * sec, Raise: [Top + 1]time.Duration{2: 10 * sec, 3: 20 * sec, 4: 60 * sec}}
	for _, s := range []Settings{
		{Overhead: 0.05, Failures: Shared(10 * time.Minute), Local: true, Levels: all},
		{Overhead: 0.05, Failures: Shared(10 * time.Minute), Local: true, Levels: all, Fixed: Every{0, 1, 4, 8, 32}},
		{Overhead: 0.05, Local: true, Levels: all, Fixed: Every{0, 1, 4, 8, 32}},
		{Overhead: 0.05, Local: true, Levels: all, Fixed: Every{0, 1, 3, 5, 7}},
		{Overhead: 0.05, Levels: [Top + 1]bool{Top: true}},
	} {
		k := costs
		if !s.Local {
			k.Raise = [Top + 1]time.Duration{}
		}
		c := Best(s, k)
		spent := k.Stop.Seconds() + k.Write.Seconds()
		for level, often := range c.Every {
			if often > 0 {
				spent += k.Raise[level].Seconds() / float64(often)
			}
		}
		if share := spent / c.Period.Seconds(); share > 0.0501 || share < 0.045 && !s.Failures.Known() || c.By != ByOverhead {
			t.Errorf("%+v: %v %v by %s: %.4f of the time", s, c.Period, c.Every, c.By, share)
		}
		if s.Fixed != (Every{}) && c.Every != s.Fixed {
			t.Errorf("%v was given, %v is taken", s.Fixed, c.Every)
		}
	}
	// Failures so rare that the limit does not matter.
	c := Best(Settings{Overhead: 0.05, Failures: Failures{Top: 1000 * time.Hour}, Levels: [Top + 1]bool{Top: true}}, Costs{Stop: sec})
	if c.By != ByFailures || c.Period < 30*time.Minute {
		t.Errorf("%v by %s", c.Period, c.By)
	}
}

// TestRaisingKeepsUp: what is raised in a period takes no longer than that, and an epoch is written before the next one is
// asked for, however often the job fails.
func TestRaisingKeepsUp(t *testing.T) {
	sec := time.Second
	for _, k := range []Costs{
		{Stop: 5 * sec, Write: 60 * sec, Raise: [Top + 1]time.Duration{2: 60 * sec, 3: 120 * sec, 4: 600 * sec}},
		{Stop: sec, Write: 3000 * sec, Raise: [Top + 1]time.Duration{2: sec, 3: sec, 4: 9000 * sec}},
		{},
	} {
		c := Best(Settings{Local: true, Levels: all, Failures: Shared(time.Minute)}, k)
		busy := 0.0
		for level, often := range c.Every {
			if often > 0 {
				busy += k.Raise[level].Seconds() / float64(often)
			}
		}
		if busy > c.Period.Seconds()*1.001 || c.Period < k.Stop+k.Write || c.Period < Least || c.Every[4] == 0 || c.Every[1] != 1 {
			t.Errorf("%+v: %v %v, raising takes %.1f s of a period", k, c.Period, c.Every, busy)
		}
	}
}

// TestChooser: costs are averaged without their extremes, a first epoch gets to all levels, later ones as chosen, and the
// last one everywhere.
func TestChooser(t *testing.T) {
	sec := time.Second
	c := NewChooser(Settings{Local: true, Levels: all, Failures: Shared(6 * time.Hour)})
	if _, ok := c.Choice(); ok {
		t.Error("a choice from nothing")
	}
	c.Saved(sec, 5*sec)
	if due := c.Due(false); len(due) != 3 {
		t.Errorf("the first epoch is raised to %v", due)
	}
	before, ok := c.Choice()
	if !ok || before.Costs.Stop != sec || before.Costs.Write != 4*sec || before.Costs.Raise[3] != 10*sec {
		t.Errorf("%+v", before)
	}
	c.Raised(2, 5*sec)
	c.Raised(3, 60*sec)
	c.Raised(4, 500*sec)
	for _, d := range []time.Duration{5 * sec, 6 * sec, 4 * sec, 1000 * sec, 5 * sec} { // one was disturbed
		c.Saved(sec, d)
	}
	after, _ := c.Choice()
	if after.Costs.Write < 3*sec || after.Costs.Write > 5*sec || after.Costs.Restart[4] < 500*sec {
		t.Errorf("%+v", after.Costs)
	}
	if before.Period*time.Duration(before.Every[4])*2 > after.Period*time.Duration(after.Every[4]) {
		t.Errorf("level 4 costs a hundred times as much: before %v %v, then %v %v", before.Period, before.Every, after.Period, after.Every)
	}
	got := Every{}
	for range after.Every[4] {
		for _, level := range c.Due(false) {
			got[level]++
		}
	}
	if got[4] != 1 || after.Every[2] > 0 && got[2] != after.Every[4]/after.Every[2] {
		t.Errorf("%v: raised %v", after.Every, got)
	}
	if due := c.Due(true); len(due) == 0 || due[len(due)-1] != 4 {
		t.Errorf("the last epoch is raised to %v", due)
	}
	for _, w := range []string{"the least is lost", "stops the program for 1s", "L4 takes 8m20s", "lost with failures"} {
		if !strings.Contains(after.Why(), w) {
			t.Errorf("%q does not say %q", after.Why(), w)
		}
	}
	if !strings.HasPrefix(after.Levels(), "L1:every,") {
		t.Errorf("%q", after.Levels())
	}
	// Nonsense is not a measurement.
	c.Saved(-1, 0)
	c.Saved(sec, -sec)
	c.Raised(1, sec)
	c.Raised(5, sec)
	c.Raised(2, -sec)
	c.At(9, 1)
	if now, _ := c.Choice(); now.Costs != after.Costs {
		t.Errorf("%+v, then %+v", after.Costs, now.Costs)
	}
}

// TestIncrementsCount: an epoch of four is a full one; the estimate is between.
func TestIncrementsCount(t *testing.T) {
	var s series
	for i := range 40 {
		d := time.Second
		if i%4 == 0 {
			d = 9 * time.Second
		}
		s.add(d)
	}
	if mean, ok := s.estimate(); !ok || mean < 2500*time.Millisecond || mean > 3500*time.Millisecond {
		t.Errorf("%v", mean)
	}
}

func TestFailures(t *testing.T) {
	day := 24 * time.Hour
	for text, want := range map[string]Failures{
		"off":                      {},
		"L1:6h,L4:30d":             {1: 6 * time.Hour, 4: 30 * day},
		"12h,L1:50%,L2:25%,L4:25%": {1: day, 2: 2 * day, 4: 2 * day},
		"12h,L1:100%,L2:0%":        {1: day / 2},
		"8h":                       {0, 15 * time.Hour, 30 * time.Hour, 60 * time.Hour, 120 * time.Hour},
	} {
		got, err := ParseFailures(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		for k := range got {
			if (got[k] - want[k]).Abs() > time.Second {
				t.Errorf("%s: %v, want %v", text, got, want)
				break
			}
		}
		if again, err := ParseFailures(got.String()); err != nil || again != got {
			t.Errorf("%s: %v: %v, %v", text, got, again, err)
		}
	}
	if f, _ := ParseFailures("12h"); (f.Mean() - 12*time.Hour).Abs() > time.Second {
		t.Errorf("%v", f.Mean())
	}
	for _, text := range []string{"", ",", "x", "12", "0s", "-1h", "12h,", "12h,L1:50%", "L1:50%", "12h,L1:1h", "L0:1h", "L5:1h", "L1:1h,L1:1h", "L1", "1e99d", "NaNd", "12h,L1:NaN%", "12h,L1:150%,L2:-50%", "L1:1ms"} {
		if f, err := ParseFailures(text); err == nil {
			t.Errorf("%q: %v", text, f)
		}
	}
}
