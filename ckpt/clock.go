// SPDX-License-Identifier: Apache-2.0

package ckpt

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
	pendingClock = 1
	pendingStop  = 2
)

// clockwork drives this rank's collective clock: messages come in by the signaling network, calls by
// the program's threads, requests and their end by the orchestrator.
type clockwork struct {
	orders
	log    *zap.Logger
	tables *vid.Tables
	fence  func() error // on all threads of the process
	trace  *clockTrace  // nil: none is asked for

	mu       sync.Mutex
	machine  *collclock.Machine
	stopping bool
	lost     bool // the network is: nobody waits for anybody here
	ids      map[vid.ID]collclock.ID
	comms    map[collclock.ID]vid.ID
	granted  map[collclock.ID]uint64 // highest call that was let in
	deferred map[collclock.ID]uint64 // highest call that was deferred
	starts   []DeferredStart         // asked for, not done yet
	nudging  bool                    // nudge runs
	outbox   []outgoing
	wake     chan struct{} // the outbox has something
	rank     int
	meet     meetings
}

// orders are what a clockwork tells the orchestrator, each on a goroutine of its own.
type orders struct {
	stop  func(epoch uint32) // the state is safe
	nudge func()             // deferred calls may start
	over  func(aborted bool) // the epoch is over
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

// newClockwork registers the process for membarrier, so that raising the pending word needs no fence on
// the program's side. It hears nothing before listen.
func newClockwork(net *signaling.Network, tables *vid.Tables, log *zap.Logger, o orders) (*clockwork, error) {
	fence, err := newFence()
	if err != nil {
		return nil, err
	}
	config := collclock.Config{Rank: net.Rank(), Ranks: net.Size()}
	trace, err := openClockTrace(net.Rank())
	if err != nil {
		return nil, err
	}
	if trace != nil {
		config.Trace = trace.step
	}
	w := &clockwork{
		orders: o,
		log:    log, tables: tables, fence: fence, trace: trace,
		machine: collclock.New(config),
		ids:     map[vid.ID]collclock.ID{}, comms: map[collclock.ID]vid.ID{},
		granted: map[collclock.ID]uint64{}, deferred: map[collclock.ID]uint64{},
		wake: make(chan struct{}, 1),
		rank: net.Rank(), meet: newMeetings(),
	}
	return w, nil
}

// listen takes messages from now on: other ranks may have sent some already.
func (w *clockwork) listen(net *signaling.Network) {
	w.hear(net)
	net.Handle(kindClock, func(from int, payload []byte) {
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
func (w *clockwork) post(net *signaling.Network) {
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

func (w *clockwork) step(e collclock.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stepLocked(e)
}

func (w *clockwork) stepLocked(e collclock.Event) {
	for _, a := range append([]collclock.Action(nil), w.machine.Step(e)...) {
		w.act(a)
	}
	w.setPending()
}

func (w *clockwork) setPending() {
	v := uint32(0)
	if w.machine.Pending() {
		v = pendingClock
	}
	if w.stopping {
		v = pendingStop
	}
	w.tables.SetPending(v)
}

func (w *clockwork) sendLocked(to int, kind uint16, payload []byte) {
	w.outbox = append(w.outbox, outgoing{to, kind, payload})
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *clockwork) act(a collclock.Action) {
	switch a := a.(type) {
	case collclock.Send:
		w.sendLocked(int(a.To), kindClock, collclock.AppendMessage(nil, a.Message))
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
			go w.nudge()
		}
	case collclock.Stop:
		w.stopping = true
		go w.stop(a.Epoch)
	case collclock.Resumed:
		go w.over(a.Aborted)
	case collclock.Report:
		if a.What == collclock.ReportFault {
			w.log.Error("collective clock", zap.String("fault", a.Text))
		}
	}
}

// raise begins an epoch on this rank.
func (w *clockwork) raise(epoch uint32) {
	w.stepLocked(collclock.Snapshot{Epoch: epoch, Counts: w.counts()})
}

// counts sets the pending word and reads the counters behind a barrier on all threads: a call that was
// not counted yet will see the word.
func (w *clockwork) counts() []collclock.Count {
	w.tables.SetPending(pendingClock)
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

// created makes a communicator's clock. Calls of one member concern nobody else: it gets none.
func (w *clockwork) created(comm vid.ID, identity uint64, members []int32) {
	if len(members) < 2 {
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

func (w *clockwork) freed(comm vid.ID) {
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

// Answers to a collective call.
const (
	callWait  = 0
	callEnter = 1
	callDefer = 2
)

func (w *clockwork) call(comm vid.ID, k uint64, mode collclock.Mode) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	id, ok := w.ids[comm]
	if !ok {
		return callEnter
	}
	w.stepLocked(collclock.Call{Clock: id, Mode: mode, K: k})
	switch {
	case mode == collclock.NonBlocking && w.deferred[id] >= k:
		return callDefer
	case mode == collclock.NonBlocking && w.granted[id] >= k:
		return callEnter
	}
	return w.answer(id, k)
}

func (w *clockwork) answer(id collclock.ID, k uint64) int {
	if w.lost || w.granted[id] >= k && w.machine.Clear(id) {
		return callEnter
	}
	return callWait
}

// permitted tells a waiting call whether it may go on now.
func (w *clockwork) permitted(comm vid.ID, k uint64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	id, ok := w.ids[comm]
	if !ok {
		return callEnter
	}
	return w.answer(id, k)
}

func (w *clockwork) returned(comm vid.ID, k uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id, ok := w.ids[comm]; ok {
		w.stepLocked(collclock.Return{Clock: id, K: k})
	}
}

// withdrawn: the next call has the number of this one, and so may be answered as this one was not.
func (w *clockwork) withdrawn(comm vid.ID, k uint64, deferred bool) {
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

func (w *clockwork) nextStart() (DeferredStart, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.starts) == 0 {
		return DeferredStart{}, false
	}
	s := w.starts[0]
	w.starts = w.starts[1:]
	return s, true
}

// unstarted tells whether there still are calls to be started; when not, nudge ends.
func (w *clockwork) unstarted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nudging = len(w.starts) > 0
	return w.nudging
}

// started says that a deferred call was started. Its request counts as complete: all members have
// started it before the program is stopped, and draining completes it.
func (w *clockwork) started(s DeferredStart) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id, ok := w.ids[s.Comm]; ok {
		w.stepLocked(collclock.Started{Clock: id, K: s.K})
		w.stepLocked(collclock.Completed{Clock: id})
	}
}

// release ends the stop on this rank; the epoch ends when rank 0 says so.
func (w *clockwork) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopping = false
	w.setPending()
}

// abort gives the epoch up, unless it has reached the safe state. Rank 0 only.
func (w *clockwork) abort() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.machine.Phase(); p == collclock.Stopped || p <= collclock.Resuming {
		return false
	}
	w.stepLocked(collclock.Abort{})
	return true
}

// lose opens all gates for good: the network is lost, so nobody can be waited for.
func (w *clockwork) lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = true
	w.stepLocked(collclock.Withdraw{})
}

// resume ends the epoch on all ranks, unless that was done. Rank 0 only.
func (w *clockwork) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch p := w.machine.Phase(); {
	case p == collclock.Stopped:
		w.stepLocked(collclock.Resume{})
	case p > collclock.Resuming:
		w.stepLocked(collclock.Abort{})
	}
}

// next is the epoch that a request begins. Rank 0 only, between epochs.
func (w *clockwork) next() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machine.Epoch() + 1
}

// safe tells whether the safe state of an epoch holds on this rank: nobody here has withdrawn.
func (w *clockwork) safe(epoch uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machine.Phase() == collclock.Stopped && w.machine.Epoch() == epoch
}

// open tells whether an epoch waits for its safe state.
func (w *clockwork) open() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.machine.Phase()
	return p > collclock.Resuming && p < collclock.Stopped
}

// nameLocked is what people call a clock.
func (w *clockwork) nameLocked(id collclock.ID) string {
	if comm, ok := w.comms[id]; ok {
		if n := w.tables.NameOf(comm); n != "" {
			return fmt.Sprintf("%q", n)
		}
	}
	return id.String()
}

// commName is what people call a communicator.
func (w *clockwork) commName(comm vid.ID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.commNameLocked(comm)
}

func (w *clockwork) commNameLocked(comm vid.ID) string {
	if n := w.tables.NameOf(comm); n != "" {
		return fmt.Sprintf("%q", n)
	}
	if id, ok := w.ids[comm]; ok {
		return id.String()
	}
	return "of one rank"
}

// ---- what the runtime tells --------------------------------------------------------------------

// CommMembers says who takes part in the collective calls of a communicator (world ranks, in an order
// that is the same on all of them).
func (j *Job) CommMembers(comm vid.ID, identity uint64, members []int32) {
	if j.clock != nil {
		j.clock.created(comm, identity, members)
	}
}

// CommFreed says that the communicator is gone.
func (j *Job) CommFreed(comm vid.ID) {
	if j.clock != nil {
		j.clock.freed(comm)
	}
}

// CollCall asks whether collective call k on a communicator may go on: 0: not yet, ask CollPermitted;
// 1: yes; 2: it is deferred until CollStart names it.
func (j *Job) CollCall(comm vid.ID, k uint64, mode int) int {
	if j.clock == nil {
		return callEnter
	}
	return j.clock.call(comm, k, collclock.Mode(mode))
}

// CollPermitted asks again.
func (j *Job) CollPermitted(comm vid.ID, k uint64) int {
	if j.clock == nil {
		return callEnter
	}
	return j.clock.permitted(comm, k)
}

// CollReturned says that call k has returned.
func (j *Job) CollReturned(comm vid.ID, k uint64) {
	if j.clock != nil {
		j.clock.returned(comm, k)
	}
}

// CollWithdrawn says that call k failed before it took part in anything, deferred that its start did.
func (j *Job) CollWithdrawn(comm vid.ID, k uint64, deferred bool) {
	if j.clock != nil {
		j.clock.withdrawn(comm, k, deferred)
	}
}

// CollStart is the next deferred call to be started; CollStarted says that it was.
func (j *Job) CollStart() (DeferredStart, bool) {
	if j.clock == nil {
		return DeferredStart{}, false
	}
	return j.clock.nextStart()
}

// CollStarted answers CollStart.
func (j *Job) CollStarted(s DeferredStart) { j.clock.started(s) }
