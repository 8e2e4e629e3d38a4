// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/libckpt/libckpt/ckpt/shm"
	"github.com/libckpt/libckpt/drain"
	"github.com/libckpt/libckpt/rails/signaling"
	"github.com/libckpt/libckpt/vid"
)

// Signals are small messages of a runtime's own over the signaling network, and its all-gathers there. Messages that
// have come wait here until the runtime's half takes them (ckpt_poll), and are counted on both sides, so that none
// is under way when an image is made. Any thread may call any method.
type Signals struct {
	net      *signaling.Network
	tables   *vid.Tables
	segments *shm.Segments

	mu             sync.Mutex
	inbox          []Signal
	sent, received []uint64 // by process
}

// Signal is one that has come.
type Signal struct {
	From    int
	Kind    uint16
	Payload []byte
}

// The kinds that are the runtime's (ckpt.h), and the bit of the word that ckpt_poll looks at.
const (
	SignalFirst  = 0x1000
	SignalLast   = 0xfeff
	SignalBytes  = 64 << 10
	attendSignal = 2
)

// runtimeTags keeps the runtime's tags apart from those of attempts.
const runtimeTags = 1 << 63

// NewSignals begins to hear signals. segments are those that the process has from an image.
func NewSignals(net *signaling.Network, tables *vid.Tables, segments *shm.Restored) *Signals {
	s := &Signals{net: net, tables: tables, segments: shm.New(net, kindSegment, segments), sent: make([]uint64, net.Size()), received: make([]uint64, net.Size())}
	net.HandleSpan(SignalFirst, SignalLast, s.heard)
	return s
}

func (s *Signals) heard(from int, kind uint16, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inbox = append(s.inbox, Signal{from, kind, payload})
	s.received[from]++
	s.tables.Attend(attendSignal)
}

// Segments are the shared segments of this process.
func (s *Signals) Segments() *shm.Segments {
	if s == nil {
		return nil
	}
	return s.segments
}

// Processes is how many can be sent to.
func (s *Signals) Processes() int { return s.net.Size() }

// Send sends a signal. It waits while the receiver has many that it has not looked at.
func (s *Signals) Send(ctx context.Context, to int, kind uint16, payload []byte) error {
	switch {
	case to < 0 || to >= s.net.Size():
		return fmt.Errorf("there is no process %d among %d", to, s.net.Size())
	case kind < SignalFirst || kind > SignalLast:
		return fmt.Errorf("signals of kind %#x are not the runtime's, whose kinds are %#x to %#x", kind, SignalFirst, SignalLast)
	case len(payload) > SignalBytes:
		return fmt.Errorf("a signal of %d bytes: at most %d", len(payload), SignalBytes)
	}
	s.mu.Lock()
	s.sent[to]++
	s.mu.Unlock()
	return s.net.Send(ctx, to, kind, payload)
}

// Waiting tells whether some have come that nobody has taken.
func (s *Signals) Waiting() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.inbox) > 0
}

// Next takes the oldest signal that has come, when take is true and it fits into room bytes. Else ok is false and the
// signal stays; length says how long it is, -1 when there is none.
func (s *Signals) Next(room int, take bool) (one Signal, length int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.inbox) == 0 {
		s.tables.Ignore(attendSignal)
		return Signal{}, -1, false
	}
	one = s.inbox[0]
	if !take || len(one.Payload) > room {
		return Signal{}, len(one.Payload), false
	}
	s.inbox[0] = Signal{}
	if s.inbox = s.inbox[1:]; len(s.inbox) == 0 {
		s.inbox = nil
		s.tables.Ignore(attendSignal)
	}
	return one, len(one.Payload), true
}

// Allgather is collective over processes.
func (s *Signals) Allgather(ctx context.Context, tag uint64, mine []byte) ([][]byte, error) {
	return s.net.Allgather(ctx, runtimeTags|tag, mine)
}

// Barrier is collective over processes.
func (s *Signals) Barrier(ctx context.Context, tag uint64) error {
	return s.net.Barrier(ctx, runtimeTags|tag)
}

// marks counts signals as messages of a communicator that a ledger of their own has.
func (s *Signals) marks() []drain.Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]drain.Mark, len(s.sent))
	for p := range out {
		out[p] = drain.Mark{Name: "signals", Peer: p, Sent: s.sent[p], Received: s.received[p]}
	}
	return out
}

// drainSignals waits for the signals that are under way to this rank. No rank sends any more. Collective.
func (a *attempt) drainSignals() error {
	s := a.j.signals
	if s == nil {
		return nil
	}
	out := drain.Notices(s.marks())
	in, err := await(a.poll, func() (map[int][]byte, error) { return a.j.group.exchange(a.ctx, a.tag(stepSignals), out) })
	if err != nil {
		return err
	}
	ledger, err := drain.NewLedger(in)
	if err != nil {
		return err
	}
	for end := time.Now().Add(drainTimeout); ; time.Sleep(pollPeriod) {
		gaps := ledger.Missing(s.marks())
		switch {
		case len(gaps) == 0:
			_, err := a.j.embedded.Drain() // takes them
			return err
		case a.ctx.Err() != nil:
			return fmt.Errorf("%w: signals under way have not arrived: %s", context.Cause(a.ctx), stillMissing(gaps, 0))
		case time.Now().After(end):
			return fmt.Errorf("signals under way did not arrive in %v: %s", drainTimeout, stillMissing(gaps, 0))
		}
	}
}

// Signals is nil without an embedded runtime.
func (j *Job) Signals() *Signals { return j.signals }

// JoinSignals joins the ranks of a runtime that ckptrun has not started, for signals alone. Collective.
func JoinSignals(rt Runtime, tables *vid.Tables) (*Signals, func(context.Context) error, error) {
	if rt.Ranks() < 1 {
		return nil, nil, fmt.Errorf("the runtime has %d processes", rt.Ranks())
	}
	net, err := join(rt, signaling.Config{})
	if err != nil {
		return nil, nil, err
	}
	return NewSignals(net, tables, nil), net.Shutdown, nil
}

// join makes the signaling network of all ranks. Collective.
func join(rt Runtime, config signaling.Config) (*signaling.Network, error) {
	ep, err := signaling.Listen(config)
	if err != nil {
		return nil, fmt.Errorf("signaling network: %w", err)
	}
	cards, err := rt.Allgather(ep.Card())
	if err != nil {
		ep.Close()
		return nil, fmt.Errorf("all-gather of the signaling network's addresses: %w", err)
	}
	rank := rt.Rank() // here: await runs its function on another thread, where no callback may be made
	net, err := await(rt.Progress, func() (*signaling.Network, error) {
		return ep.Join(context.Background(), rank, cards)
	})
	if err != nil {
		return nil, fmt.Errorf("signaling network: %w", err)
	}
	return net, nil
}
