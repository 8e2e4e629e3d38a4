// SPDX-License-Identifier: Apache-2.0

package clockwork

import (
	"context"
	"fmt"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/rails/signaling"
	"github.com/libckpt/libckpt/vid"
)

// Values of the pending word (include/ckpt/tables.h).
const (
	PendingClock = 1
	PendingStop  = 2
)

// Clock drives the collective clock of this rank: messages come from the signaling network, calls from the
// program's threads, requests and their end from the code that makes the checkpoint. Any thread may call any
// method. A nil Clock is for a process that has no other ranks to wait for: it ignores what the runtime tells of
// its calls, and lets all of them go on.
//
// Locks: mu is held while the machine takes one event. Nothing is called with mu held, and nobody waited for.
type Clock struct {
	events Events
	kinds  Kinds
	log    *zap.Logger
	tables *vid.Tables
	fence  func() error // on all threads of the process
	trace  *trace       // nil: none is asked for
	rank   int

	mu       sync.Mutex
	machine  *collclock.Machine
	stopping bool
	lost     bool // the network is: nobody waits for anybody here
	ids      map[vid.ID]collclock.ID
	comms    map[collclock.ID]vid.ID
	granted  map[collclock.ID]uint64 // highest call that was let in
	deferred map[collclock.ID]uint64 // highest call that was deferred
	starts   []DeferredStart         // asked for, not done yet
	nudging  bool                    // Events.Deferred runs
	outbox   []outgoing
	wake     chan struct{} // the outbox has something
	meet     meetings
}

// Events are what a Clock tells the code that makes the checkpoint, each on a goroutine of its own.
type Events struct {
	Safe     func(epoch uint32) // no collective call is under way on any rank
	Resumed  func()             // the epoch of the clock is over
	Deferred func()             // deferred calls may start, until Unstarted says that there are none
}

// Kinds are the messages of the signaling network that are a Clock's.
type Kinds struct {
	Clock uint16 // collclock.Message
	Meet  uint16 // who takes part in MPI_Intercomm_create
}

// Config says whose clock it is.
type Config struct {
	Rank, Ranks int
	Tables      *vid.Tables
	Log         *zap.Logger
	Events      Events
	Kinds       Kinds
}

// outgoing is a message of the signaling network.
type outgoing struct {
	to      int
	kind    uint16
	payload []byte
}

// DeferredStart is a non-blocking collective call that may now be started.
type DeferredStart struct {
	Comm vid.ID
	K    uint64
}

// New registers the process for membarrier, so that raising the pending word needs no fence on the
// program's side. It hears nothing before Listen.
func New(c Config) (*Clock, error) {
	fence, err := newFence()
	if err != nil {
		return nil, err
	}
	config := collclock.Config{Rank: c.Rank, Ranks: c.Ranks}
	record, err := openTrace(c.Rank)
	if err != nil {
		return nil, err
	}
	if record != nil {
		config.Trace = record.step
	}
	return &Clock{
		events: c.Events, kinds: c.Kinds, log: c.Log, tables: c.Tables, fence: fence, trace: record, rank: c.Rank,
		machine: collclock.New(config),
		ids:     map[vid.ID]collclock.ID{}, comms: map[collclock.ID]vid.ID{},
		granted: map[collclock.ID]uint64{}, deferred: map[collclock.ID]uint64{},
		wake: make(chan struct{}, 1), meet: newMeetings(),
	}, nil
}

// Listen takes messages from now on: other ranks may have sent some already.
func (w *Clock) Listen(net *signaling.Network) {
	net.Handle(w.kinds.Meet, w.heardMeet)
	net.Handle(w.kinds.Clock, func(from int, payload []byte) {
		m, err := collclock.DecodeMessage(payload)
		if err != nil {
			w.log.Error("collective clock", zap.Int("from", from), zap.Error(err))
			return
		}
		w.step(collclock.Received{From: int32(from), Message: m})
	})
	go w.post(net)
}

// linux/membarrier.h: MEMBARRIER_CMD_PRIVATE_EXPEDITED and its registration.
const (
	membarrierFence    = 1 << 3
	membarrierRegister = 1 << 4
)

// newFence registers the process, and returns what makes a barrier on all its threads.
func newFence() (func() error, error) {
	if err := membarrier(membarrierRegister); err != nil {
		return nil, fmt.Errorf("membarrier, which every Linux since 4.14 has: %w", err)
	}
	return func() error { return membarrier(membarrierFence) }, nil
}

func membarrier(cmd int) error {
	if _, _, e := unix.Syscall(unix.SYS_MEMBARRIER, uintptr(cmd), 0, 0); e != 0 {
		return e
	}
	return nil
}

// post sends what the machine wants sent: a step never waits for the network.
func (w *Clock) post(net *signaling.Network) {
	for {
		select {
		case <-w.wake:
		case <-net.Failed():
			return
		}
		w.mu.Lock()
		list := w.outbox
		w.outbox = nil
		w.mu.Unlock()
		for _, s := range list {
			if err := net.Send(context.Background(), s.to, s.kind, s.payload); err != nil {
				return // the network is gone, and all that wait for messages know
			}
		}
	}
}

func (w *Clock) step(e collclock.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stepLocked(e)
}

func (w *Clock) stepLocked(e collclock.Event) {
	for _, a := range append([]collclock.Action(nil), w.machine.Step(e)...) {
		w.act(a)
	}
	w.setPending()
}

func (w *Clock) setPending() {
	v := uint32(0)
	if w.machine.Pending() {
		v = PendingClock
	}
	if w.stopping {
		v = PendingStop
	}
	w.tables.SetPending(v)
}

func (w *Clock) sendLocked(to int, kind uint16, payload []byte) {
	w.outbox = append(w.outbox, outgoing{to, kind, payload})
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *Clock) act(a collclock.Action) {
	switch a := a.(type) {
	case collclock.Send:
		w.sendLocked(int(a.To), w.kinds.Clock, collclock.AppendMessage(nil, a.Message))
	case collclock.Raise:
		w.raise(a.Epoch)
	case collclock.Permit:
		w.granted[a.Clock] = max(w.granted[a.Clock], a.K)
	case collclock.Defer:
		w.deferred[a.Clock] = max(w.deferred[a.Clock], a.K)
	case collclock.Start:
		w.starts = append(w.starts, DeferredStart{w.comms[a.Clock], a.K})
		if !w.nudging {
			w.nudging = true
			go w.events.Deferred()
		}
	case collclock.Stop:
		w.stopping = true
		go w.events.Safe(a.Epoch)
	case collclock.Resumed:
		go w.events.Resumed()
	case collclock.Report:
		if a.What == collclock.ReportFault {
			w.log.Error("collective clock", zap.String("fault", a.Text))
		}
	}
}

// raise begins an epoch on this rank.
func (w *Clock) raise(epoch uint32) {
	w.stepLocked(collclock.Snapshot{Epoch: epoch, Counts: w.counts()})
}

// counts sets the pending word and reads the counters behind a barrier on all threads: a call that was
// not counted yet will see the word.
func (w *Clock) counts() []collclock.Count {
	w.tables.SetPending(PendingClock)
	if err := w.fence(); err != nil {
		w.log.Error("membarrier", zap.Error(err)) // cannot be: the process is registered
	}
	var counts []collclock.Count
	for _, c := range w.tables.Calls() {
		if id, ok := w.ids[c.Comm]; ok {
			counts = append(counts, collclock.Count{Clock: id, Call: c.Made, Ret: c.Returned})
		}
	}
	if w.trace != nil {
		w.trace.counted(counts)
	}
	return counts
}

// CommMade makes a communicator's clock. members are world ranks, in an order that is the same on all of
// them. A communicator with one member gets no clock: its calls concern nobody else.
func (w *Clock) CommMade(comm vid.ID, identity uint64, members []int32) {
	if w == nil || len(members) < 2 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	id := collclock.World()
	if !comm.IsPredefined() {
		id = collclock.Object(id, 255, identity)
	}
	w.ids[comm], w.comms[id] = id, comm
	if !comm.IsPredefined() {
		w.stepLocked(collclock.Created{Clock: id, Group: collclock.Members(members)})
	}
}

// CommFreed says that the communicator is gone.
func (w *Clock) CommFreed(comm vid.ID) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if id, ok := w.ids[comm]; ok {
		delete(w.ids, comm)
		delete(w.comms, id)
		delete(w.granted, id)
		delete(w.deferred, id)
		w.stepLocked(collclock.Freed{Clock: id, K: w.tables.CallsOn(comm)})
	}
}

// Mode is how a call behaves at the gate; the numbers are those of ckpt.h.
type Mode = collclock.Mode

// Modes.
const (
	Blocking    = collclock.Blocking
	NonBlocking = collclock.NonBlocking
	Gated       = collclock.Gated // always asks
)

// Answer is what a collective call is told; the numbers are those of ckpt.h.
type Answer int

// Answers.
const (
	Wait  Answer = 0 // not yet: ask Permitted
	Enter Answer = 1 // go on
	Defer Answer = 2 // NextStart will name it
)

// Call asks whether collective call k on a communicator may go on.
func (w *Clock) Call(comm vid.ID, k uint64, mode Mode) Answer {
	if w == nil {
		return Enter
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	id, ok := w.ids[comm]
	if !ok {
		return Enter
	}
	w.stepLocked(collclock.Call{Clock: id, Mode: mode, K: k})
	switch {
	case mode == NonBlocking && w.deferred[id] >= k:
		return Defer
	case mode == NonBlocking && w.granted[id] >= k:
		return Enter
	}
	return w.answer(id, k)
}

func (w *Clock) answer(id collclock.ID, k uint64) Answer {
	if w.lost || w.granted[id] >= k && w.machine.Clear(id) {
		return Enter
	}
	return Wait
}

// Permitted tells a waiting call whether it may go on now.
func (w *Clock) Permitted(comm vid.ID, k uint64) Answer {
	if w == nil {
		return Enter
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	id, ok := w.ids[comm]
	if !ok {
		return Enter
	}
	return w.answer(id, k)
}

// Returned says that call k has returned.
func (w *Clock) Returned(comm vid.ID, k uint64) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if id, ok := w.ids[comm]; ok {
		w.stepLocked(collclock.Return{Clock: id, K: k})
	}
}

// Withdrawn says that call k, or with deferred its start, failed before it took part in anything. The next call has
// the same number, and may get another answer.
func (w *Clock) Withdrawn(comm vid.ID, k uint64, deferred bool) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	id, ok := w.ids[comm]
	if !ok {
		return
	}
	if w.granted[id] >= k {
		w.granted[id] = k - 1
	}
	if w.deferred[id] >= k {
		w.deferred[id]-- // those behind it have moved up
	}
	w.stepLocked(collclock.Withdrawn{Clock: id, K: k, Deferred: deferred})
}

// NextStart is the next deferred call to be started; Started answers it.
func (w *Clock) NextStart() (DeferredStart, bool) {
	if w == nil {
		return DeferredStart{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.starts) == 0 {
		return DeferredStart{}, false
	}
	s := w.starts[0]
	w.starts = w.starts[1:]
	return s, true
}

// Unstarted tells whether there still are calls to be started; when not, Events.Deferred ends.
func (w *Clock) Unstarted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nudging = len(w.starts) > 0
	return w.nudging
}

// Started says that a deferred call was started. Its request counts as complete: all members have
// started it before the program is stopped, and draining completes it.
func (w *Clock) Started(s DeferredStart) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if id, ok := w.ids[s.Comm]; ok {
		w.stepLocked(collclock.Started{Clock: id, K: s.K})
		w.stepLocked(collclock.Completed{Clock: id})
	}
}

// Request begins an epoch. Rank 0 only, between epochs.
func (w *Clock) Request() { w.step(collclock.Request{}) }

// Withdraw gives the running epoch up on this rank, whose program goes on, because another rank cannot be reached.
func (w *Clock) Withdraw() { w.step(collclock.Withdraw{}) }

// Release ends the stop on this rank; the epoch ends when rank 0 says so.
func (w *Clock) Release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopping = false
	w.setPending()
}

// Abort gives the epoch up, unless it has reached the safe state. Rank 0 only.
func (w *Clock) Abort() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.machine.Phase(); p == collclock.Stopped || p <= collclock.Resuming {
		return false
	}
	w.stepLocked(collclock.Abort{})
	return true
}

// Lose opens all gates for good: the network is lost, so nobody can be waited for.
func (w *Clock) Lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = true
	w.stepLocked(collclock.Withdraw{})
}

// Resume ends the epoch on all ranks, unless that was done. Rank 0 only.
func (w *Clock) Resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch p := w.machine.Phase(); {
	case p == collclock.Stopped:
		w.stepLocked(collclock.Resume{})
	case p > collclock.Resuming:
		w.stepLocked(collclock.Abort{})
	}
}

// NextEpoch is the epoch that a request begins. Rank 0 only, between epochs.
func (w *Clock) NextEpoch() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machine.Epoch() + 1
}

// Safe tells whether the safe state of an epoch holds on this rank: nobody here has withdrawn.
func (w *Clock) Safe(epoch uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machine.Phase() == collclock.Stopped && w.machine.Epoch() == epoch
}

// Waiting tells whether an epoch waits for its safe state.
func (w *Clock) Waiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.machine.Phase()
	return p > collclock.Resuming && p < collclock.Stopped
}

// nameLocked is what people call a clock.
func (w *Clock) nameLocked(id collclock.ID) string {
	if comm, ok := w.comms[id]; ok {
		if n := w.tables.NameOf(comm); n != "" {
			return fmt.Sprintf("%q", n)
		}
	}
	return id.String()
}

// CommName is what people call a communicator.
func (w *Clock) CommName(comm vid.ID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.commNameLocked(comm)
}

func (w *Clock) commNameLocked(comm vid.ID) string {
	if n := w.tables.NameOf(comm); n != "" {
		return fmt.Sprintf("%q", n)
	}
	if id, ok := w.ids[comm]; ok {
		return id.String()
	}
	return "of one rank"
}
