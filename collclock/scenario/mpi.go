// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"slices"

	"github.com/libckpt/libckpt/collclock"
)

// What the application and MPI do, one step at a time.

// clearer is a protocol that has a say in when a permitted call is entered.
type clearer interface{ Clear(collclock.ID) bool }

// canStart tells whether a rank can start a deferred call: who is inside of MPI cannot.
func (w *World) canStart(rank int) bool {
	if len(w.ranks[rank].starts) == 0 {
		return false
	}
	for t, th := range w.threads {
		if w.prog.Threads[t].Rank == rank && th.stage != entered {
			return true
		}
	}
	return false
}

// canStep tells whether thread t can take a step.
func (w *World) canStep(t int) bool {
	th := w.threads[t]
	rank := w.prog.Threads[t].Rank
	if th.at == len(w.prog.Threads[t].Ops) {
		return false
	}
	r, op := &w.ranks[rank], w.op(t)
	switch th.stage {
	case asked:
		return false
	case inside:
		p, ok := r.proto.(clearer)
		return !ok || p.Clear(w.prog.Comms[w.clockOf(t)].ID)
	case arrived: // at a bridge; the leaders have met
		x := w.prog.Comm(op.New)
		return !r.stopped && w.members[x][op.Members[0]].here && w.members[x][op.Members[1]].here
	case entered:
		return w.canLeave(op, rank, th.mpi)
	case synced:
		return !r.stopped && uint64(w.ranks[op.Peer].taken[rank]) >= th.k
	}
	switch op.Verb {
	case Send, Ssend:
		return !r.stopped
	case Recv:
		return !r.stopped && w.ranks[op.Peer].sent[rank] > r.taken[op.Peer]
	case Any:
		return !r.stopped && w.sender(rank) >= 0
	case Bridge: // behind what this rank has to start on the local communicator
		local := w.prog.Comm(op.Comm)
		return !slices.ContainsFunc(r.requests, func(q request) bool { return q.comm == local && q.state == deferred })
	case Wait:
		i := w.requestIndex(rank, op.Request)
		return i >= 0 && r.requests[i].state == done
	}
	return true
}

func (w *World) requestIndex(rank int, name string) int {
	return slices.IndexFunc(w.ranks[rank].requests, func(q request) bool { return q.name == name })
}

// sender is the lowest rank that has sent something to rank which it has not received.
func (w *World) sender(rank int) int {
	for from := range w.ranks {
		if w.ranks[from].sent[rank] > w.ranks[rank].taken[from] {
			return from
		}
	}
	return -1
}

// canLeave tells whether MPI lets a rank out of an operation that is the k-th on its communicator.
func (w *World) canLeave(op Op, rank int, k uint64) bool {
	comm := w.prog.Comm(op.Comm)
	switch op.Verb {
	case Free, Gone, Icoll, Start, Object:
		return true
	case Bcast:
		return op.Peer == rank || w.members[comm][op.Peer].starts >= k
	case Group, Bridge:
		// Only the members meet, each in its first call on what it makes.
		for _, m := range op.Members {
			if w.members[w.prog.Comm(op.New)][m].starts == 0 {
				return false
			}
		}
		return true
	}
	return w.allStarted(comm, k)
}

func (w *World) allStarted(comm int, k uint64) bool {
	for _, m := range w.prog.Comms[comm].Members {
		if w.members[comm][m].starts < k {
			return false
		}
	}
	return true
}

// stepThread takes a step of thread t, which can.
func (w *World) stepThread(t int) error {
	rank, th, op := w.prog.Threads[t].Rank, &w.threads[t], w.op(t)
	r := &w.ranks[rank]
	switch {
	case th.stage == inside:
		return w.enter(t)
	case th.stage == entered:
		return w.leave(t)
	case th.stage == synced || op.Verb == Wait:
		w.next(t)
	case op.Verb == Bridge && th.stage == begin:
		w.members[w.prog.Comm(op.New)][rank].here = true
		w.threads[t].stage = arrived
	case op.Verb == Send:
		r.sent[op.Peer]++
		w.next(t)
	case op.Verb == Ssend:
		r.sent[op.Peer]++
		th.k, th.stage = uint64(r.sent[op.Peer]), synced
	case op.Verb == Recv:
		r.taken[op.Peer]++
		w.next(t)
	case op.Verb == Any:
		r.taken[w.sender(rank)]++
		w.next(t)
	default:
		return w.ask(t)
	}
	return nil
}

// ask makes a collective call.
func (w *World) ask(t int) error {
	rank, op := w.prog.Threads[t].Rank, w.op(t)
	comm := w.clockOf(t)
	c := w.prog.Comms[comm]
	m := &w.members[comm][rank]
	if op.Verb == Bridge || op.Verb == Group && !w.opt.GroupOnParent {
		// The clock must exist before the call that it counts; the handle does not yet.
		if err := w.step(rank, collclock.Created{Clock: c.ID, Group: c.Group}); err != nil {
			return err
		}
	} else if !m.exists || m.freed {
		return fmt.Errorf("program error: rank %d uses %s, which it does not have", rank, c.Name)
	}
	m.calls++
	w.threads[t].k, w.threads[t].stage = m.calls, asked
	mode := collclock.Blocking
	switch op.Verb {
	case Icoll, Start:
		mode = collclock.NonBlocking
	case Gated:
		mode = collclock.Gated
	}
	return w.step(rank, collclock.Call{Clock: c.ID, Mode: mode})
}

// enter begins a real call.
func (w *World) enter(t int) error {
	rank, op := w.prog.Threads[t].Rank, w.op(t)
	comm := w.clockOf(t)
	if w.epochSafe {
		return fmt.Errorf("rank %d enters call %d on %s in a state declared safe", rank, w.threads[t].k, w.prog.Comms[comm].Name)
	}
	real := comm
	if op.Verb == Group || op.Verb == Bridge { // whatever it is counted on, it meets only the members
		real = w.prog.Comm(op.New)
	}
	w.begin(real, rank)
	w.threads[t].stage, w.threads[t].mpi = entered, w.members[real][rank].starts
	if op.Verb != Icoll && op.Verb != Start {
		return nil
	}
	r := &w.ranks[rank]
	r.requests = append(r.requests, request{name: op.Request, comm: comm, k: w.members[comm][rank].starts, state: running})
	w.next(t)
	return w.step(rank, collclock.Return{Clock: w.prog.Comms[comm].ID, Request: true})
}

func (w *World) begin(comm, rank int) { w.members[comm][rank].starts++ }

// leave ends a blocking call, after telling what it made or freed.
func (w *World) leave(t int) error {
	rank, op := w.prog.Threads[t].Rank, w.op(t)
	clock, k := w.prog.Comms[w.clockOf(t)].ID, w.threads[t].k
	w.next(t)
	var made int
	switch op.Verb {
	case Make, Group, Bridge, Object:
		made = w.prog.Comm(op.New)
		if slices.Contains(w.prog.Comms[made].Members, int32(rank)) {
			w.members[made][rank].exists = true
			if op.Verb == Bridge || op.Verb == Group && !w.opt.GroupOnParent {
				break
			}
			c := w.prog.Comms[made]
			if err := w.step(rank, collclock.Created{Clock: c.ID, Group: c.Group}); err != nil {
				return err
			}
		}
	case Gone: // its counters are gone too, so the call says itself how far it came
		w.members[w.prog.Comm(op.Comm)][rank].freed = true
		return w.step(rank, collclock.Freed{Clock: clock, K: k})
	case Free:
		w.members[w.prog.Comm(op.Comm)][rank].freed = true
		if err := w.step(rank, collclock.Freed{Clock: clock}); err != nil {
			return err
		}
	}
	return w.step(rank, collclock.Return{Clock: clock})
}

// stepStart does the first deferred start of a rank.
func (w *World) stepStart(rank int) error {
	r := &w.ranks[rank]
	s := r.starts[0]
	r.starts = r.starts[1:]
	if w.epochSafe {
		return fmt.Errorf("rank %d starts call %d on %s in a state declared safe", rank, s.K, w.name(s.Clock))
	}
	for i := range r.requests {
		q := &r.requests[i]
		if w.prog.Comms[q.comm].ID == s.Clock && q.k == s.K && q.state == deferred {
			q.state = running
			w.begin(q.comm, rank)
			if w.members[q.comm][rank].starts != q.k {
				return fmt.Errorf("rank %d starts call %d on %s as number %d", rank, q.k, w.name(s.Clock), w.members[q.comm][rank].starts)
			}
			return w.step(rank, collclock.Started(s))
		}
	}
	return fmt.Errorf("rank %d is to start call %d on %s, which was not deferred", rank, s.K, w.name(s.Clock))
}

// testable is a running request of a rank that MPI has completed, or -1.
func (w *World) testable(rank int) int {
	for i, q := range w.ranks[rank].requests {
		if q.state == running && w.allStarted(q.comm, q.k) {
			return i
		}
	}
	return -1
}

func (w *World) stepTest(rank int) error {
	q := &w.ranks[rank].requests[w.testable(rank)]
	q.state = done
	return w.step(rank, collclock.Completed{Clock: w.prog.Comms[q.comm].ID})
}
