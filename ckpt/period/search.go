// SPDX-License-Identifier: Apache-2.0

package period

import (
	"math"
	"time"
)

// Settings are what was asked for.
type Settings struct {
	Overhead float64  // share of the time that checkpoints may take; 0: no limit
	Failures Failures // none: the least that Overhead allows is taken
	// Levels are those above the first that there can be, with local directories; else Levels[Top] alone is set, and Local
	// is not.
	Local  bool
	Levels [Top + 1]bool
	// Fixed is the policy that was given; zero: how often to raise is chosen too.
	Fixed Every
}

// Least is the shortest period that is chosen.
const Least = time.Second

// Reason is what decided a period.
type Reason string

const (
	ByFailures Reason = "failures" // the least is lost
	ByOverhead Reason = "overhead" // the limit
	ByWriting  Reason = "writing"  // an epoch is not asked for before the one before it is written and raised
)

// Choice is what holds, and from what it follows.
type Choice struct {
	Period time.Duration
	Every  Every
	By     Reason
	Costs  Costs
	// Shares of the time: what checkpoints take, and what is lost with failures.
	Checkpoints, Failures float64
}

// shortest is the shortest period with a policy, and what it is for.
func (m *chain) shortest(e Every, overhead float64) (float64, Reason) {
	least, by := math.Max(m.stop+m.write, m.behindEach(e)), ByWriting
	if Least.Seconds() > least {
		least = Least.Seconds()
	}
	if overhead > 0 {
		if t := (m.stop + m.write + m.behindEach(e)) / overhead; t > least {
			least, by = t, ByOverhead
		}
	}
	return least, by
}

// golden is the ratio by which the search narrows its range.
const golden = 0.6180339887498949

// bestPeriod searches the period between two for a policy, to a hundredth.
func (m *chain) bestPeriod(e Every, from, to float64) (period, useful float64) {
	if to <= from {
		return from, m.useful(from, e)
	}
	a, b := math.Log(from), math.Log(to)
	x, y := b-golden*(b-a), a+golden*(b-a)
	fx, fy := m.useful(math.Exp(x), e), m.useful(math.Exp(y), e)
	for b-a > 0.01 {
		if fx >= fy {
			b, y, fy = y, x, fx
			x = b - golden*(b-a)
			fx = m.useful(math.Exp(x), e)
		} else {
			a, x, fx = x, y, fy
			y = a + golden*(b-a)
			fy = m.useful(math.Exp(y), e)
		}
	}
	period = math.Exp((a + b) / 2)
	useful = m.useful(period, e)
	if u := m.useful(from, e); u > useful { // the least that is allowed may be the best
		return from, u
	}
	return period, useful
}

// guess is a policy to first order, and the period of its first level. used are levels above the first.
func (m *chain) guess(s Settings, used [Top + 1]bool) (Every, float64) {
	var e Every
	first := Top
	if s.Local {
		first = 1
	}
	e[first] = 1
	for k := 2; k <= Top; k++ {
		if used[k] && k != first {
			e[k] = 1
		}
	}
	// A class counts for the lowest level that survives it.
	var rate [Top + 1]float64
	for k := 1; k <= Top; k++ {
		if l := e.from(k); l > 0 {
			rate[l] += m.rate[k]
		}
	}
	young := func(cost, rate float64) float64 { return math.Sqrt(2 * math.Max(cost, 1e-3) / rate) }
	all := 0.0
	for _, r := range rate {
		all += r
	}
	base := young(m.stop+m.behind*m.write, all)
	if rate[first] > 0 {
		base = young(m.stop+m.behind*m.write, rate[first])
	}
	factor := 1
	for k := first + 1; k <= Top; k++ {
		if e[k] == 0 {
			continue
		}
		n := float64(maxPattern)
		if rate[k] > 0 {
			n = young(m.behind*m.raise[k], rate[k]) / base / float64(factor)
		}
		more := int(math.Round(math.Min(math.Max(n, 1), maxPattern)))
		for factor*more > maxPattern {
			more--
		}
		factor *= max(more, 1)
		e[k] = factor
	}
	return e, base
}

// refine looks for a better policy near one, and its period. Each level is raised to with every so manyth epoch of those
// that get to the next lower level.
func (m *chain) refine(s Settings, e Every, around float64) (Every, float64, float64) {
	at := func(e Every) (float64, float64) {
		least, _ := m.shortest(e, s.Overhead)
		if s.Fixed != (Every{}) || around == 0 {
			_, all := m.counted(e)
			return m.bestPeriod(e, least, math.Max(least, 5/all))
		}
		return m.bestPeriod(e, math.Max(least, around/6), math.Max(least, around*6))
	}
	period, useful := at(e)
	if s.Fixed != (Every{}) {
		return e, period, useful
	}
	var levels []int
	for k := 2; k <= Top; k++ {
		if e[k] > 0 && s.Local {
			levels = append(levels, k)
		}
	}
	for range 12 {
		better := false
		for i := range levels {
			for _, step := range []func(int) int{func(f int) int { return f - 1 }, func(f int) int { return f + 1 },
				func(f int) int { return f / 2 }, func(f int) int { return f * 2 }} {
				c, ok := rescale(e, levels, i, step)
				if !ok {
					continue
				}
				around = period
				if p, u := at(c); u > useful*(1+1e-5) {
					e, period, useful, better = c, p, u, true
				}
			}
		}
		if !better {
			break
		}
	}
	return e, period, useful
}

// rescale changes one factor of a policy whose numbers divide each other.
func rescale(e Every, levels []int, which int, step func(int) int) (Every, bool) {
	factors := make([]int, len(levels))
	before := 1
	for i, k := range levels {
		factors[i], before = e[k]/before, e[k]
	}
	changed := step(factors[which])
	if changed < 1 || changed == factors[which] {
		return e, false
	}
	factors[which] = changed
	n := 1
	for i, k := range levels {
		if n *= factors[i]; n > maxPattern {
			return e, false
		}
		e[k] = n
	}
	return e, true
}

// Best is the period and, unless it is given, the policy with which the least time is lost.
func Best(s Settings, c Costs) Choice {
	m := newChain(c, s.Failures)
	choice := Choice{Costs: c}
	var period, useful float64
	_, all := m.counted(Every{Top: 1})
	switch {
	case all == 0: // only the limit says something
		e := s.Fixed
		if e == (Every{}) {
			e, _ = m.guess(s, s.Levels)
			if s.Local {
				e = usual(s)
			}
		}
		period, choice.By = m.shortest(e, s.Overhead)
		choice.Every, useful = e, m.useful(period, e)
	case s.Fixed != (Every{}):
		choice.Every, period, useful = m.refine(s, s.Fixed, 0)
	default:
		for _, used := range subsets(s) {
			e, base := m.guess(s, used)
			e, p, u := m.refine(s, e, base)
			if u > useful || period == 0 {
				choice.Every, period, useful = e, p, u
			}
		}
	}
	least, by := m.shortest(choice.Every, s.Overhead)
	switch {
	case all > 0 && period > least*1.005:
		choice.By = ByFailures
	default:
		choice.By = by
	}
	choice.Period = seconds(period)
	choice.Checkpoints = math.Min(m.cost(choice.Every)/period, 1)
	choice.Failures = math.Max(0, 1-useful-choice.Checkpoints)
	return choice
}

// usual is the policy where failures are not known.
func usual(s Settings) Every {
	e := Every{1: 1}
	for k, often := range (Every{2: 4, 3: 8, Top: 32}) {
		if often > 0 && s.Levels[k] {
			e[k] = often
		}
	}
	return e
}

// subsets are the sets of levels that are tried: the highest one always, and each of the others or not.
func subsets(s Settings) [][Top + 1]bool {
	list := make([][Top + 1]bool, 1)
	above := false // there is a higher one
	for k := Top; k >= 2; k-- {
		if !s.Levels[k] {
			continue
		}
		for _, with := range list[:len(list):len(list)] {
			with[k] = true
			list = append(list, with)
		}
		if !above {
			list, above = list[1:], true
		}
	}
	return list
}
