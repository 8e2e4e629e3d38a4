// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/where"
)

// How a request of an MPI job waits for a safe state: rank 0 asks the collective clock for an epoch, and makes an attempt
// (checkpoint.go) when the clock has stopped everywhere.

// stallAfter is how long rank 0 waits for a safe state before it gives the epoch up: a program that
// needs collectives not to synchronize may never reach one. The program then goes on, and is asked again.
const stallAfter = 15 * time.Second

// lookEvery is how often those who asked are told what the ranks are doing while they wait.
const lookEvery = time.Second

// safeState is an epoch of the collective clock that a request waits for. Events of the clock (onSafe, onResumed)
// find it in Job.awaited and close its channels.
type safeState struct {
	epoch   uint32
	taken   bool          // reached, and the request makes the attempt; under Job.mu
	reached chan struct{} // closed when taken
	over    chan struct{} // closed when the epoch has ended
}

// atSafeState is one try of an MPI job.
func (j *Job) atSafeState(q *request) outcome {
	j.settle()
	s, err := j.awaitSafeState(q)
	if err != nil {
		return outcome{err: err}
	}
	var o outcome
	held := false
	if j.embedded != nil {
		o = j.wholeAtSafeState(q, s)
		held = q.then != after.Continue
	} else {
		a := j.newAttemptAt(s.epoch)
		a.then, a.asked, a.notify = q.then, q.asked, q.progress
		if o = (outcome{err: j.runAt(q.ctx, a)}); o.err == nil {
			o = a.outcome()
		}
		held = a.held
	}
	if o.err == nil && held { // the epoch of the clock ends with the program, or when that goes on
		return o
	}
	select {
	case <-s.over: // the next request begins another one
	case <-j.done:
	}
	if o.err != nil && !o.noted && j.ending() {
		return outcome{err: control.ErrEnding}
	}
	return o
}

// awaitSafeState asks the clock for an epoch and waits for its safe state. A caller that gets one must make the
// attempt: the other ranks stop their programs for it now.
func (j *Job) awaitSafeState(q *request) (*safeState, error) {
	if err := j.net.Err(); err != nil {
		return nil, err
	}
	if missing := j.net.Unreachable(); len(missing) > 0 {
		return nil, &control.RefusedError{Reasons: (&unreachableError{missing}).reasons()}
	}
	s := &safeState{epoch: j.clock.NextEpoch(), reached: make(chan struct{}), over: make(chan struct{})}
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil, control.ErrEnding
	}
	j.awaited = s
	j.calm()
	j.status.State, j.status.Phase = control.Checkpointing, stageAgree.String()
	j.mu.Unlock()
	tell := func(detail string) {
		q.progress(control.Event{Phase: stageAgree.String(), Detail: "waiting for a safe state" + detail})
	}
	tell("")
	j.clock.Request()

	look := time.NewTicker(lookEvery)
	defer look.Stop()
	patience, cancel := context.WithTimeout(q.waiting, stallAfter)
	defer cancel()
	timeOver := patience.Done()
	var tooLate *control.RefusedError // the clock has given the epoch up
	for {
		select {
		case <-s.reached:
			return s, nil
		case <-s.over:
			if j.taken(s) {
				return s, nil
			}
			if tooLate != nil {
				return nil, tooLate
			}
			return nil, j.withdrawn()
		case <-j.done:
			if j.taken(s) {
				return s, nil
			}
			return nil, control.ErrEnding
		case <-look.C:
			if who := where.HeldUp(j.doing()); len(who) > 0 && j.clock.Waiting() {
				tell(": " + who[0])
			}
		case <-timeOver:
			timeOver = nil
			who := where.HeldUp(j.doing())
			if j.clock.Abort() { // otherwise it was reached just now, or the epoch is over
				tooLate = &control.RefusedError{Reasons: append([]string{
					fmt.Sprintf("no safe state in %v; the job goes on", time.Since(q.asked).Round(time.Millisecond))}, who...)}
			}
		}
	}
}

// taken tells whether the safe state was reached; if not, nobody waits for it any more.
func (j *Job) taken(s *safeState) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !s.taken && j.awaited == s {
		j.awaited = nil
	}
	return s.taken
}

// withdrawn is why the epoch of the clock has ended without a safe state.
func (j *Job) withdrawn() error {
	if err := j.net.Err(); err != nil {
		return epochLost(err)
	}
	reasons := []string{errWithdrawn.Error()}
	if missing := j.net.Unreachable(); len(missing) > 0 {
		reasons = (&unreachableError{missing}).reasons()
	}
	return &control.RefusedError{Reasons: reasons}
}

// onSafe is called on every rank when the collective clock has stopped: no collective call is under way
// anywhere. On rank 0 the request makes the attempt, if it still waits.
func (j *Job) onSafe(epoch uint32) {
	select {
	case <-j.serving: // another rank may have been asked before this one is ready
	case <-j.done:
		return
	}
	j.mu.Lock()
	s := j.awaited
	if s != nil && s.epoch == epoch {
		s.taken = true
		close(s.reached)
		j.mu.Unlock()
		return
	}
	j.mu.Unlock()
	if j.embedded == nil {
		_ = j.runAt(context.Background(), j.newAttemptAt(epoch)) // the request is told, and reports it
	}
}

// onResumed is called when the epoch of the collective clock has ended.
func (j *Job) onResumed() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if s := j.awaited; s != nil {
		close(s.over)
		j.awaited = nil
	}
}

// runAt makes this rank's part of an attempt in a safe state. A program that is to end stays stopped after runAt,
// until its last order has come.
func (j *Job) runAt(ctx context.Context, a *attempt) error {
	j.takeTurn(nil)
	err := a.run(ctx)
	if err != nil {
		var refused *control.RefusedError
		if !errors.As(err, &refused) {
			j.log.Info("checkpoint", zap.Error(err)) // the request is told, and reports it
		}
	}
	if err != nil || !a.held {
		j.turn.Unlock()
		return err
	}
	go func() {
		defer j.turn.Unlock()
		if a.outcome().err == nil {
			_ = a.onProgram(func() { j.endAfterCommit(a) })
			_ = a.goOn() // those who asked were told that there is no epoch in time
		}
	}()
	return nil
}
