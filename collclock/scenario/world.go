// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/libckpt/libckpt/collclock"
)

// Protocol is the protocol of one rank.
type Protocol interface {
	Step(collclock.Event) []collclock.Action
	Clone() Protocol
	AppendState([]byte) []byte
}

// Maker makes the protocol of each rank.
type Maker func(rank, ranks int) Protocol

// Options of a run.
type Options struct {
	Requests int // how many checkpoints are asked for
	Aborts   int // how many epochs may be given up at any moment
	// GroupOnParent counts create_group on the parent communicator, as the published code does.
	GroupOnParent bool
	// InOrder keeps messages between two ranks in order; otherwise they overtake each other.
	InOrder bool
}

// Stages of a thread within its operation.
type stage uint8

const (
	begin   stage = iota
	asked         // told the protocol, no answer yet
	inside        // permitted, not in MPI yet
	entered       // in MPI
	synced        // ssend: sent, not received yet
	arrived       // bridge: waits until the leaders have met
)

type threadState struct {
	at    int
	stage stage
	k     uint64 // number of the call on its clock; of the message, when synced
	mpi   uint64 // number of the collective on its communicator
}

// member is what MPI knows of one rank in one communicator.
type member struct {
	exists bool   // the rank has the handle
	freed  bool   // and gave it back
	here   bool   // and has come to the bridge that makes it
	calls  uint64 // calls made
	starts uint64 // calls that really began
}

// request is a non-blocking collective of one rank.
type request struct {
	name  string
	comm  int
	k     uint64
	state requestState
}

type requestState uint8

const (
	deferred requestState = iota // not started yet
	running
	done // and the protocol was told
)

type rankState struct {
	proto    Protocol
	raise    uint32 // the snapshot that is to be taken; 0: none
	starts   []collclock.Start
	requests []request
	stopped  bool
	sent     []uint8 // to each rank
	taken    []uint8 // from each rank
}

type packet struct {
	from, to int32
	msg      collclock.Message
}

// World is one state of a run.
type World struct {
	prog    *Program
	opt     Options
	threads []threadState
	ranks   []rankState
	members [][]member // by communicator and rank
	net     []packet

	requested, aborted, safe int
	epochSafe                bool // rank 0 has declared the state safe and not ended the epoch yet
	messages                 int
	log                      func(format string, args ...any)
}

// New is the state before the first step.
func New(p *Program, make_ Maker, opt Options) *World {
	w := &World{prog: p, opt: opt, threads: make([]threadState, len(p.Threads)), log: func(string, ...any) {}}
	for range p.Comms {
		w.members = append(w.members, make([]member, p.Ranks))
	}
	for r := range p.Ranks {
		w.ranks = append(w.ranks, rankState{proto: make_(r, p.Ranks), sent: make([]uint8, p.Ranks), taken: make([]uint8, p.Ranks)})
		w.members[0][r].exists = true
	}
	for i, c := range p.Comms {
		if i == 0 || c.Parent != "" {
			continue
		}
		for _, r := range c.Members {
			w.members[i][r].exists = true
			if err := w.step(int(r), collclock.Created{Clock: c.ID, Group: c.Group}); err != nil {
				panic(err) // a machine that is only just made refuses nothing
			}
		}
	}
	return w
}

// Clone is an independent copy.
func (w *World) Clone() *World {
	n := *w
	n.threads = slices.Clone(w.threads)
	n.net = slices.Clone(w.net)
	n.ranks = slices.Clone(w.ranks)
	for i := range n.ranks {
		r := &n.ranks[i]
		r.proto = r.proto.Clone()
		r.starts = slices.Clone(r.starts)
		r.requests = slices.Clone(r.requests)
		r.sent = slices.Clone(r.sent)
		r.taken = slices.Clone(r.taken)
	}
	n.members = slices.Clone(w.members)
	for i := range n.members {
		n.members[i] = slices.Clone(n.members[i])
	}
	return &n
}

var seed = maphash.MakeSeed()

// Fingerprint is equal for equal states (and unequal for others but for 1 in 2^64).
func (w *World) Fingerprint() uint64 {
	b := make([]byte, 0, 2048)
	b = append(b, byte(w.requested), byte(w.aborted), flag(w.epochSafe))
	for _, th := range w.threads {
		b = append(b, byte(th.at), byte(th.stage), byte(th.k), byte(th.mpi))
	}
	for _, c := range w.members {
		for _, m := range c {
			b = append(b, flag(m.exists), flag(m.freed), flag(m.here), byte(m.calls), byte(m.starts))
		}
	}
	for i := range w.ranks {
		r := &w.ranks[i]
		b = append(b, byte(r.raise), flag(r.stopped), byte(len(r.starts)), byte(len(r.requests)))
		for _, s := range r.starts {
			b = append(append(b, s.Clock[:]...), byte(s.K))
		}
		for _, q := range r.requests {
			b = append(append(b, q.name...), '|', byte(q.comm), byte(q.k), byte(q.state))
		}
		b = append(append(b, r.sent...), r.taken...)
		b = r.proto.AppendState(b)
	}
	packets := make([]string, len(w.net))
	for i, p := range w.net {
		packets[i] = string(collclock.AppendMessage([]byte{byte(p.from), byte(p.to)}, p.msg))
	}
	if !w.opt.InOrder {
		slices.Sort(packets)
	}
	for _, p := range packets {
		b = append(append(b, p...), '|')
	}
	return maphash.Bytes(seed, b)
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// step gives the protocol of one rank an event and does what it asks for.
func (w *World) step(rank int, e collclock.Event) error {
	r := &w.ranks[rank]
	for _, a := range r.proto.Step(e) {
		switch a := a.(type) {
		case collclock.Send:
			w.messages++
			w.net = append(w.net, packet{int32(rank), a.To, a.Message})
		case collclock.Raise:
			r.raise = a.Epoch
		case collclock.Permit:
			t := w.waitingThread(rank, a.Clock, a.K)
			if t < 0 {
				return fmt.Errorf("rank %d: permit for call %d on %s, where nobody waits", rank, a.K, w.name(a.Clock))
			}
			w.threads[t].stage = inside
		case collclock.Defer:
			t := w.waitingThread(rank, a.Clock, a.K)
			if t < 0 {
				return fmt.Errorf("rank %d: call %d on %s deferred, but nobody waits", rank, a.K, w.name(a.Clock))
			}
			op := w.op(t)
			r.requests = append(r.requests, request{name: op.Request, comm: w.prog.Comm(op.Comm), k: a.K, state: deferred})
			w.next(t)
		case collclock.Start:
			r.starts = append(r.starts, a)
		case collclock.Stop:
			r.stopped = true
			if rank == 0 {
				w.safe++
				w.epochSafe = true
				if err := w.checkSafe(); err != nil {
					return fmt.Errorf("declared safe: %w", err)
				}
			}
		case collclock.Resumed:
			r.stopped = false
			if rank == 0 {
				w.epochSafe = false
			}
		case collclock.Report:
			if a.What == collclock.ReportFault {
				return fmt.Errorf("rank %d: %s", rank, a.Text)
			}
		}
		w.log("      rank %d: %s", rank, describe(a, w))
	}
	return w.checkInvariants()
}

// waitingThread is the thread of a rank that asked for call k on a clock.
func (w *World) waitingThread(rank int, id collclock.ID, k uint64) int {
	for t, th := range w.threads {
		if w.prog.Threads[t].Rank == rank && th.stage == asked && th.k == k && w.prog.Comms[w.clockOf(t)].ID == id {
			return t
		}
	}
	return -1
}

func (w *World) op(t int) Op { return w.prog.Threads[t].Ops[w.threads[t].at] }

func (w *World) next(t int) {
	w.threads[t].at++
	w.threads[t].stage, w.threads[t].k, w.threads[t].mpi = begin, 0, 0
}

// clockOf is the communicator whose clock counts the current operation of a thread.
func (w *World) clockOf(t int) int {
	op := w.op(t)
	if op.Verb == Bridge || op.Verb == Group && !w.opt.GroupOnParent {
		return w.prog.Comm(op.New)
	}
	return w.prog.Comm(op.Comm)
}

func (w *World) name(id collclock.ID) string {
	for _, c := range w.prog.Comms {
		if c.ID == id {
			return c.Name
		}
	}
	return id.String()
}
