// SPDX-License-Identifier: Apache-2.0

package clockwork

import (
	"slices"

	"github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/vid"
)

// Position says how far a rank is in the collective calls of one communicator.
type Position struct {
	Clock  string
	Name   string // of the communicator
	Called uint64
	Owes   uint64 // calls that it has still to make before the state is safe
	Gate   bool   // the last call waits for the others to make theirs
	Inside bool   // the last call has not returned
	Call   string // its name, while it has not returned, where the Clock knows it
	// Who has to make it (ranks of the job), where the clock is of this one call only: who has not come
	// to it does not know the clock.
	Members []int32
}

// Awaited is a call that waits to know who takes part in it.
type Awaited struct {
	Call string
	Name string // of the communicator
	Peer int    // rank of the job that has to say it
}

// maxPositions bounds an answer; those that somebody may wait for come first.
const maxPositions = 500

// Positions tells where a rank of this process stands in all its collective calls.
func (w *Clock) Positions(local int) ([]Position, []Awaited) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hear()
	t := w.tasks[local]
	s := t.machine.Status()
	owes, gate := map[collclock.ID]uint64{}, map[collclock.ID]bool{}
	for _, c := range s.Owes {
		owes[c.Clock] = c.Limit - c.Called
	}
	for _, c := range s.AtGate {
		gate[c.Clock] = true
	}
	all, waits := w.meetingsLocked(t, gate)
	for _, c := range vid.CallsOf(w.tables, t.comms) {
		id := t.comms[c.Comm]
		if c.Made == 0 && owes[id] == 0 {
			continue
		}
		all = append(all, Position{Clock: id.String(), Name: w.nameLocked(clockKey{t, id}), Called: c.Made, Owes: owes[id],
			Gate: gate[id], Inside: c.Made != c.Returned && !gate[id]})
	}
	busy := func(p Position) int {
		if p.Owes > 0 || p.Gate || p.Inside {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b Position) int { return busy(a) - busy(b) })
	return all[:min(len(all), maxPositions)], waits
}

// meetingsLocked says how far a rank is in calls that have a clock of their own (meet.go), and in calls whose
// members are not known yet.
func (w *Clock) meetingsLocked(t *task, gate map[collclock.ID]bool) (at []Position, waits []Awaited) {
	for _, m := range w.meetings {
		if m.of != t {
			continue
		}
		name := w.commNameLocked(m.comm)
		switch {
		case m.known && !m.plain:
			at = append(at, Position{Clock: m.id.String(), Name: name, Called: 1, Gate: gate[m.id],
				Inside: !gate[m.id], Call: m.call, Members: m.members})
		case !m.known:
			waits = append(waits, Awaited{Call: m.call, Name: name, Peer: int(m.awaiting)})
		}
	}
	return at, waits
}
