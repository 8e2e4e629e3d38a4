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
	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/rails/signaling"
)

// attempt is one try to make an epoch. All ranks go through the same stages, and decide the same
// after each exchange, since all see what all said.
type attempt struct {
	j          *Job
	id         tryID           // equal on all ranks; names the exchanges
	clock      uint32          // async: the epoch of the collective clock
	ctx        context.Context // ends when the attempt has failed, at its deadline for example; see begin
	cancel     context.CancelCauseFunc
	told       chan decision // of rank 0, when the attempt is over
	doubt      bool          // rank 0: the epoch may be committed, or may be yet
	announced  bool          // rank 0 has told how it ended
	gone       chan int      // rank 0: ranks that have given it up, and go on
	stage      string        // what it is at
	resume     func()        // async: after the program's release, when there is no epoch
	then       after.Action
	asked      time.Time
	poll       func() // drives the runtime while this thread waits; nil without
	notify     func(control.Event)
	epoch      int
	capture    *capture
	stoppedAt  time.Time     // when the program was stopped
	stoppedFor time.Duration // for how long
	held       bool          // it stays stopped until the commit
	touched    bool          // some rank's memory may be written to by others as long as those run
	synced     bool          // some rank has synchronous sends that its program has not seen complete
	async      bool          // the program was interrupted: the runtime is used by errands of its thread
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
	stepKept
	steps
)

func (a *attempt) tag(step int) uint64 { return uint64(a.id)*steps + uint64(step) }

// asyncParkTimeout is shorter: the try is made again.
const asyncParkTimeout = 2 * time.Second

// parkTimeout bounds one try to stop the threads; a try that fails costs nothing.
const parkTimeout = 10 * time.Second

func (j *Job) newAttempt(poll func()) *attempt {
	return &attempt{j: j, then: after.Continue, asked: time.Now(), poll: poll, notify: func(control.Event) {}}
}

// on runs f where the runtime may be used: f is on the program's thread already when that called us.
func (a *attempt) on(f func()) error {
	if !a.async {
		f()
		return nil
	}
	return a.j.host.Errand(f)
}

// agree waits until all ranks are in MPIX_Checkpoint.
func (a *attempt) agree() error {
	if a.async || a.j.runtime == nil {
		return nil
	}
	a.phase("agree")
	all, err := step(a, stepAgree, a.poll, a.then)
	if err == nil {
		a.then = all[0]
	}
	return err
}

// parkReport is what a rank says once it stands still, or cannot.
type parkReport struct {
	Obstacle string       `json:"obstacle,omitempty"`
	OneSided bool         `json:"onesided,omitempty"`
	Synced   bool         `json:"synced,omitempty"`
	Then     after.Action `json:"then,omitempty"` // rank 0: what was asked for
}

// park stops the program on all ranks, or on none.
func (a *attempt) park() (err error) {
	j := a.j
	a.phase("stop")
	a.stoppedAt = time.Now()
	timeout := parkTimeout
	if a.async {
		timeout = asyncParkTimeout
	}
	mine, all := parkReport{Then: a.then}, []parkReport(nil)
	if end, ok := a.ctx.Deadline(); ok {
		timeout = max(min(timeout, time.Until(end)), time.Millisecond)
	}
	parkErr := j.host.Park(timeout)
	talk := func(poll func()) { all, err = step(a, stepStopped, poll, mine) }
	if why := j.slow.obstacle(); why != "" {
		mine.Obstacle = why
	}
	// A rank that has withdrawn let its program go on: where that stands now need not be safe.
	if parkErr == nil && a.async && j.clock != nil && !j.clock.Safe(a.clock) {
		mine.Obstacle = errWithdrawn.Error()
	}
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
				if mine.Obstacle == "" {
					mine.Obstacle = j.runtime.Holds()
				}
				mine.OneSided = j.runtime.OneSided()
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
			a.touched = slices.ContainsFunc(all, func(s parkReport) bool { return s.OneSided })
			a.synced = slices.ContainsFunc(all, func(s parkReport) bool { return s.Synced })
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

// captureReport is what a rank says when it stands still.
type captureReport struct {
	Obstacles []string `json:"obstacles,omitempty"` // the state cannot be saved now
	Failure   string   `json:"failure,omitempty"`   // something did not work
	Epoch     int      `json:"epoch,omitempty"`     // rank 0: directory made
	Files     []string `json:"files,omitempty"`     // files.Table.Shared
}

// stopAll stops the program on all ranks, receives what is under way between them, and captures this
// rank; when all ranks could, it returns with the program stopped. Otherwise the program runs again.
func (a *attempt) stopAll() error {
	j := a.j
	err := a.park()
	if err != nil {
		return err
	}
	begun := 0
	var mine captureReport
	var own error // what kept this rank
	talk := func(poll func()) {
		var all []captureReport
		if all, err = step(a, stepBegin, poll, mine); err == nil {
			err = capturedEverywhere(all)
		}
		if err == nil {
			a.epoch = all[0].Epoch
			a.keepFiles(all, poll)
			if a.ctx.Err() != nil {
				err = context.Cause(a.ctx)
			}
		}
	}
	e := a.on(func() {
		if j.runtime != nil {
			a.phase("drain")
			if err := a.quiet(); err != nil {
				mine.Obstacles = []string{err.Error()}
			}
		}
		if len(mine.Obstacles) == 0 {
			var ferr error
			a.capture, mine.Obstacles, ferr = j.captureStopped()
			if ferr != nil {
				mine.Failure = ferr.Error()
			} else if a.capture != nil {
				mine.Files = a.capture.table.Shared()
			}
		}
		if j.group.rank() == 0 && mine.Failure == "" && len(mine.Obstacles) == 0 {
			n, err := patiently(a.ctx, &j.slow, "making the directory of an epoch", j.beginEpoch, func(n int, err error) {
				if err == nil {
					j.abandon(n)
				}
			})
			if err != nil {
				own = err
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
		a.capture.done()
		if own != nil && a.ctx.Err() != nil {
			err = own // and for that it was too late to meet the others
		}
		j.host.Release()
		if begun != 0 {
			err = errors.Join(err, a.abandon(begun))
		}
	}
	return err
}

// keepFiles keeps with the epoch what this rank has to keep of the files that are being written. Ranks
// that write to one file are all stopped until it is kept. What does not work is told with the image.
func (a *attempt) keepFiles(all []captureReport, poll func()) {
	j, c := a.j, a.capture
	lists := make([][]string, len(all))
	for r, one := range all {
		lists[r] = one.Files
	}
	shared := c.table.Elect(j.group.rank(), lists)
	if !j.options.KeepsFiles() {
		return
	}
	kept := make(chan struct{})
	_, c.failed = patiently(a.ctx, &j.slow, "keeping files that are being written", func() (struct{}, error) {
		defer close(kept)
		return struct{}{}, c.held.Keep(&c.table, files.KeepOptions{Dir: j.store.EpochDir(a.epoch),
			Prefix: store.ImagePrefix(j.group.rank()), Copy: j.options.FilesCopy})
	}, func(struct{}, error) { c.done() })
	select {
	case <-kept:
	default: // they are in use until the disk answers
		a.capture = nil
	}
	if shared { // a lost network is found by the exchange that follows
		_, _ = step(a, stepKept, poll, struct{}{})
	}
}

// quiet drains, and returns when nobody writes to this rank's memory any more.
func (a *attempt) quiet() error {
	err := a.drain(a.ctx)
	if a.synced { // whatever became of it: the messages that it did receive are held
		err = errors.Join(err, a.claim(a.ctx))
	}
	if a.touched { // what another one drains may go to memory that both share
		_, e := step(a, stepDrained, a.poll, struct{}{})
		err = errors.Join(err, e)
	}
	return err
}

// allFrozen waits, where a rank that runs writes to the memory of others, until none of these needs
// its memory any more. A lost network is found by the exchange that follows.
func (a *attempt) allFrozen() {
	if a.touched {
		_, _ = step(a, stepFrozen, nil, struct{}{})
	}
}

func capturedEverywhere(all []captureReport) error {
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
// program runs again, unless a.held, and written has what became of the epoch. ctx ends at the deadline, if
// there is one: whatever is not done then is given up.
func (a *attempt) run(ctx context.Context) (written <-chan outcome, err error) {
	a.begin(ctx)
	w, err := a.save()
	if err != nil {
		defer a.forget()
		return nil, a.failure(err)
	}
	j := a.j
	finished, out := make(chan struct{}), make(chan outcome, 1)
	j.mu.Lock()
	j.writing = finished
	j.mu.Unlock()
	imaged := make(chan struct{})
	go func() {
		defer a.forget()
		o := w.write(func() { close(imaged) })
		j.recordOutcome(a, o)
		o.noted = true
		close(finished)
		out <- o
	}()
	if w.pid == 0 && !a.held { // the program only waits until its memory is written
		poll := a.poll
		if a.async {
			poll = nil
		}
		_, _ = await(poll, func() (struct{}, error) { <-imaged; return struct{}{}, nil })
	}
	return out, nil
}

// save stops the program and captures it. Unless the program is to stand still until its image is written,
// it goes on, and a frozen copy stands in its place.
func (a *attempt) save() (*writer, error) {
	j := a.j
	if err := a.agree(); err != nil {
		return nil, err
	}
	if err := a.stopAll(); err != nil {
		return nil, err
	}
	a.held = a.then != after.Continue
	a.phase("snapshot")
	w := &writer{attempt: a}
	if a.held || j.options.Snapshot == "stop" {
		return w, nil
	}
	pid, err := j.host.Freeze()
	if err != nil {
		j.log.Warn("no frozen copy: writing while the program is stopped", zap.Error(err))
		return w, nil
	}
	w.pid = pid
	j.mu.Lock()
	j.frozen[pid] = true
	j.mu.Unlock()
	a.allFrozen()
	a.goOn()
	return w, nil
}

// goOn lets the program run again.
func (a *attempt) goOn() {
	a.j.host.Release()
	a.stoppedFor = time.Since(a.stoppedAt)
}

// failure is what is said of an attempt that made no epoch, when the program goes on.
func (a *attempt) failure(err error) error {
	if a.resume != nil {
		a.resume()
	}
	if !a.failedAlone() && a.ctx.Err() == nil {
		return err
	}
	err = a.reason(err)
	var word *verdictError
	var refused *control.RefusedError
	var lost *signaling.LostError
	switch silent := a.surrender(err); {
	case errors.As(err, &word):
		return word.error
	case errors.As(err, &refused), errors.As(err, &lost):
	case len(silent) > 0:
		err = fmt.Errorf("%w; ranks %v have not said yet that their program goes on", err, silent)
	default:
		err = fmt.Errorf("%w; the job goes on", err)
	}
	return err
}

// reason is why the attempt has ended, in words for those who asked. A RefusedError says that another one
// may succeed.
func (a *attempt) reason(err error) error {
	cause := context.Cause(a.ctx)
	var lost *signaling.LostError
	var missing *unreachableError
	var late *signaling.WaitError
	var word *verdictError
	switch {
	case errors.As(cause, &word):
		return word
	case errors.As(cause, &lost):
		return fmt.Errorf("epoch given up: %w", lost)
	case errors.As(cause, &missing):
		return &control.RefusedError{Reasons: missing.reasons()}
	case errors.Is(cause, errGaveUp):
		return &control.RefusedError{Reasons: []string{cause.Error()}}
	case errors.As(err, &late):
		err = fmt.Errorf("%w: %s is not done", cause, late.Who())
	case !errors.Is(err, cause):
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return fmt.Errorf("the epoch was given up in stage %q: %w", a.stage, err)
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
	_, _ = await(poll, func() (struct{}, error) { j.turn.Lock(); j.settle(); return struct{}{}, nil })
	defer j.turn.Unlock()
	a := j.newAttempt(poll)
	j.tries.mu.Lock()
	j.tries.calls++ // as many on all ranks
	a.id = cooperativeID(j.tries.calls)
	j.tries.mu.Unlock()
	written, err := a.run(context.Background())
	if err != nil {
		j.recordFailure(err)
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
	j.endAfterCommit(a, a.then)
	a.goOn()
	return StateCheckpoint, nil
}
