// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/where"
)

// A checkpoint of an MPI job at any moment. Rank 0 asks the collective clock for a safe state; when it
// is reached, every rank stops its program, makes one attempt together with the others, and lets the
// program go on.

// stallAfter is how long rank 0 waits for a safe state before it gives the epoch up: a program that
// needs collectives not to synchronize may not reach it. It then goes on, and is asked again.
const stallAfter = 15 * time.Second

// lookEvery is how often those who asked are told what the ranks are doing while they wait.
const lookEvery = time.Second

// backOff is the pause after a try that made no epoch.
const backOff = 20 * time.Millisecond

// moment is what rank 0 remembers of a request while the ranks work on it.
type moment struct {
	ctx    context.Context // of the request: all stages end with it
	epoch  uint32          // of the collective clock
	then   after.Action
	asked  time.Time
	report func(control.Event)
	begun  bool // an attempt is made, of which result will tell; under Job.mu
	result chan outcome
	over   chan struct{} // the epoch of the clock has ended
	image  chan struct{} // the program is saved; what remains is to write and commit
}

// anyMoment makes a checkpoint. It tries again until ctx ends, or waiting, which bounds the time until the
// program is stopped.
func (j *Job) anyMoment(ctx, waiting context.Context, r control.Request, progress func(control.Event)) (control.Result, error) {
	j.asking.Lock()
	defer j.asking.Unlock()
	asked := time.Now()
	var last *control.RefusedError
	for try := 0; ; try++ {
		j.settle()
		o := j.oneMoment(ctx, waiting, r, asked, progress)
		if o.err == nil {
			return o.result, nil
		}
		var refused *control.RefusedError
		if !errors.As(o.err, &refused) {
			if last != nil && ctx.Err() != nil { // the time was over in the middle of one more try
				o.err = fmt.Errorf("%w; before that: %s", o.err, strings.Join(last.Reasons, "; "))
			}
			if !o.noted {
				j.recordFailure(o.err)
			}
			return control.Result{}, o.err
		}
		last = refused
		progress(control.Event{Phase: "stop", Detail: strings.Join(refused.Reasons, "; ")})
		select {
		case <-waiting.Done():
			j.recordFailure(o.err)
			return control.Result{}, o.err
		case <-j.done:
			return control.Result{}, control.ErrEnding
		case <-time.After(min(backOff<<min(try, 6), time.Second)):
		}
	}
}

// oneMoment is one try. A RefusedError says that another one may succeed.
func (j *Job) oneMoment(ctx, waiting context.Context, r control.Request, asked time.Time, progress func(control.Event)) outcome {
	if err := j.net.Err(); err != nil {
		return outcome{err: err}
	}
	if missing := j.net.Unreachable(); len(missing) > 0 {
		return outcome{err: &control.RefusedError{Reasons: (&unreachableError{missing}).reasons()}}
	}
	m := &moment{ctx: ctx, then: r.Then, asked: asked, report: progress, epoch: j.clock.NextEpoch(),
		result: make(chan outcome, 1), over: make(chan struct{}), image: make(chan struct{})}
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return outcome{err: control.ErrEnding}
	}
	j.moment = m
	j.calm()
	j.status.State, j.status.Phase = control.Checkpointing, "agree"
	j.mu.Unlock()
	progress(control.Event{Phase: "agree", Detail: "waiting for a safe state"})
	j.clock.Request()
	stall, look := time.NewTimer(stallAfter), time.NewTicker(lookEvery)
	defer stall.Stop()
	defer look.Stop()
	for {
		select {
		case o := <-m.result:
			return o
		case <-m.over:
			return j.conclude(m)
		case <-j.done:
			return j.lastWord(m)
		case <-look.C:
			if who := where.HeldUp(j.doing()); len(who) > 0 && j.clock.Waiting() {
				progress(control.Event{Phase: "agree", Detail: "waiting for a safe state: " + who[0]})
			}
			continue
		case <-waiting.Done():
		case <-stall.C:
		}
		break
	}
	where := where.HeldUp(j.doing())
	if !j.clock.Abort() { // the safe state was reached just now, or the epoch is over
		return j.conclude(m)
	}
	select {
	case <-m.over:
	case <-j.done:
		return outcome{err: control.ErrEnding}
	}
	return outcome{err: &control.RefusedError{Reasons: append([]string{
		fmt.Sprintf("no safe state in %v; the job goes on", time.Since(asked).Round(time.Millisecond))}, where...)}}
}

// conclude is the outcome of a try that is being made, or that was withdrawn before.
func (j *Job) conclude(m *moment) outcome {
	select {
	case o := <-m.result:
		return o
	case <-j.done:
		return j.lastWord(m)
	case <-m.over:
	}
	j.mu.Lock()
	begun := m.begun
	j.mu.Unlock()
	if begun {
		select {
		case o := <-m.result:
			return o
		case <-j.done:
			return j.lastWord(m)
		}
	}
	if err := j.net.Err(); err != nil {
		return outcome{err: epochLost(err)}
	}
	reasons := []string{errWithdrawn.Error()}
	if missing := j.net.Unreachable(); len(missing) > 0 {
		reasons = (&unreachableError{missing}).reasons()
	}
	return outcome{err: &control.RefusedError{Reasons: reasons}}
}

// lastWord is the outcome of a try when the program comes to its end meanwhile: an image that is being
// written is committed first.
func (j *Job) lastWord(m *moment) outcome {
	j.turn.Lock() // one that has just let the program go on is not over yet
	defer j.turn.Unlock()
	select {
	case <-m.image:
		return <-m.result
	default:
		return outcome{err: control.ErrEnding}
	}
}

// onSafe is called when the collective clock has stopped: no collective call is under way anywhere.
func (j *Job) onSafe(epoch uint32) {
	select {
	case <-j.serving: // another rank may have been asked before this one is ready
	case <-j.done:
		return
	}
	j.mu.Lock()
	m := j.moment
	if m != nil && m.epoch == epoch {
		m.begun = true
	} else {
		m = nil
	}
	j.mu.Unlock()
	j.turn.Lock()
	defer j.turn.Unlock()
	j.settle()
	a := j.newAttempt(j.runtime.Progress)
	a.async, a.clock, a.id, a.resume = true, epoch, momentID(epoch), j.resume
	ctx := context.Background()
	if m != nil {
		ctx, a.then, a.asked, a.notify = m.ctx, m.then, m.asked, m.report
	}
	written, err := a.run(ctx)
	switch {
	case err != nil:
		var refused *control.RefusedError
		if !errors.As(err, &refused) {
			j.log.Info("checkpoint", zap.Error(err)) // who asked is told, and says it
		}
		m.answer(outcome{err: err})
	case !a.held:
		j.resume()
		if m != nil {
			close(m.image)
		}
		go func() { m.answer(<-written) }()
	default:
		if m != nil {
			close(m.image)
		}
		o := <-written
		if o.err != nil {
			m.answer(o)
			return
		}
		if m != nil {
			m.result <- o
		}
		_ = a.on(func() { j.endAfterCommit(a, a.then) })
		a.goOn() // those who asked were told that there is no epoch in time
		j.resume()
	}
}

// resume ends the stop on this rank; rank 0 ends the epoch of the clock on all.
func (j *Job) resume() {
	j.clock.Release()
	if j.group.rank() == 0 {
		j.clock.Resume()
	}
}

// answer tells who asked what became of the request, when the epoch of the clock is over; m may be nil.
func (m *moment) answer(o outcome) {
	if m != nil {
		<-m.over
		m.result <- o
	}
}

// onResumed is called when the epoch of the collective clock has ended.
func (j *Job) onResumed() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if m := j.moment; m != nil {
		close(m.over)
		j.moment = nil
	}
}
