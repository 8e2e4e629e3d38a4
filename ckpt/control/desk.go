// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/libckpt/libckpt/ckpt/after"
)

// grace is how long a request whose timeout is over waits for the job to say what held it up, and how long an
// ending job waits until those who asked for its end have been told.
const grace = 3 * time.Second

// desk takes requests for checkpoints from any number of sides and has the job do one at a time.
type desk struct {
	job Job
	ctx context.Context // of the runs; ends when the server closes
	end context.CancelCauseFunc
	wg  sync.WaitGroup

	mu    sync.Mutex
	runs  []*run // the first is under way
	busy  bool   // a goroutine does runs: one is enough, and two would do the same run
	ended bool   // a run with after.Exit or after.Kill was committed, or the server closes
}

func newDesk(job Job) *desk {
	d := &desk{job: job}
	d.ctx, d.end = context.WithCancelCause(context.Background())
	return d
}

// close ends all runs, and returns when those who asked for them have their answers.
func (d *desk) close() {
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.end(ErrEnding)
	d.wg.Wait()
}

// run is one checkpoint that somebody wants. Under desk.mu.
type run struct {
	then     after.Action
	deadline time.Time // zero: somebody who asked is willing to wait for ever
	tickets  []*ticket
	cancel   context.CancelCauseFunc // nil before it is under way
	over     bool                    // the deadline has passed: nobody can join any more
	last     Event
}

// ticket is somebody who waits for a run.
type ticket struct {
	desk     *desk
	run      *run
	joined   bool
	alone    bool          // Request.Unattended
	answered bool          // its own time has ended, and the answer said so, whatever comes later; under desk.mu
	deadline time.Time     // zero: none
	events   chan Event    // holds the latest event only: a slow reader misses some
	done     chan struct{} // closed when result and err are valid
	result   Result
	err      error
	told     chan struct{} // closed by the owner once the answer is out, or cannot be
	once     sync.Once
}

func (t *ticket) release() { t.once.Do(func() { close(t.told) }) }

// ask queues a request. The caller waits for done and calls release when it has passed the answer on;
// it may do so earlier.
func (d *desk) ask(r Request) (*ticket, error) {
	t := &ticket{desk: d, alone: r.Unattended, events: make(chan Event, 1), done: make(chan struct{}), told: make(chan struct{})}
	if r.Timeout > 0 {
		t.deadline = time.Now().Add(r.Timeout)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return nil, ErrEnding
	}
	for _, run := range d.runs {
		if run.then != r.Then || run.over {
			continue
		}
		t.joined, t.run = true, run
		run.tickets = append(run.tickets, t)
		if t.deadline.IsZero() || !run.deadline.IsZero() && t.deadline.After(run.deadline) {
			run.deadline = t.deadline
		}
		if run.last != (Event{}) {
			t.tell(run.last)
		}
		return t, nil
	}
	t.run = &run{then: r.Then, deadline: t.deadline, tickets: []*ticket{t}}
	d.runs = append(d.runs, t.run)
	if !d.busy {
		d.busy = true
		d.wg.Add(1)
		go d.work()
	}
	return t, nil
}

// waiting is how many requests have no answer yet.
func (d *desk) waiting() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.runs {
		n += len(r.tickets)
	}
	return n
}

// work does the runs until there are none.
func (d *desk) work() {
	defer d.wg.Done()
	for {
		d.mu.Lock()
		if len(d.runs) == 0 {
			d.busy = false
			d.mu.Unlock()
			return
		}
		r := d.runs[0]
		d.mu.Unlock()
		d.do(r)
	}
}

// do has the job do one run and tells all who wait for it.
func (d *desk) do(r *run) {
	ctx, cancel := context.WithCancelCause(d.ctx)
	defer cancel(nil)
	d.mu.Lock()
	r.cancel = cancel
	ended := d.ended
	d.mu.Unlock()
	stop := d.guardDeadline(r)
	defer stop()

	var result Result
	err := ErrEnding
	if !ended {
		result, err = d.attempt(ctx, r)
	}

	d.mu.Lock()
	d.runs = d.runs[1:]
	tickets := slices.DeleteFunc(r.tickets, func(t *ticket) bool { return t.answered })
	stands := err == nil && r.then != after.Continue // the program, until Finish
	ending := stands && len(tickets) > 0
	d.ended = d.ended || ending
	for _, t := range tickets {
		t.result, t.err = result, err
		t.result.Joined = t.joined
		close(t.done)
	}
	d.mu.Unlock()
	switch {
	case !stands:
		return
	case !ending: // all who asked were told that their time is over: nothing may happen to the job now
		d.job.Finish(after.Continue)
		return
	}
	limit := time.NewTimer(grace)
	defer limit.Stop()
	for _, t := range tickets {
		select {
		case <-t.told:
		case <-limit.C:
			limit.Reset(0)
		}
	}
	d.job.Finish(r.then)
}

// attempt calls the job.
func (d *desk) attempt(ctx context.Context, r *run) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	d.mu.Lock()
	request := Request{Then: r.then, Unattended: slices.ContainsFunc(r.tickets, func(t *ticket) bool { return t.alone })}
	if !r.deadline.IsZero() {
		request.Timeout = time.Until(r.deadline)
	}
	d.mu.Unlock()
	result, err := d.job.Checkpoint(ctx, request, func(e Event) {
		d.mu.Lock()
		defer d.mu.Unlock()
		r.last = e
		for _, t := range r.tickets {
			t.tell(e)
		}
	})
	if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return result, err
}

// guardDeadline cancels the run when its deadline, which may move, is over. stop ends the guard.
func (d *desk) guardDeadline(r *run) (stop func()) {
	var timer *time.Timer
	stopped := false
	var check func()
	check = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		switch left := time.Until(r.deadline); {
		case stopped || r.deadline.IsZero():
		case left <= 0:
			r.over = true
			r.cancel(ErrTimeout)
		default:
			timer = time.AfterFunc(left, check)
		}
	}
	check()
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		stopped = true
		if timer != nil {
			timer.Stop()
		}
	}
}

// tell replaces the event that waits in t by e. desk.mu is held.
func (t *ticket) tell(e Event) {
	select {
	case <-t.events:
	default:
	}
	t.events <- e
}

// late answers a ticket whose time, and the grace after it, is over. It says what holds the job up, "" when there
// is an answer already.
func (t *ticket) late() string {
	d := t.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-t.done:
		return ""
	default:
	}
	t.answered = true
	switch r := t.run; {
	case len(d.runs) == 0 || d.runs[0] != r:
		return "the job is still busy with checkpoints that others asked for"
	case r.deadline.IsZero() || r.deadline.After(t.deadline):
		return "the checkpoint goes on for others who asked for it too and wait longer"
	}
	return "the checkpoint was called off, and the job has not said yet what became of it; `ckptctl status` shows what the job does"
}

// wait returns the result, and calls progress with news until then.
func (t *ticket) wait(ctx context.Context, progress func(Event)) (Result, error) {
	var over <-chan time.Time
	if !t.deadline.IsZero() {
		timer := time.NewTimer(time.Until(t.deadline) + grace)
		defer timer.Stop()
		over = timer.C
	}
	for {
		select {
		case <-t.done:
			select {
			case e := <-t.events:
				progress(e)
			default:
			}
			return t.result, t.err
		case e := <-t.events:
			progress(e)
		case <-over:
			if why := t.late(); why != "" {
				return Result{}, fmt.Errorf("%w: %s", ErrTimeout, why)
			}
			over = nil // it is done
		case <-ctx.Done():
			select {
			case <-t.done: // both have ended: the answer says more than ctx
				return t.result, t.err
			default:
				return Result{}, context.Cause(ctx)
			}
		}
	}
}
