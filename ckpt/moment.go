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
	"github.com/libckpt/libckpt/collclock"
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
	then   after.Action
	asked  time.Time
	report func(control.Event)
	result chan outcome
	over   chan struct{} // the epoch of the clock has ended
	image  chan struct{} // the program is saved; what remains is to write and commit
}

// anyMoment makes a checkpoint, trying again until ctx ends.
func (j *Job) anyMoment(ctx context.Context, r control.Request, progress func(control.Event)) (control.Result, error) {
	j.asking.Lock()
	defer j.asking.Unlock()
	asked := time.Now()
	last := error(nil)
	for try := 0; ; try++ {
		j.settle()
		o := j.oneMoment(ctx, r, asked, progress)
		if o.err == nil {
			return o.result, nil
		}
		var refused *control.RefusedError
		if !errors.As(o.err, &refused) {
			j.failed(o.err)
			return control.Result{}, o.err
		}
		last = o.err
		progress(control.Event{Phase: "stop", Detail: strings.Join(refused.Reasons, "; ")})
		select {
		case <-ctx.Done():
			j.failed(last)
			return control.Result{}, last
		case <-j.done:
			return control.Result{}, control.ErrEnding
		case <-time.After(min(backOff<<min(try, 6), time.Second)):
		}
	}
}

// oneMoment is one try. A RefusedError says that another one may succeed.
func (j *Job) oneMoment(ctx context.Context, r control.Request, asked time.Time, progress func(control.Event)) outcome {
	m := &moment{then: r.Then, asked: asked, report: progress,
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
	j.clock.step(collclock.Request{})
	stall, look := time.NewTimer(stallAfter), time.NewTicker(lookEvery)
	defer stall.Stop()
	defer look.Stop()
	for waiting := true; waiting; {
		select {
		case o := <-m.result:
			return o
		case <-j.done:
			return j.lastWord(m)
		case <-j.networkFailed():
			return outcome{err: j.net.Err()}
		case <-look.C:
			if who := heldUp(j.doing()); len(who) > 0 && j.clock.open() {
				progress(control.Event{Phase: "agree", Detail: "waiting for a safe state: " + who[0]})
			}
		case <-ctx.Done():
			waiting = false
		case <-stall.C:
			waiting = false
		}
	}
	where := heldUp(j.doing())
	if !j.clock.abort() { // the safe state was reached just now
		return <-m.result
	}
	select {
	case <-m.over:
	case <-j.done:
		return outcome{err: control.ErrEnding}
	}
	return outcome{err: &control.RefusedError{Reasons: append([]string{
		fmt.Sprintf("no safe state in %v; the job goes on", time.Since(asked).Round(time.Millisecond))}, where...)}}
}

// lastWord is the outcome of a try when the program comes to its end meanwhile: an image that is being
// written is committed first.
func (j *Job) lastWord(m *moment) outcome {
	j.attempts.Lock() // one that has just let the program go on is not over yet
	defer j.attempts.Unlock()
	select {
	case <-m.image:
		return <-m.result
	default:
		return outcome{err: control.ErrEnding}
	}
}

// stopped is called when the collective clock has stopped: no collective call is under way anywhere.
func (j *Job) stopped(uint32) {
	j.mu.Lock()
	m := j.moment
	j.mu.Unlock()
	j.attempts.Lock()
	defer j.attempts.Unlock()
	j.settle()
	a := j.newAttempt(j.runtime.Progress)
	a.async = true
	if m != nil {
		a.then, a.asked, a.report = m.then, m.asked, m.report
	}
	written, err := a.run(context.Background())
	if err == nil && m != nil {
		close(m.image)
	}
	if err != nil || !a.held {
		j.clock.release()
		if j.group.rank() == 0 {
			j.clock.step(collclock.Resume{})
		}
	}
	if err != nil {
		var refused *control.RefusedError
		if !errors.As(err, &refused) {
			j.log.Error("checkpoint", zap.Error(err))
		}
	}
	switch {
	case err != nil && m != nil:
		<-m.over
		m.result <- outcome{err: err}
	case err != nil:
	case !a.held:
		if m != nil {
			go func() {
				o := <-written
				<-m.over
				m.result <- o
			}()
		}
	default:
		o := <-written
		if o.err != nil {
			j.clock.release()
			if j.group.rank() == 0 {
				j.clock.step(collclock.Resume{})
			}
		}
		if m != nil {
			m.result <- o
		}
		if o.err == nil {
			_ = a.on(func() { j.endAfterCommit(a.poll, a.then) })
		}
	}
}

// over is called when the epoch of the collective clock has ended.
func (j *Job) over(bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if m := j.moment; m != nil {
		close(m.over)
		j.moment = nil
	}
}
