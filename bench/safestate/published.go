// SPDX-License-Identifier: Apache-2.0

package main

// published is the published algorithm at its best: at the request all ranks know all targets at once,
// a raised target is known at once, and the safe state is noticed at the moment when it is reached.
// (The machine in collclock/published, which sends messages for all this, may deadlock.)
type published struct {
	s      *sim
	seq    []map[int]int // calls begun, by rank and communicator
	target []int         // by communicator
	owing  []int         // communicators on which each rank owes
	inside []bool
	parked []int    // communicator that each rank is parked at, or -1
	since  []micros // when
	busy   int      // ranks that owe or are inside

	messages    int
	asked, safe micros
	idle        micros // sum over ranks of the time parked
	reached     bool
}

func newPublished(s *sim) *published {
	p := &published{s: s, target: make([]int, len(s.job.comms)), owing: make([]int, s.job.ranks),
		inside: make([]bool, s.job.ranks), parked: make([]int, s.job.ranks), since: make([]micros, s.job.ranks)}
	for r := range s.job.ranks {
		p.seq = append(p.seq, map[int]int{})
		p.parked[r] = -1
	}
	return p
}

func (p *published) request() {
	p.asked = p.s.now
	for r := range p.seq {
		for _, c := range p.s.job.of[r] {
			p.target[c] = max(p.target[c], p.seq[r][c])
		}
	}
	for r := range p.seq {
		for _, c := range p.s.job.of[r] {
			if p.seq[r][c] < p.target[c] {
				p.owing[r]++
			}
		}
		if p.owing[r] > 0 || p.inside[r] {
			p.busy++
		}
	}
	p.detect()
}

func (p *published) call(r, c int) {
	if p.s.pending && p.owing[r] == 0 {
		p.parked[r], p.since[r] = c, p.s.now
		return
	}
	p.seq[r][c]++
	p.inside[r] = true
	if p.s.pending {
		switch {
		case p.seq[r][c] == p.target[c]:
			p.owing[r]-- // still busy: inside
		case p.seq[r][c] > p.target[c]:
			p.raise(r, c)
		}
	}
	p.s.enter(r, c)
}

// raise tells all members that rank r went beyond the target of c.
func (p *published) raise(r, c int) {
	g := p.s.job.comms[c].group
	p.messages += g.Size() - 1
	old := p.target[c]
	p.target[c] = p.seq[r][c]
	for i := range g.Size() {
		m := int(g.Rank(i))
		if m == r || p.seq[m][c] < old {
			continue // owed already
		}
		if p.owing[m]++; p.owing[m] == 1 && !p.inside[m] {
			p.busy++
		}
		if at := p.parked[m]; at >= 0 {
			p.parked[m] = -1
			p.idle += p.s.now - p.since[m]
			p.s.after(0, func() { p.call(m, at) })
		}
	}
}

func (p *published) returned(r, _ int) {
	p.inside[r] = false
	if p.s.pending && p.owing[r] == 0 {
		p.busy--
		p.detect()
	}
}

func (p *published) detect() {
	if p.busy > 0 {
		return
	}
	p.safe, p.reached, p.s.done = p.s.now, true, true
	for r, c := range p.parked {
		if c >= 0 {
			p.idle += p.s.now - p.since[r]
		}
	}
}
