// SPDX-License-Identifier: Apache-2.0

package period

import (
	"math"
	"slices"
	"time"
)

// Top is the highest level.
const Top = 4

// Every says which epochs get to which level: Every[k] is n when every n-th one is raised to level k, and 0 when none is.
// Without local directories Every[Top] is 1 and the others are 0.
type Every [Top + 1]int

// Costs are what one checkpoint costs.
type Costs struct {
	Stop    time.Duration          // the program stands still
	Write   time.Duration          // then it runs on while images are written, until the commit
	Raise   [Top + 1]time.Duration // after the commit: from 2 on; the program runs
	Restart [Top + 1]time.Duration // from an epoch at that level
}

// Behind is the share of the time of what is done while the program runs that counts as lost, for the least loss. It is
// between nothing, when processors and disks are idle, and all of it. A limit (overhead) counts all.
const Behind = 0.5

// maxPattern bounds the epochs of a pattern, after which all levels come again.
const maxPattern = 1024

// chain is the Markov chain. Segment i of a pattern begins with the request for epoch i and lasts a period of the clock.
// Epoch 0 of the pattern gets to all levels. A failure in a segment goes back to the newest epoch that has reached a
// level that is high enough by then; all segments from that epoch on are done again.
type chain struct {
	stop, write float64 // seconds
	raise       [Top + 1]float64
	restart     [Top + 1]float64
	rate        [Top + 1]float64 // failures of each class a second
	behind      float64

	value, again, sum []float64 // of segments (pass); sum[i] is that of those before i
}

func newChain(c Costs, f Failures) *chain {
	m := &chain{stop: c.Stop.Seconds(), write: c.Write.Seconds(), behind: Behind}
	for k := 1; k <= Top; k++ {
		m.raise[k], m.restart[k] = c.Raise[k].Seconds(), c.Restart[k].Seconds()
		if f[k] > 0 {
			m.rate[k] = 1 / f[k].Seconds()
		}
	}
	return m
}

// counted are the rates of the classes that something can be done against, and their sum: where no level is high enough
// the job begins again, whatever the period.
func (m *chain) counted(e Every) (rate [Top + 1]float64, sum float64) {
	for k := e.top(); k >= 1; k-- {
		rate[k] = m.rate[k]
		sum += rate[k]
	}
	return rate, sum
}

// top is the highest level that is used.
func (e Every) top() int {
	for k := Top; k > 0; k-- {
		if e[k] > 0 {
			return k
		}
	}
	return 0
}

// pattern is after how many epochs all levels come again.
func (e Every) pattern() int {
	n := 1
	for _, often := range e {
		if often > 0 {
			n = n / gcd(n, often) * often
		}
		if n > maxPattern {
			return maxPattern
		}
	}
	return n
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// behindEach is what is done in the background for an epoch, on average: seconds of raising.
func (m *chain) behindEach(e Every) (sum float64) {
	for k := 2; k <= Top; k++ {
		if e[k] > 0 {
			sum += m.raise[k] / float64(e[k])
		}
	}
	return sum
}

// cost is what an epoch takes from the program, on average.
func (m *chain) cost(e Every) float64 {
	return m.stop + m.behind*(m.write+m.behindEach(e))
}

// piece is a part of a segment in which a failure finds the same epochs.
type piece struct {
	until float64 // share of the segment
	late  [Top + 1]int
}

// pieces says how many epochs late each level is, by the time since the last request.
func (m *chain) pieces(period float64, e Every) []piece {
	var whole [Top + 1]int
	var part [Top + 1]float64
	cuts := []float64{1}
	after := m.stop + m.write
	for k := 1; k <= Top; k++ {
		if e[k] == 0 {
			continue
		}
		after += m.raise[k]
		w, p := math.Modf(after / period)
		whole[k], part[k] = int(w), p
		cuts = append(cuts, p)
	}
	slices.Sort(cuts)
	var list []piece
	from := 0.0
	for _, cut := range cuts {
		if cut <= from {
			continue
		}
		p := piece{until: cut}
		for k := 1; k <= Top; k++ {
			p.late[k] = whole[k]
			if (from+cut)/2 < part[k] {
				p.late[k]++
			}
		}
		list, from = append(list, p), cut
	}
	return list
}

// useful is the share of the time in which the program comes nearer to its end.
func (m *chain) useful(period float64, e Every) float64 {
	gain := period - m.cost(e)
	if gain <= 0 {
		return 0
	}
	rate, all := m.counted(e)
	if all == 0 {
		return gain / period
	}
	n := e.pattern()
	if cap(m.value) < n {
		m.value, m.again, m.sum = make([]float64, maxPattern), make([]float64, maxPattern), make([]float64, maxPattern+1)
	}
	m.value, m.again, m.sum = m.value[:n], m.again[:n], m.sum[:n+1]
	// After a restart a segment has the same work, but no epoch is made in it.
	pieces := m.pieces(period, e)
	late := pieces[(len(pieces)-1)/2].late // what was under way is lost with a restart
	for k := range late {
		if e.from(1) == k {
			late[k] = 0
		}
	}
	first := m.segment(period, rate, all, e, pieces)
	after := m.segment(period-m.stop-m.behind*m.write, rate, all, e, []piece{{1, late}})
	for i := range n { // the pattern before the first: as though nothing were done twice
		m.value[i], m.again[i] = first.base*first.grow, after.base*after.grow
		m.sum[i+1] = m.sum[i] + m.value[i]
	}
	before := m.sum[n]
	for range 20 {
		m.pass(n, rate, e, &first, &after)
		now := m.sum[n]
		if math.IsInf(now, 0) || math.IsNaN(now) || now <= 0 {
			return 0
		}
		if math.Abs(now-before) < 1e-5*now {
			break
		}
		before = now
	}
	return gain * float64(n) / m.sum[n]
}

// segment is what does not depend on where a segment is in the pattern.
type segment struct {
	grow   float64 // e to the power of the failures that come in it on average
	base   float64 // the time to its end or to the first failure, and of the restart then
	pieces []piece
	odds   [Top + 1][]float64 // of a failure of a class in a piece
}

func (m *chain) segment(long float64, rate [Top + 1]float64, all float64, e Every, pieces []piece) segment {
	s := segment{grow: math.Exp(all * long), pieces: pieces}
	failed := 1 - 1/s.grow
	s.base = failed / all
	for k := 1; k <= Top; k++ {
		if rate[k] == 0 {
			continue
		}
		s.base += rate[k] / all * failed * math.Expm1(all*m.restart[e.from(k)]) / all
		begun := 1.0
		for _, p := range pieces {
			end := math.Exp(-all * long * p.until)
			s.odds[k] = append(s.odds[k], rate[k]/all*(begun-end))
			begun = end
		}
	}
	return s
}

// from is the lowest level that is used and that survives a failure of a class.
func (e Every) from(class int) int {
	for k := class; k <= Top; k++ {
		if e[k] > 0 {
			return k
		}
	}
	return 0
}

// pass computes all segments, from those of the pattern before: how long it takes to get to the end of segment i from its
// beginning, the first time (value) and after a restart from epoch i (again).
func (m *chain) pass(n int, rate [Top + 1]float64, e Every, first, after *segment) {
	old := m.sum[n]
	for i := range n {
		// x = a + b x + c y, y = d + f x + g y, where x is the first time, y after a restart
		a, b, c := m.back(i, n, old, rate, e, first)
		d, f, g := m.back(i, n, old, rate, e, after)
		y := (d*(1-b) + f*a) / ((1-g)*(1-b) - f*c)
		m.value[i], m.again[i] = (a+c*y)/(1-b), y
		m.sum[i+1] = m.sum[i] + m.value[i]
	}
}

// back is what a failure in segment i leads to: time that is known, and the odds that the segment is begun anew for the
// first time, after an older epoch, and from its own epoch.
func (m *chain) back(i, n int, old float64, rate [Top + 1]float64, e Every, s *segment) (time, older, own float64) {
	time = s.base
	for q := range s.pieces {
		at := math.MinInt // the newest epoch at this level or a higher one
		for k := Top; k >= 1; k-- {
			if e[k] > 0 {
				p := i - s.pieces[q].late[k]
				at = max(at, p-mod(p, e[k]))
			}
			if rate[k] == 0 {
				continue
			}
			odds := s.odds[k][q]
			switch {
			case at == i:
				own += odds
			case at >= 0:
				older += odds
				time += odds * (m.again[at] + m.sum[i] - m.sum[at+1])
			default: // in the pattern before; its parts are taken as equal
				older += odds
				time += odds * (m.again[mod(at, n)] + m.sum[i] + old*float64(-at-1)/float64(n))
			}
		}
	}
	return time, older, own
}

func mod(a, n int) int {
	if a %= n; a < 0 {
		a += n
	}
	return a
}
