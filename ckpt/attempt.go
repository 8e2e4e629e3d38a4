// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/control"
)

// attempt is one try to make an epoch. All ranks go through the same stages, and decide the same
// after each exchange, since all see what all said.
type attempt struct {
	j       *Job
	no      uint64 // equal on all ranks; names the exchanges
	then    after.Action
	asked   time.Time
	poll    func() // drives the runtime while this thread waits; nil without
	report  func(control.Event)
	epoch   int
	capture *capture
	stopped time.Time     // when the program was stopped
	stop    time.Duration // for how long
	held    bool          // it stays stopped until the commit
	touched bool          // some rank's memory may be written to by others as long as those run
	synced  bool          // some rank has synchronous sends that its program has not seen complete
	async   bool          // the program was interrupted: the runtime is used by errands of its thread
}

// Exchanges of one attempt.
const (
	stepAgree = iota
	stepStopped
	stepOwed
	stepClaims
	stepAnswers
	stepDrained
	stepBegin
	stepFrozen
	stepCommit
	stepOutcome
	steps
)

func (a *attempt) tag(step int) uint64 { return a.no*steps + uint64(step) }

// asyncParkTimeout is shorter: the try is made again.
const asyncParkTimeout = 2 * time.Second

// parkTimeout bounds one try to stop the threads; a try that fails costs nothing.
const parkTimeout = 10 * time.Second

func (j *Job) newAttempt(poll func()) *attempt {
	j.count++
	return &attempt{j: j, no: j.count, then: after.Continue, asked: time.Now(), poll: poll,
		report: func(control.Event) {}}
}

// on runs f where the runtime may be used: f is on the program's thread already when that called us.
func (a *attempt) on(f func()) error {
	if !a.async {
		f()
		return nil
	}
	return a.j.host.Errand(f)
}

// meet waits until all ranks are in MPIX_Checkpoint.
func (a *attempt) meet(ctx context.Context) error {
	if a.async || a.j.runtime == nil {
		return nil
	}
	a.phase("agree")
	all, err := exchange(ctx, a.j.group, a.tag(stepAgree), a.poll, a.then)
	if err == nil {
		a.then = all[0]
	}
	return err
}

// standing is what a rank says once it stands still, or cannot.
type standing struct {
	Obstacle string       `json:"obstacle,omitempty"`
	OneSided bool         `json:"onesided,omitempty"`
	Synced   bool         `json:"synced,omitempty"`
	Then     after.Action `json:"then,omitempty"` // rank 0: what was asked for
}

// park stops the program on all ranks, or on none.
func (a *attempt) park(ctx context.Context) (err error) {
	j := a.j
	a.phase("stop")
	a.stopped = time.Now()
	timeout := parkTimeout
	if a.async {
		timeout = asyncParkTimeout
	}
	mine, all := standing{Then: a.then}, []standing(nil)
	parkErr := j.host.Park(timeout)
	talk := func(poll func()) { all, err = exchange(ctx, j.group, a.tag(stepStopped), poll, mine) }
	if parkErr != nil {
		mine.Obstacle = parkErr.Error()
		if j.runtime != nil {
			if call := j.runtime.Inside(); call != "" {
				mine.Obstacle += "; it waits for processes of another job in " + call
			}
		}
		poll := a.poll
		if a.async {
			poll = nil // the thread runs
		}
		talk(poll)
	} else {
		e := a.on(func() {
			if j.runtime != nil {
				mine.Obstacle, mine.OneSided = j.runtime.Holds(), j.runtime.OneSided()
				mine.Synced = j.runtime.Synchronous()
			}
			talk(a.poll)
		})
		if e != nil { // the others wait for a word of this rank, whatever happens to it
			mine.Obstacle = e.Error()
			talk(nil)
		}
	}
	if err == nil {
		var reasons []string
		for r, one := range all {
			if one.Obstacle != "" {
				reasons = append(reasons, a.prefix(r)+one.Obstacle)
			}
		}
		if len(reasons) > 0 {
			err = &control.RefusedError{Reasons: reasons}
		} else {
			a.then = all[0].Then
			a.touched = slices.ContainsFunc(all, func(s standing) bool { return s.OneSided })
			a.synced = slices.ContainsFunc(all, func(s standing) bool { return s.Synced })
		}
	}
	if err != nil && parkErr == nil {
		j.host.Release()
	}
	return err
}

func (a *attempt) prefix(rank int) string {
	if a.j.group.size() == 1 {
		return ""
	}
	return fmt.Sprintf("rank %d: ", rank)
}

// beginning is what a rank says when it stands still.
type beginning struct {
	Obstacles []string `json:"obstacles,omitempty"` // the state cannot be saved now
	Failure   string   `json:"failure,omitempty"`   // something did not work
	Epoch     int      `json:"epoch,omitempty"`     // rank 0: directory made
}

// stopAll stops the program on all ranks, receives what is under way between them, and captures this
// rank; when all ranks could, it returns with the program stopped. Otherwise the program runs again.
func (a *attempt) stopAll(ctx context.Context) error {
	j := a.j
	err := a.park(ctx)
	if err != nil {
		return err
	}
	begun := 0
	var mine beginning
	talk := func(poll func()) {
		var all []beginning
		if all, err = exchange(ctx, j.group, a.tag(stepBegin), poll, mine); err == nil {
			err = judge(all)
		}
		if err == nil {
			a.epoch = all[0].Epoch
		}
	}
	e := a.on(func() {
		if j.runtime != nil {
			a.phase("drain")
			if err := a.quiet(ctx); err != nil {
				mine.Obstacles = []string{err.Error()}
			}
		}
		if len(mine.Obstacles) == 0 {
			var ferr error
			a.capture, mine.Obstacles, ferr = j.captureStopped()
			if ferr != nil {
				mine.Failure = ferr.Error()
			}
		}
		if j.group.rank() == 0 && mine.Failure == "" && len(mine.Obstacles) == 0 {
			n, err := j.beginEpoch()
			if err != nil {
				mine.Failure = err.Error() // and the directory, if there is one, is somebody else's
			} else {
				begun, mine.Epoch = n, n
			}
		}
		talk(a.poll)
	})
	if e != nil {
		mine.Failure = e.Error()
		talk(nil)
	}
	if err != nil {
		j.host.Release()
		if begun != 0 {
			err = errors.Join(err, j.store.Abandon(begun))
		}
	}
	return err
}

// quiet drains, and returns when nobody writes to this rank's memory any more.
func (a *attempt) quiet(ctx context.Context) error {
	err := a.drain(ctx)
	if a.synced { // whatever became of it: the messages that it did receive are held
		err = errors.Join(err, a.claim(ctx))
	}
	if a.touched { // what another one drains may go to memory that both share
		_, e := exchange(ctx, a.j.group, a.tag(stepDrained), a.poll, struct{}{})
		err = errors.Join(err, e)
	}
	return err
}

// allFrozen waits, where a rank that runs writes to the memory of others, until none of these needs
// its memory any more. A lost network is found by the exchange that follows.
func (a *attempt) allFrozen(ctx context.Context) {
	if a.touched {
		_, _ = exchange(ctx, a.j.group, a.tag(stepFrozen), nil, struct{}{})
	}
}

func judge(all []beginning) error {
	var refused, failed []string
	for r, one := range all {
		prefix := ""
		if len(all) > 1 {
			prefix = fmt.Sprintf("rank %d: ", r)
		}
		for _, o := range one.Obstacles {
			refused = append(refused, prefix+o)
		}
		if one.Failure != "" {
			failed = append(failed, prefix+one.Failure)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("checkpoint failed: %s", failed[0])
	}
	if len(refused) > 0 {
		return &control.RefusedError{Reasons: refused}
	}
	return nil
}

// run goes through the stages up to the snapshot and starts the writing. When it returns nil the
// program runs again, unless a.held, and written is closed when the epoch is committed or given up.
func (a *attempt) run(ctx context.Context) (written <-chan outcome, err error) {
	j := a.j
	if err := a.meet(ctx); err != nil {
		return nil, err
	}
	if err := a.stopAll(ctx); err != nil {
		return nil, err
	}
	a.held = a.then != after.Continue
	stoppedWrite := a.held || j.options.Snapshot == "stop"
	a.phase("snapshot")
	w := &writer{attempt: a}
	if !stoppedWrite {
		pid, err := j.host.Freeze()
		if err != nil {
			j.log.Warn("no frozen copy: writing while the program is stopped", zap.Error(err))
			stoppedWrite = true
		} else {
			w.pid = pid
			j.mu.Lock()
			j.frozen[pid] = true
			j.mu.Unlock()
			a.allFrozen(ctx)
			j.host.Release()
			a.stop = time.Since(a.stopped)
		}
	}
	finished := make(chan struct{})
	j.mu.Lock()
	j.writing = finished
	j.mu.Unlock()
	out := make(chan outcome, 1)
	released := make(chan struct{})
	go func() {
		o := w.write(func() {
			// The images are written: a program that only waited for that goes on.
			if stoppedWrite && !a.held {
				a.allFrozen(ctx)
				j.host.Release()
				a.stop = time.Since(a.stopped)
			}
			close(released)
		})
		if a.held && o.err != nil {
			j.host.Release()
		}
		j.ended1(a, o)
		close(finished)
		out <- o
	}()
	if stoppedWrite && !a.held {
		poll := a.poll
		if a.async {
			poll = nil
		}
		_, _ = await(poll, func() (struct{}, error) { <-released; return struct{}{}, nil })
	}
	return out, nil
}

// Cooperative is MPIX_Checkpoint: the calling thread stands in a held gate call. Collective.
func (j *Job) Cooperative() (State, error) {
	var poll func()
	if j.runtime != nil {
		poll = j.runtime.Progress
	}
	if j.store == nil {
		return StateIgnore, errors.New("the job is not open yet: call it after MPI_Init")
	}
	_, _ = await(poll, func() (struct{}, error) { j.attempts.Lock(); j.settle(); return struct{}{}, nil })
	defer j.attempts.Unlock()
	a := j.newAttempt(poll)
	written, err := a.run(context.Background())
	if err != nil {
		j.failed(err)
		var refused *control.RefusedError
		if errors.As(err, &refused) {
			return StateIgnore, err
		}
		return StateError, err
	}
	if !a.held {
		return StateCheckpoint, nil
	}
	o, _ := await(poll, func() (outcome, error) { return <-written, nil })
	if o.err != nil {
		return StateError, o.err
	}
	j.endAfterCommit(poll, a.then)
	return StateError, errors.New("the job should have ended")
}
