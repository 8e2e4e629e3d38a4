// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/libckpt/libckpt/collclock"

// The cost of control messages: microseconds on the way, and for the helper at either end.
const (
	onTheWay micros = 2
	handling micros = 1
)

// refined runs one collclock.Machine per rank.
type refined struct {
	s        *sim
	machines []*collclock.Machine
	busy     []micros // until when each rank's helper is busy
	round    []int    // length of the longest chain of messages behind what each rank knows
	index    map[collclock.ID]int

	messages             int
	asked, ready, safe   micros
	readyRound, endRound int
}

func newRefined(s *sim) *refined {
	p := &refined{s: s, busy: make([]micros, s.job.ranks), round: make([]int, s.job.ranks), index: map[collclock.ID]int{}}
	for i, c := range s.job.comms {
		p.index[c.id] = i
	}
	for r := range s.job.ranks {
		cfg := collclock.Config{Rank: r, Ranks: s.job.ranks}
		if r == 0 {
			cfg.Trace = p.trace
		}
		m := collclock.New(cfg)
		for _, c := range s.job.of[r] {
			if id := s.job.comms[c].id; id != collclock.World() {
				m.Step(collclock.Created{Clock: id, Group: s.job.comms[c].group})
			}
		}
		p.machines = append(p.machines, m)
	}
	return p
}

func (p *refined) trace(e collclock.TraceEvent) {
	if e.Kind == collclock.TraceReady {
		p.ready, p.readyRound = p.s.now, p.round[0]
	}
}

func (p *refined) call(r, comm int) { p.step(r, collclock.Call{Clock: p.s.job.comms[comm].id}) }

func (p *refined) returned(r, comm int) { p.step(r, collclock.Return{Clock: p.s.job.comms[comm].id}) }

func (p *refined) request() {
	p.asked = p.s.now
	p.step(0, collclock.Request{})
}

// step is done by the helper of rank r, or by its application.
func (p *refined) step(r int, e collclock.Event) {
	// The machine uses its list of actions again in the next step, which a permit can lead to.
	actions := p.machines[r].Step(e)
	if len(actions) > 1 {
		actions = append([]collclock.Action(nil), actions...)
	}
	for _, a := range actions {
		switch a := a.(type) {
		case collclock.Send:
			p.send(r, a)
		case collclock.Raise:
			p.busy[r] = max(p.busy[r], p.s.now) + handling // the fence
			p.s.after(p.busy[r]-p.s.now, func() { p.step(r, collclock.Snapshot{Epoch: a.Epoch}) })
		case collclock.Permit:
			p.s.enter(r, p.index[a.Clock])
		case collclock.Stop:
			if r == 0 {
				p.safe, p.endRound = p.s.now, p.round[0]
				p.s.done = true
			}
		}
	}
}

func (p *refined) send(from int, a collclock.Send) {
	p.messages++
	s, to, round := p.s, int(a.To), p.round[from]+1
	p.busy[from] = max(p.busy[from], s.now) + handling
	s.after(p.busy[from]+onTheWay-s.now, func() {
		p.busy[to] = max(p.busy[to], s.now) + handling
		s.after(p.busy[to]-s.now, func() {
			p.round[to] = max(p.round[to], round)
			p.step(to, collclock.Received{From: int32(from), Message: a.Message})
		})
	})
}
