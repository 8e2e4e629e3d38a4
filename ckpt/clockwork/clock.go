// SPDX-License-Identifier: Apache-2.0

package clockwork

import (
	"errors"
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

// Clock drives the collective clocks of the ranks of this process, of which most jobs have one: messages come from the
// signaling network, calls from the program's threads, requests and their end from the code that makes the checkpoint.
// Any thread may call any method. A nil Clock is for a process that has no other ranks to wait for: it ignores what the runtime tells of
// its calls, and lets all of them go on.
//
// Locks: mu is held while the machines take one event. Nothing is called with mu held, and nobody waited for.
type Clock struct {
	events Events
	kinds  Kinds
	log    *zap.Logger
	tables *vid.Tables
	fence  func() error // on all threads of the process
	places *Places

	mu       sync.Mutex
	tasks    []*task
	by       map[int32]*task // by rank
	local    []passed        // messages between ranks of this process
	passing  bool            // they are being delivered
	raised   int             // machines that want the pending word
	fenced   bool            // since the pending word was set
	stopping bool
	told     uint32 // the last epoch whose end was told
	lost     bool   // the network is: nobody waits for anybody here
	ids      map[vid.ID]clockKey
	comms    map[clockKey]vid.ID
	asked    map[clockKey]uint64 // highest call that the machine was told of
	granted  map[clockKey]uint64 // highest call that was let in
	deferred map[clockKey]uint64 // highest call that was deferred
	starts   []DeferredStart     // asked for, not done yet
	nudging  bool                // Events.Deferred runs
	outbox   []outgoing
	last     map[int]int   // where in the outbox the last message to a process is, if it is there
	bundle   int           // maxBundle, or 0 in tests of messages that overtake each other
	wake     chan struct{} // the outbox has something that shall be sent now
	lingers  bool          // it has something that may linger, and a timer will wake who sends
	meetings map[uint64]*meeting
	ticket   uint64 // of the last meeting
}

// task is a rank of this process.
type task struct {
	rank    int
	machine *collclock.Machine
	trace   *trace // nil: none is asked for
	comms   map[vid.ID]collclock.ID
	over    uint32 // the last epoch that has ended
	meet    meetings
}

// clockKey is one rank's part of a clock.
type clockKey struct {
	of *task
	id collclock.ID
}

// Events are what a Clock tells the code that makes the checkpoint, each on a goroutine of its own.
type Events struct {
	Safe     func(epoch uint32) // no collective call is under way on any rank
	Resumed  func()             // the epoch of the clock is over, for all ranks of this process
	Deferred func()             // deferred calls may start, until Unstarted says that there are none
}

// Kinds are the messages of the signaling network that are a Clock's.
type Kinds struct {
	Clock uint16 // collclock.Message
	Meet  uint16 // who takes part in MPI_Intercomm_create
}

// Config says whose clock it is.
type Config struct {
	Process int // this one
	Places  *Places
	Tables  *vid.Tables
	Log     *zap.Logger
	Events  Events
	Kinds   Kinds
}

// passed is a message from one rank of this process to another one.
type passed struct {
	to *task
	e  collclock.Received
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
	w := &Clock{
		events: c.Events, kinds: c.Kinds, log: c.Log, tables: c.Tables, fence: fence, places: c.Places,
		by: map[int32]*task{}, ids: map[vid.ID]clockKey{}, comms: map[clockKey]vid.ID{}, asked: map[clockKey]uint64{},
		granted: map[clockKey]uint64{}, deferred: map[clockKey]uint64{},
		last: map[int]int{}, bundle: maxBundle, wake: make(chan struct{}, 1), meetings: map[uint64]*meeting{},
	}
	for _, rank := range c.Places.Of(c.Process) {
		t := &task{rank: int(rank), comms: map[vid.ID]collclock.ID{}, meet: newMeetings()}
		config := collclock.Config{Rank: t.rank, Ranks: c.Places.Ranks()}
		if t.trace, err = openTrace(t.rank); err != nil {
			return nil, err
		}
		if t.trace != nil {
			config.Trace = t.trace.step
		}
		t.machine = collclock.New(config)
		w.tasks = append(w.tasks, t)
		w.by[rank] = t
	}
	return w, nil
}

// Listen takes messages from now on: other ranks may have sent some already.
func (w *Clock) Listen(net *signaling.Network) {
	net.Handle(w.kinds.Meet, w.heardMeet)
	net.Handle(w.kinds.Clock, w.heardClock)
	go w.post(net)
}

func (w *Clock) heardClock(process int, payload []byte) {
	from, to, payload, err := w.opened(process, payload)
	var all []collclock.Message
	if err == nil {
		all, err = collclock.DecodeMessages(payload)
	}
	if err != nil {
		w.log.Error("collective clock", zap.Int("from", process), zap.Error(err))
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range all {
		w.stepLocked(to, collclock.Received{From: from, Message: m})
	}
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

func (w *Clock) step(t *task, e collclock.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stepLocked(t, e)
}

func (w *Clock) stepLocked(t *task, e collclock.Event) {
	w.feed(t, e)
	w.deliverLocked()
}

// deliverLocked ends a step.
func (w *Clock) deliverLocked() {
	if !w.passing { // else who does delivers these, too
		w.passing = true
		for ; len(w.local) > 0; w.local = w.local[1:] {
			w.feed(w.local[0].to, w.local[0].e)
		}
		w.local, w.passing = nil, false
	}
	w.setPending()
}

// feed gives one event to one machine.
func (w *Clock) feed(t *task, e collclock.Event) {
	before := t.machine.Pending()
	actions := append([]collclock.Action(nil), t.machine.Step(e)...)
	if now := t.machine.Pending(); now != before {
		w.raised--
		if now {
			w.raised += 2
		}
	}
	for _, a := range actions {
		w.act(t, a)
	}
}

func (w *Clock) setPending() {
	v := uint32(0)
	if w.raised > 0 {
		v = PendingClock
	}
	if w.stopping {
		v = PendingStop
	}
	w.fenced = w.fenced && v != 0
	w.tables.SetPending(v)
}

func (w *Clock) act(t *task, a collclock.Action) {
	switch a := a.(type) {
	case collclock.Send:
		if to := w.by[a.To]; to != nil {
			w.local = append(w.local, passed{to, collclock.Received{From: int32(t.rank), Message: a.Message}})
			return
		}
		send := w.sendLocked
		if k := a.Message.Kind; k == collclock.MsgFree || k == collclock.MsgDrop { // of no epoch
			send = w.sendLaterLocked
		}
		send(t, a.To, w.kinds.Clock, collclock.AppendMessage(nil, a.Message))
	case collclock.Raise:
		w.raise(t, a.Epoch)
	case collclock.Permit:
		at := clockKey{t, a.Clock}
		w.granted[at] = max(w.granted[at], a.K)
	case collclock.Defer:
		at := clockKey{t, a.Clock}
		w.deferred[at] = max(w.deferred[at], a.K)
	case collclock.Start:
		w.starts = append(w.starts, DeferredStart{w.comms[clockKey{t, a.Clock}], a.K})
		if !w.nudging {
			w.nudging = true
			go w.events.Deferred()
		}
	case collclock.Stop:
		if w.safe(a.Epoch) {
			w.stopping = true
			go w.events.Safe(a.Epoch)
		}
	case collclock.Resumed:
		t.over = max(t.over, a.Epoch)
		w.tellOver()
	case collclock.Report:
		if a.What == collclock.ReportFault {
			w.log.Error("collective clock", zap.Int("rank", t.rank), zap.String("fault", a.Text))
		}
	}
}

// safe tells whether all ranks of this process have stopped in an epoch.
func (w *Clock) safe(epoch uint32) bool {
	for _, t := range w.tasks {
		if t.machine.Phase() != collclock.Stopped || t.machine.Epoch() != epoch {
			return false
		}
	}
	return true
}

// tellOver tells of an epoch that is over for all ranks of this process, once.
func (w *Clock) tellOver() {
	over := w.tasks[0].over
	for _, t := range w.tasks {
		over = min(over, t.over)
	}
	if over > w.told {
		w.told = over
		go w.events.Resumed()
	}
}

// raise begins an epoch on one rank.
func (w *Clock) raise(t *task, epoch uint32) {
	w.feed(t, collclock.Snapshot{Epoch: epoch, Counts: w.counts(t)})
}

// counts sets the pending word and reads the counters of a rank behind a barrier on all threads: a call that was
// not counted yet will see the word. One barrier does for all ranks as long as the word is set.
func (w *Clock) counts(t *task) []collclock.Count {
	if !w.fenced {
		w.tables.SetPending(PendingClock)
		if err := w.fence(); err != nil {
			w.log.Error("membarrier", zap.Error(err)) // cannot be: the process is registered
		}
		w.fenced = true
	}
	w.hear()
	var counts []collclock.Count
	for _, c := range vid.CallsOf(w.tables, t.comms) {
		counts = append(counts, collclock.Count{Clock: t.comms[c.Comm], Call: c.Made, Ret: c.Returned})
	}
	if t.trace != nil {
		t.trace.counted(counts)
	}
	return counts
}

// taskOf is the rank whose view a communicator is.
func (w *Clock) taskOf(comm vid.ID) *task {
	if n := w.tables.TaskOf(comm); n < len(w.tasks) {
		return w.tasks[n]
	}
	return w.tasks[0] // cannot be: Owned has refused it
}

// ErrNoTask is an error of Owned.
var ErrNoTask = errors.New("no such local task")

// Owned says of which local task a communicator is the view, before CommMade. The error is vid.ErrOwned when it is
// that of another one.
func (w *Clock) Owned(comm vid.ID, local int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hear()
	if local < 0 || local >= len(w.tasks) {
		return fmt.Errorf("%w: %d of %d", ErrNoTask, local, len(w.tasks))
	}
	if at, ok := w.ids[comm]; ok && at.of != w.tasks[local] {
		return vid.ErrOwned
	}
	return w.tables.SetTask(comm, local)
}

// CommMade makes a communicator's clock. members are world ranks, in an order that is the same on all of
// them. A communicator with one member gets no clock: its calls concern nobody else.
func (w *Clock) CommMade(comm vid.ID, identity uint64, members []int32) error {
	if w == nil || len(members) < 2 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hear()
	if err := w.checkMembers(comm, members); err != nil {
		return err
	}
	id := collclock.World()
	if !comm.IsPredefined() {
		id = clockOf(identity)
	}
	at := clockKey{w.taskOf(comm), id}
	w.ids[comm], w.comms[at], at.of.comms[comm] = at, comm, id
	if !comm.IsPredefined() {
		w.stepLocked(at.of, collclock.Created{Clock: id, Group: collclock.Members(members)})
	}
	return nil
}

// checkMembers refuses lists of a runtime that takes processes for ranks, or says a view's task too late.
func (w *Clock) checkMembers(comm vid.ID, members []int32) error {
	if !w.places.Several() {
		return nil
	}
	me, found := int32(w.taskOf(comm).rank), false
	for _, r := range members {
		if w.places.Process(int(r)) < 0 {
			return fmt.Errorf("a communicator with rank %d, of %d", r, w.places.Ranks())
		}
		found = found || r == me
	}
	if !found {
		return fmt.Errorf("a communicator of rank %d without that rank", me)
	}
	return nil
}

// CommFreed says that the communicator is gone.
func (w *Clock) CommFreed(comm vid.ID) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hear()
	w.freedLocked(comm, w.tables.CallsOn(comm))
	w.deliverLocked()
}

// forget drops what is known of the calls on a clock.
func (w *Clock) forget(at clockKey) {
	delete(w.asked, at)
	delete(w.granted, at)
	delete(w.deferred, at)
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

// Call asks whether collective call k on a communicator may go on. Who waits may ask again.
func (w *Clock) Call(comm vid.ID, k uint64, mode Mode) Answer {
	if w == nil {
		return Enter
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hear()
	at, ok := w.ids[comm]
	if !ok {
		return Enter
	}
	if k > w.asked[at] {
		w.asked[at] = k
		w.stepLocked(at.of, collclock.Call{Clock: at.id, Mode: mode, K: k})
	}
	switch {
	case mode == NonBlocking && w.deferred[at] >= k:
		return Defer
	case mode == NonBlocking && w.granted[at] >= k:
		return Enter
	}
	return w.answer(at, k)
}

func (w *Clock) answer(at clockKey, k uint64) Answer {
	if w.lost || w.granted[at] >= k && at.of.machine.Clear(at.id) {
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
	w.hear()
	at, ok := w.ids[comm]
	if !ok {
		return Enter
	}
	return w.answer(at, k)
}

// Returned says that call k has returned.
func (w *Clock) Returned(comm vid.ID, k uint64) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hear()
	if at, ok := w.ids[comm]; ok {
		w.stepLocked(at.of, collclock.Return{Clock: at.id, K: k})
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
	w.hear()
	at, ok := w.ids[comm]
	if !ok {
		return
	}
	if w.granted[at] >= k {
		w.granted[at] = k - 1
	}
	if w.deferred[at] >= k {
		w.deferred[at]-- // those behind it have moved up
	}
	if w.asked[at] >= k {
		w.asked[at]--
	}
	w.stepLocked(at.of, collclock.Withdrawn{Clock: at.id, K: k, Deferred: deferred})
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
	if at, ok := w.ids[s.Comm]; ok {
		w.stepLocked(at.of, collclock.Started{Clock: at.id, K: s.K})
		w.stepLocked(at.of, collclock.Completed{Clock: at.id})
	}
}

// root is rank 0, which lives in process 0.
func (w *Clock) root() *task { return w.tasks[0] }

// Request begins an epoch. Process 0 only, between epochs.
func (w *Clock) Request() { w.step(w.root(), collclock.Request{}) }

// Withdraw gives the running epoch up in this process, whose program goes on, because another one cannot be reached.
func (w *Clock) Withdraw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.withdrawLocked()
}

func (w *Clock) withdrawLocked() {
	var last uint32
	for _, t := range w.tasks {
		w.stepLocked(t, collclock.Withdraw{})
		last = max(last, t.machine.Epoch())
	}
	// Ranks that do not know of the epoch yet need not hear of its end: those above them may be out of reach.
	for _, t := range w.tasks {
		if t.machine.Phase() <= collclock.Resuming {
			t.over = max(t.over, last)
		}
	}
	w.tellOver()
}

// Release ends the stop in this process; the epoch ends when process 0 says so.
func (w *Clock) Release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopping = false
	w.setPending()
}

// Abort gives the epoch up, unless it has reached the safe state. Process 0 only.
func (w *Clock) Abort() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.root().machine.Phase(); p == collclock.Stopped || p <= collclock.Resuming {
		return false
	}
	w.stepLocked(w.root(), collclock.Abort{})
	return true
}

// Lose opens all gates for good: the network is lost, so nobody can be waited for.
func (w *Clock) Lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = true
	w.withdrawLocked()
}

// Resume ends the epoch on all ranks, unless that was done. Process 0 only.
func (w *Clock) Resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch p := w.root().machine.Phase(); {
	case p == collclock.Stopped:
		w.stepLocked(w.root(), collclock.Resume{})
	case p > collclock.Resuming:
		w.stepLocked(w.root(), collclock.Abort{})
	}
}

// NextEpoch is the epoch that a request begins. Process 0 only, between epochs.
func (w *Clock) NextEpoch() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.root().machine.Epoch() + 1
}

// Safe tells whether the safe state of an epoch holds in this process: nobody here has withdrawn.
func (w *Clock) Safe(epoch uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.safe(epoch)
}

// Waiting tells whether an epoch waits for its safe state. Process 0 only.
func (w *Clock) Waiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.root().machine.Phase()
	return p > collclock.Resuming && p < collclock.Stopped
}

// nameLocked is what people call a clock of a rank.
func (w *Clock) nameLocked(at clockKey) string {
	if comm, ok := w.comms[at]; ok {
		if n := w.tables.NameOf(comm); n != "" {
			return fmt.Sprintf("%q", n)
		}
	}
	return at.id.String()
}

// CommName is what people call a communicator.
func (w *Clock) CommName(comm vid.ID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hear()
	return w.commNameLocked(comm)
}

func (w *Clock) commNameLocked(comm vid.ID) string {
	if n := w.tables.NameOf(comm); n != "" {
		return fmt.Sprintf("%q", n)
	}
	if at, ok := w.ids[comm]; ok {
		return at.id.String()
	}
	return "of one rank"
}
