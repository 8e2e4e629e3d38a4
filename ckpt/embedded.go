// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/clockwork"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/internal/fault"
)

// Whole mode: the runtime lies in the program's half and is saved with it. Nobody interrupts it: its threads make
// progress for its messages, so nothing may be stopped before the messages are drained and its rails are closed,
// and only the runtime knows where it can call. So a checkpoint is always made inside ckpt_checkpoint, on all ranks.
//
// Two ask for one: the program, by calling it on all ranks, and others (operators, the interval, a signal), for whom the
// runtime's ckpt_poll says so. Both may happen at once, and ranks see them in different orders. So rank 0 says which
// comes next, to all ranks in one order:
//
//	program calls ──called(n)──► rank 0: all ranks have called for the n-th time ──┐
//	a request: safe state of the collective clock ─────────────────────────────────┴─► order ──► all ranks
//
// A rank whose program has called takes part in an order of others too, and then waits on for its own.

// Embedded is a runtime in the program's half. All methods are called on the thread that is inside ckpt_checkpoint or
// ckpt_open, while the program is not stopped.
type Embedded interface {
	Runtime
	// Tasks are the ranks of this process, by local task; nil: one, whose number is Rank. Not asked in a restart.
	Tasks() ([]int32, error)
	// Quiesce keeps the runtime's threads out of its rails, or lets them in again. program: what follows answers the
	// programs' calls, and not only a request of others.
	Quiesce(on, program bool) error
	// Drain also receives signals, and counts rails that are not quiet.
	CloseRails() error
	// ReopenRails is collective.
	ReopenRails(why Why) error
}

// Why says why rails are opened again; the numbers are those of ckpt/rail.h.
type Why int

// Reasons.
const (
	WhyContinued Why = 1
	WhyRestarted Why = 2
	WhyFailed    Why = 3
)

// order is rank 0's word that a checkpoint begins.
type order struct {
	Seq     uint64 `json:"seq"`
	Program bool   `json:"program"`         // the programs have called
	Clock   uint32 `json:"clock,omitempty"` // epoch of the collective clock, for others

	request *request     // rank 0, for others: who asks
	done    chan outcome // and who waits
}

// turns is which checkpoint comes next.
type turns struct {
	mu     sync.Mutex
	orders []order       // not begun here
	come   chan struct{} // closed and replaced when an order comes
	left   bool          // all local tasks have: ckpt_poll is to answer the programs of others, too
	called []uint64      // rank 0: of each process's program
	gone   []bool        // rank 0: processes that have left
	said   uint64        // rank 0: orders for the program
	seq    uint64        // rank 0
}

// attend raises the word that ckpt_poll looks at, or takes it back.
const attendCheckpoint = 1

func (j *Job) listenEmbedded(rt Runtime) {
	e, ok := rt.(Embedded)
	if !ok {
		return
	}
	j.embedded = e
	if j.regional == nil || j.regional.named == nil { // the messages of such a program are its own
		j.signals = NewSignals(j.net, j.tables, j.remade)
	}
	j.turns.come, j.turns.called, j.turns.gone = make(chan struct{}), make([]uint64, j.net.Size()), make([]bool, j.net.Size())
	j.net.Handle(kindOrder, func(_ int, payload []byte) {
		var s order
		if json.Unmarshal(payload, &s) == nil {
			j.heardOrder(s)
		}
	})
	if j.net.Rank() == 0 {
		j.net.Handle(kindCalled, func(from int, _ []byte) { j.heardCalled(from) })
		j.net.Handle(kindLeft, func(from int, _ []byte) { j.heardLeft(from) })
	}
}

// findPlaces finds out which ranks live where. Collective.
func (j *Job) findPlaces(rt Runtime) error {
	j.places = clockwork.OneEach(j.net.Size())
	e, ok := rt.(Embedded)
	if !ok {
		return nil
	}
	type report struct {
		Tasks []int32 `json:"tasks,omitempty"`
		Error string  `json:"error,omitempty"`
	}
	mine := report{Tasks: j.meta.Tasks} // of an image
	if !j.Restarted() {
		var err error
		if mine.Tasks, err = e.Tasks(); err != nil {
			mine.Error = err.Error()
		}
	}
	all, err := allgatherJSON(context.Background(), j.group, stepTasks, rt.Progress, mine)
	if err != nil {
		return err
	}
	local, some := make([][]int32, len(all)), false
	for p, one := range all {
		if one.Error != "" {
			return fmt.Errorf("process %d: %s", p, one.Error)
		}
		local[p] = one.Tasks
		some = some || one.Tasks != nil
	}
	if !some {
		return nil
	}
	if j.places, err = clockwork.NewPlaces(local); err != nil {
		return err
	}
	if j.places.Several() {
		j.meta.Tasks = mine.Tasks
	}
	return nil
}

// call says that the program of this rank has called.
func (j *Job) call() error {
	if j.net.Rank() == 0 {
		j.heardCalled(0)
		return nil
	}
	return j.net.Send(context.Background(), 0, kindCalled, nil)
}

func (j *Job) heardCalled(from int) {
	j.turns.mu.Lock()
	j.turns.called[from]++
	j.turns.mu.Unlock()
	j.beginCalled()
}

// beginCalled gives the order when all programs have called, but those of processes that have left.
func (j *Job) beginCalled() {
	t := &j.turns
	t.mu.Lock()
	all, some := true, false
	for p, n := range t.called {
		all = all && (t.gone[p] || n > t.said)
		some = some || n > t.said
	}
	if all && some {
		t.said++
	}
	t.mu.Unlock()
	if all && some {
		j.begin(order{Program: true})
	}
}

// TasksLeft says that all local tasks have left, so that no call will come from this process's program.
func (j *Job) TasksLeft() error {
	if j.embedded == nil {
		return nil
	}
	j.turns.mu.Lock()
	j.turns.left = true
	j.attend()
	j.turns.mu.Unlock()
	if j.net.Rank() == 0 {
		j.heardLeft(0)
		return nil
	}
	return j.net.Send(context.Background(), 0, kindLeft, nil)
}

func (j *Job) heardLeft(from int) {
	j.turns.mu.Lock()
	j.turns.gone[from] = true
	j.turns.mu.Unlock()
	j.beginCalled()
}

// begin gives all ranks an order. Rank 0 only.
func (j *Job) begin(s order) {
	t := &j.turns
	t.mu.Lock()
	defer t.mu.Unlock() // orders arrive by their numbers
	t.seq++
	s.Seq = t.seq
	b, err := json.Marshal(s)
	if err != nil {
		j.log.Error("an order", zap.Error(err)) // cannot be: these are plain values
		return
	}
	for r := 1; r < j.net.Size(); r++ {
		_ = j.net.Send(context.Background(), r, kindOrder, b) // fails with the network, as all
	}
	j.putOrder(s)
}

func (j *Job) heardOrder(s order) {
	j.turns.mu.Lock()
	defer j.turns.mu.Unlock()
	j.putOrder(s)
}

// putOrder has the program come. turns.mu is held.
func (j *Job) putOrder(s order) {
	t := &j.turns
	t.orders = append(t.orders, s)
	close(t.come)
	t.come = make(chan struct{})
	j.attend()
	if !s.Program {
		go j.remind(s, time.Now())
	}
}

// attend shows the runtime whether others wait for it. turns.mu is held.
func (j *Job) attend() {
	for _, s := range j.turns.orders {
		if !s.Program || j.turns.left {
			j.tables.Attend(attendCheckpoint)
			return
		}
	}
	j.tables.Ignore(attendCheckpoint)
}

// remind tells those who look at the status how long the runtime has not looked for a request.
func (j *Job) remind(s order, since time.Time) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-j.done:
			return
		case <-j.net.Failed():
			return
		case <-tick.C:
		}
		waits := false
		j.turns.mu.Lock()
		for _, other := range j.turns.orders {
			waits = waits || other.Seq == s.Seq
		}
		j.turns.mu.Unlock()
		if !waits {
			return
		}
		j.tellStatus(control.RankStatus{Phase: stageAgree.String(),
			Detail: fmt.Sprintf("the runtime has not looked for %v (ckpt_poll)", time.Since(since).Round(time.Second))})
	}
}

// nextOrder waits for an order, or takes one that has come. Without wait it returns false when there is none.
func (j *Job) nextOrder(wait bool) (order, bool, error) {
	t := &j.turns
	for {
		t.mu.Lock()
		if len(t.orders) > 0 {
			s := t.orders[0]
			t.orders = t.orders[1:]
			j.attend()
			t.mu.Unlock()
			return s, true, nil
		}
		come := t.come
		t.mu.Unlock()
		if !wait {
			return order{}, false, nil
		}
		select {
		case <-come:
		case <-j.net.Failed():
			return order{}, false, j.net.Err()
		case <-j.done:
			return order{}, false, control.ErrEnding
		}
	}
}

// Whole is ckpt_checkpoint of a runtime in the program's half; asked says that ckpt_poll has asked for it, else the
// program has. Collective.
func (j *Job) Whole(asked bool) (State, error) {
	if j.embedded == nil {
		return StateIgnore, errors.New("the job is not open yet: call it after ckpt_open")
	}
	if !asked {
		if err := j.call(); err != nil {
			return StateError, err
		}
	}
	poll := j.embedded.Progress
	for {
		type come struct {
			s  order
			ok bool
		}
		c, err := await(poll, func() (come, error) { s, ok, err := j.nextOrder(!asked); return come{s, ok}, err })
		if err != nil {
			return StateError, err
		}
		if !c.ok {
			return StateIgnore, errors.New("nobody asks for a checkpoint any more")
		}
		state, err := j.wholeAttempt(c.s)
		if asked || c.s.Program {
			return state, err
		}
	}
}

// wholeAttempt makes this rank's part of a checkpoint.
func (j *Job) wholeAttempt(s order) (State, error) {
	a := j.newAttempt(nil)
	a.poll = func() {
		if !a.parked.Load() && !a.closed.Load() { // the runtime may not run, or has closed its rails
			j.embedded.Progress()
		}
	}
	a.id, a.clock, a.open, a.railsOpen = cooperativeID(s.Seq), s.Clock, s, make(chan struct{})
	ctx := context.Background()
	if q := s.request; q != nil {
		ctx, a.then, a.asked, a.notify = q.ctx, q.then, q.asked, q.progress
	}
	j.takeTurn(a.poll)
	defer j.turn.Unlock()
	err := a.run(ctx)
	if err != nil {
		_ = a.goOn()
		a.answer(outcome{err: err})
		if s.request == nil {
			j.recordFailure(err)
		}
		var refused *control.RefusedError
		if errors.As(err, &refused) {
			return StateIgnore, err
		}
		return StateError, err
	}
	if s.done != nil {
		go func() { a.answer(a.outcome()) }()
	}
	if a.held {
		o, _ := await(a.poll, func() (outcome, error) { return a.outcome(), nil })
		if o.err == nil {
			j.endAfterCommit(a)
			o.err = errors.New("those who asked were told that there is no epoch in time")
		}
		return StateError, errors.Join(o.err, a.openRails(WhyFailed))
	}
	err = a.openRails(WhyContinued)
	close(a.railsOpen)
	if err != nil {
		return StateError, err
	}
	return StateCheckpoint, nil
}

// awaitRails lets the rails be opened before the image is written from the frozen copy: opening them is a conversation
// of all processes, and takes several times as long when writing has the processors.
func (a *attempt) awaitRails() {
	if a.railsOpen == nil || a.held {
		return
	}
	select {
	case <-a.railsOpen:
	case <-a.ctx.Done():
	case <-time.After(railsFirst):
	}
}

// railsFirst is how long the image waits at most: a rail may need the whole time of another process's.
const railsFirst = time.Second

// answer tells the request on rank 0.
func (a *attempt) answer(o outcome) {
	if a.open.done != nil {
		a.open.done <- o
	}
}

// wholeAtSafeState is one try for others, in a safe state of the clock.
func (j *Job) wholeAtSafeState(q *request, s *safeState) outcome {
	done := make(chan outcome, 1)
	j.begin(order{Clock: s.epoch, request: q, done: done})
	select {
	case o := <-done:
		return o
	case <-j.done:
		return outcome{err: control.ErrEnding}
	case <-j.net.Failed():
		return outcome{err: epochLost(j.net.Err())}
	}
}

// notCome gives the attempt up when the program of a rank does not come: it was asked by ckpt_poll.
func (a *attempt) notCome() (stop func()) {
	if a.open.request == nil {
		return func() {}
	}
	t := time.AfterFunc(stallAfter, func() {
		a.cancel(fmt.Errorf("a runtime has not come to the checkpoint in %v (it does so when ckpt_poll says that somebody asks; `ckptctl status` shows who has not looked)", stallAfter))
	})
	return func() { t.Stop() }
}

// ---- the stages before the program is stopped --------------------------------------------------

// closeReport is what a rank says of a step that closes its rails.
type closeReport struct {
	Obstacle string `json:"obstacle,omitempty"`
	Failure  string `json:"failure,omitempty"`
	OneSided bool   `json:"onesided,omitempty"`
}

// quiesce drains what is under way and closes the rails, on all ranks. When it returns nil, all ranks have closed
// theirs: who captures before that saves a closed rail and loses the bytes that a peer still sends.
//
// Closing and opening are collective, so either all ranks close their rails or none does, whatever becomes of the
// attempt meanwhile: from stepQuiet on, ranks wait for each other until all have spoken (surely). None is missing there:
// who is in stepQuiet has heard all in stepQuiesced, and who spoke there, and then gave the attempt up, says so. What
// ends the attempt on one rank ends, on all, the waits before they speak.
func (a *attempt) quiesce() error {
	e := a.j.embedded
	if e == nil {
		return nil
	}
	defer a.warnAtOnce()()
	a.closing = true
	var mine closeReport
	if err := e.Quiesce(true, a.open.Program); err != nil {
		mine.Failure = err.Error()
	} else {
		mine.Obstacle, mine.OneSided = e.Holds(), e.OneSided()
	}
	all, err := step(a, stepQuiesced, a.poll, mine)
	if err != nil {
		go func() { _, _ = a.surely(stepQuiet, nil, closeReport{Failure: errGaveUp.Error()}) }() // ends with the network
		return err
	}
	if err := a.verdictOf(all); err != nil {
		return err
	}
	for _, r := range all {
		a.touched = a.touched || r.OneSided
	}
	err = a.drain(a.ctx)
	// Others may need this rank's acknowledgements until they are quiet, too.
	if all, err = a.surely(stepQuiet, func() { _, _ = e.Drain() }, reportOf(err)); err == nil {
		err = a.verdictOf(all)
	}
	if err != nil {
		return err
	}
	a.touched = false    // nobody writes to this rank's memory any more
	a.closed.Store(true) // from here on nobody polls
	err = cmp.Or(a.drainSignals(), e.CloseRails())
	if all, err = a.surely(stepClosed, nil, reportOf(err)); err == nil {
		err = a.verdictOf(all)
	}
	if lost := fault.Point("ckpt.closed"); lost != nil {
		a.cancel(lost)
	}
	return err
}

func reportOf(err error) (r closeReport) {
	if err != nil {
		r.Obstacle = err.Error()
	}
	return r
}

// surely is step that does not end with the attempt, but with the network.
func (a *attempt) surely(no int, poll func(), mine closeReport) ([]closeReport, error) {
	return allgatherJSON(context.Background(), a.j.group, a.tag(no), poll, mine)
}

// verdictOf is the same error on all ranks.
func (a *attempt) verdictOf(all []closeReport) error {
	var reasons []string
	for r, one := range all {
		if one.Failure != "" {
			return fmt.Errorf("%s%s", a.prefix(r), one.Failure)
		}
		if one.Obstacle != "" {
			reasons = append(reasons, a.prefix(r)+one.Obstacle)
		}
	}
	if len(reasons) > 0 {
		return &control.RefusedError{Reasons: reasons}
	}
	return nil
}

// warn tells the others that the attempt has ended here, so that they come to where rails are opened again, with this
// rank.
func (a *attempt) warn(err error) {
	var word *verdictError
	switch {
	case errors.As(context.Cause(a.ctx), &word): // all have been told
	case a.j.group.rank() != 0:
		a.j.tell(0, kindSurrender, surrender{ID: a.id, Why: err.Error(), Stands: true}) // until the rails are open
	case !a.announced:
		a.announce(noEpoch(a.reason(err)))
	}
}

// warnAtOnce warns when the attempt ends, until stop is called: the caller may be waiting for the others meanwhile.
func (a *attempt) warnAtOnce() (stop func()) {
	warned := make(chan struct{})
	over := context.AfterFunc(a.ctx, func() {
		defer close(warned)
		a.warn(context.Cause(a.ctx))
	})
	return func() {
		if !over() {
			<-warned
		}
	}
}

// failRails opens the rails of an attempt that made no epoch.
func (a *attempt) failRails() error {
	_ = a.goOn()
	if err := a.openRails(WhyFailed); err != nil {
		a.j.log.Error("the runtime's rails", zap.Error(err))
	}
	return nil
}

// openRails opens what quiesce has closed, and lets the runtime's threads go on. Where all had closed, all are told the
// same.
func (a *attempt) openRails(why Why) error {
	if !a.closing {
		return nil
	}
	a.closing = false
	err := openRails(a.j.embedded, why)
	if !a.closed.Load() {
		return err
	}
	a.closed.Store(false)
	var mine closeReport
	if err != nil {
		mine.Failure = err.Error()
	}
	all, gerr := a.surely(stepOpened, a.poll, mine)
	if gerr != nil {
		return cmp.Or(err, gerr)
	}
	return a.verdictOf(all)
}

func openRails(e Embedded, why Why) error {
	var failed []string
	if err := e.ReopenRails(why); err != nil {
		failed = append(failed, err.Error())
	}
	if err := e.Quiesce(false, false); err != nil {
		failed = append(failed, err.Error())
	}
	if len(failed) > 0 {
		return errors.New(strings.Join(failed, "; "))
	}
	return nil
}
