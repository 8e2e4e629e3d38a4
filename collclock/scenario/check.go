// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"math"

	"github.com/libckpt/libckpt/collclock"
)

// checkSafe tells why the state is not safe.
func (w *World) checkSafe() error {
	for t, th := range w.threads {
		if th.stage == inside || th.stage == entered {
			return fmt.Errorf("rank %d is in %q", w.prog.Threads[t].Rank, w.op(t))
		}
	}
	for r := range w.ranks {
		if len(w.ranks[r].starts) > 0 {
			return fmt.Errorf("rank %d is about to start call %d on %s", r, w.ranks[r].starts[0].K, w.name(w.ranks[r].starts[0].Clock))
		}
		for _, q := range w.ranks[r].requests {
			if q.state == running {
				return fmt.Errorf("rank %d has request %s on %s under way", r, q.name, w.prog.Comms[q.comm].Name)
			}
		}
	}
	for i, c := range w.prog.Comms {
		first := w.members[i][c.Members[0]]
		for _, r := range c.Members[1:] {
			m := w.members[i][r]
			if m.starts != first.starts {
				return fmt.Errorf("%s: rank %d has started %d collectives, rank %d %d", c.Name, c.Members[0], first.starts, r, m.starts)
			}
			if m.exists != first.exists || m.freed != first.freed {
				return fmt.Errorf("%s exists on one of ranks %d and %d only", c.Name, c.Members[0], r)
			}
		}
	}
	return nil
}

// viewer is a protocol that shows its clocks: the refined one.
type viewer interface {
	Views() []collclock.View
	Phase() collclock.Phase
	Epoch() uint32
}

// checkInvariants checks I1 to I4 on all ranks that are in the same epoch as the clock's home.
func (w *World) checkInvariants() error {
	if _, ok := w.ranks[0].proto.(viewer); !ok {
		return nil
	}
	type all struct {
		home                      collclock.View
		haveHome                  bool
		homeEpoch                 uint32
		views                     int
		leastCall, mostSnap, most uint64
	}
	clocks := map[collclock.ID]*all{}
	for _, c := range w.prog.Comms {
		clocks[c.ID] = &all{leastCall: math.MaxUint64}
	}
	for r := range w.ranks {
		v := w.ranks[r].proto.(viewer)
		for _, c := range v.Views() {
			a := clocks[c.ID]
			if a == nil {
				return fmt.Errorf("rank %d has a clock %v that no communicator has", r, c.ID)
			}
			if !c.Created {
				continue
			}
			if c.Ent > c.Call || c.Ret > c.Ent {
				return fmt.Errorf("I1: rank %d %s: %d returned, %d permitted, %d called", r, w.name(c.ID), c.Ret, c.Ent, c.Call)
			}
			a.leastCall = min(a.leastCall, c.Call)
			a.views++
			if v.Phase() >= collclock.Open {
				a.mostSnap = max(a.mostSnap, c.Snap)
			}
			a.most = max(a.most, c.Ent)
			if c.Home {
				a.home, a.haveHome, a.homeEpoch = c, v.Phase() >= collclock.Open, v.Epoch()
			}
		}
	}
	for _, c := range w.prog.Comms {
		a := clocks[c.ID]
		if a.views < len(c.Members) {
			a.leastCall = 0
		}
		if !a.haveHome || a.home.Freed {
			continue
		}
		h, limit := a.home, max(a.home.T0, a.home.Goal)
		everybody := true
		for _, r := range c.Members {
			v := w.ranks[r].proto.(viewer)
			everybody = everybody && v.Epoch() == a.homeEpoch && v.Phase() >= collclock.Open
		}
		if !everybody {
			continue
		}
		switch {
		case h.AllInit && a.most > limit:
			return fmt.Errorf("I1: %s: %d permitted, limit %d", c.Name, a.most, limit)
		case h.Goal > max(h.T0, a.leastCall):
			return fmt.Errorf("I2: %s: limit %d, owed %d, all have called %d", c.Name, h.Goal, h.T0, a.leastCall)
		case h.AllInit && h.T0 != a.mostSnap:
			return fmt.Errorf("I3: %s: owed %d, largest snapshot %d", c.Name, h.T0, a.mostSnap)
		case h.Frozen && limit > a.leastCall:
			return fmt.Errorf("I4: %s: frozen at %d, all have called %d", c.Name, limit, a.leastCall)
		case h.Frozen && h.Fin != limit && h.AllInit:
			return fmt.Errorf("I4: %s: frozen at %d, limit now %d", c.Name, h.Fin, limit)
		}
	}
	return nil
}
