// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/posixshm"
	"github.com/libckpt/libckpt/ckpt/sysv"
	"github.com/libckpt/libckpt/internal/fault"
)

// The way of a checkpoint, from the request to the answer, in order:
//
//	Checkpoint ─► persist ─► safe state ─┐
//	a safe state, on the other ranks ────┤► run: agree, stop, drain, snapshot, write, commit ─► answer
//	MPIX_Checkpoint ─────────────────────┘        └► giveUp
//
// Threads. A stage runs on the goroutine of the request. Stages after the snapshot run on a goroutine of their own,
// beside the program. The runtime may be called on the program's thread only: onProgram runs a function there. In
// MPIX_Checkpoint that is the calling thread. Otherwise the program was interrupted, and its thread does errands
// while it is stopped.

// ---- the request -------------------------------------------------------------------------------

// Checkpoint implements control.Job. ctx bounds all stages. So does --timeout of ckptrun if it was given; its
// default only bounds the time until the program is stopped, since then nobody has said how long a disk may take.
func (c *controlled) Checkpoint(ctx context.Context, r control.Request, progress func(control.Event)) (control.Result, error) {
	j := (*Job)(c)
	if err := j.owned.lostTo(); err != nil {
		return control.Result{}, err
	}
	waiting := ctx
	if r.Timeout == 0 && j.options.Timeout > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeoutCause(ctx, j.options.Timeout, control.ErrTimeout)
		defer cancel()
		if j.options.Bound {
			ctx = waiting
		}
	}
	j.asking.Lock()
	defer j.asking.Unlock()
	q := &request{ctx: ctx, waiting: waiting, then: r.Then, asked: time.Now(), alone: r.Unattended, progress: progress}
	if j.crowd != nil {
		return j.persist(q, j.interruptAll, func(try int) time.Duration { return min(retryAfter<<min(try, 6), time.Second) })
	}
	if j.runtime != nil {
		return j.persist(q, j.atSafeState, func(try int) time.Duration { return min(backOff<<min(try, 6), time.Second) })
	}
	return j.persist(q, j.interrupt, func(int) time.Duration { return retryAfter })
}

// request is what operators, signals and the interval ask for.
type request struct {
	ctx      context.Context // all stages end with it
	waiting  context.Context // tries that are refused are made until it ends; ctx, or one that ends earlier
	then     after.Action
	asked    time.Time
	alone    bool // nobody waits for the answer
	progress func(control.Event)
}

// interrupt is one try without MPI: the program is stopped wherever it is.
func (j *Job) interrupt(q *request) outcome {
	j.takeTurn(nil)
	a := j.newAttempt(nil)
	a.then, a.asked, a.notify = q.then, q.asked, q.progress
	err := a.run(q.ctx)
	j.turn.Unlock()
	if err != nil {
		return outcome{err: err}
	}
	return a.outcome()
}

// takeTurn waits until no other checkpoint is being made, and none is being written. The caller unlocks turn.
func (j *Job) takeTurn(poll func()) {
	_, _ = await(poll, func() (struct{}, error) { j.turn.Lock(); j.settle(); return struct{}{}, nil })
}

// ---- MPIX_Checkpoint ---------------------------------------------------------------------------

// Cooperative is MPIX_Checkpoint: the calling thread stands in a held gate call. Collective, after Come.
func (j *Job) Cooperative() (State, error) {
	var poll func()
	if j.runtime != nil {
		poll = j.runtime.Progress
	}
	if j.store == nil {
		return StateIgnore, errors.New("the job is not open yet: call it after MPI_Init")
	}
	j.takeTurn(poll)
	defer j.turn.Unlock()
	a := j.newAttempt(poll)
	if j.crowd != nil {
		a.called, a.id = true, j.crowd.taken()
	} else {
		j.tries.mu.Lock()
		j.tries.calls++ // as many on all ranks
		a.id = cooperativeID(j.tries.calls)
		j.tries.mu.Unlock()
	}
	err := a.run(context.Background())
	j.callOver()
	if err != nil {
		if j.crowd != nil {
			err = j.lostError(err)
		}
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
	o, _ := await(poll, func() (outcome, error) { return a.outcome(), nil })
	if o.err != nil {
		return StateError, o.err
	}
	j.endAfterCommit(a)
	_ = a.goOn()
	return StateCheckpoint, nil
}

// ---- one attempt -------------------------------------------------------------------------------

// attempt is one try to make an epoch. All ranks go through the same stages and decide the same after each
// exchange, since each sees what all have said.
type attempt struct {
	j         *Job
	id        tryID           // equal on all ranks; names the exchanges
	clock     uint32          // the epoch of the collective clock; 0: none, all ranks have called
	ctx       context.Context // ends when the attempt has failed, for example at its deadline; see begin
	cancel    context.CancelCauseFunc
	called    bool          // by all processes, of several without MPI
	async     bool          // the program was interrupted: the runtime is used by errands of its thread
	open      order         // with an embedded runtime
	railsOpen chan struct{} // closed when its rails are open again, or cannot be; nil: it has none
	poll      func()        // drives the runtime, on the program's thread; nil without one
	notify    func(control.Event)
	then      after.Action // what was asked for
	asked     time.Time
	stage     stage

	// close, with an embedded runtime
	closing bool        // its rails are closed, or are being closed
	closed  atomic.Bool // on all ranks; read by poll, on the program's thread
	// stop
	parked     atomic.Bool // the program is stopped, by us; read by poll too
	stoppedAt  time.Time
	allStopped time.Time // when this rank heard that all are
	wentOn     time.Time // just before the program runs again
	stoppedFor time.Duration
	touched    bool       // some rank's memory may be written to by others as long as those run
	segments   [][]string // shared segments, by process (shm.Segments.Held)
	verbs      bool       // some rank has opened an InfiniBand device
	sockets    bool       // some rank has sockets; then plugs are this one's
	plugs      *plugs
	posix      []*posixshm.Report // by rank; nil where it shares nothing
	sysv       bool               // some rank has System V segments; then shared are this one's
	shared     *sysv.Here         // nil: not looked at
	sysvError  error              // why
	synced     bool               // some rank has synchronous sends that its program has not seen complete
	resumed    bool               // async: the gates of this rank are open again
	// drain, snapshot
	state    captureReport // what this rank has to say of itself
	capture  *capture
	begun    bool // rank 0: the directory of the epoch is ours
	epoch    int
	held     bool   // the program stays stopped until the commit, and ends then
	copy     int    // the frozen child that holds the program's memory; 0: the stopped program itself does
	copyRoom uint64 // with --snapshot-memory: what the copy may take
	brake    *brake // watches that; nil: nobody does
	// write, commit
	same      elders
	image     imageReport
	unwritten error         // why this rank has no image
	total     decision      // of a committed epoch
	doubt     bool          // rank 0: the epoch may be committed, or may be yet
	passages  []crossing    // stages that are behind this rank
	written   chan struct{} // closed when end is valid
	end       outcome

	// What other ranks say of how the attempt ended (verdict.go).
	told      chan decision // rank 0's, when the attempt is over
	announced bool          // rank 0 has told how it ended
	gone      chan int      // rank 0: ranks that have given the attempt up, and go on
}

func (j *Job) newAttempt(poll func()) *attempt {
	return &attempt{j: j, then: after.Continue, asked: time.Now(), poll: poll, notify: func(control.Event) {},
		written: make(chan struct{})}
}

// newAttemptAt makes an attempt for the safe state of an epoch of the collective clock.
func (j *Job) newAttemptAt(epoch uint32) *attempt {
	a := j.newAttempt(j.runtime.Progress)
	a.async, a.clock, a.id = true, epoch, momentID(epoch)
	return a
}

// run goes through the stages. It returns when the program is captured and, unless a.held, runs again; outcome says
// what becomes of the epoch. An error says that there is no epoch. ctx ends at the deadline, if there is one:
// whatever is not done by then is given up.
func (a *attempt) run(ctx context.Context) error {
	a.begin(ctx)
	for s := stageAgree; s <= stageSnapshot; s++ {
		if err := a.do(s); err != nil {
			defer a.forget()
			return a.giveUp(err)
		}
	}
	a.j.mu.Lock()
	a.j.last = a
	a.j.mu.Unlock()
	write := func() (struct{}, error) { return struct{}{}, a.do(stageWrite) }
	switch {
	case a.copy != 0 || a.held:
		go func() {
			a.awaitRails()
			_, _ = write()
			a.finish()
		}()
	case a.async:
		_, _ = write() // the program stands only until its memory is written
		go a.finish()
	default:
		_, _ = await(a.poll, write)
		go a.finish()
	}
	return nil
}

// finish is what remains when the image is written.
func (a *attempt) finish() {
	defer a.forget()
	if err := a.do(stageCommit); err != nil {
		a.end.err = a.giveUp(err)
	} else {
		a.end.result = control.Result{Epoch: a.epoch, Bytes: a.total.Bytes, Seconds: time.Since(a.asked).Seconds(),
			Safe: a.stoppedAt.Sub(a.asked).Seconds(), Stopped: a.total.Stop}
		if a.j.group.rank() == 0 {
			a.j.savedIn(a)
		}
		a.raiseCommitted()
	}
	a.j.recordOutcome(a.end)
	a.end.noted = true
	close(a.written)
}

// giveUp undoes all stages, tells the other ranks what they do not know, and says why there is no epoch.
func (a *attempt) giveUp(err error) error {
	if a.closed.Load() && a.failedAlone() {
		a.warn(err)
	}
	if uerr := a.undo(); uerr != nil {
		err = fmt.Errorf("%w; and its directory could not be removed: %w", err, uerr)
	}
	err = a.failure(err)
	a.dropLocal(err)
	a.noPages(err)
	// Told only now, so that the others' answer is not taken for the reason.
	if a.stage >= stageWrite && a.j.group.rank() == 0 && !a.announced {
		a.announce(noEpoch(err))
	}
	return err
}

// goOn lets the program run again, and opens its gates right after that. It may be called twice.
func (a *attempt) goOn() error {
	if a.parked.Load() {
		a.wentOn = time.Now() // this thread may have no turn for long when all others have woken up
		a.stoppedFor = a.wentOn.Sub(a.stoppedAt)
		a.parked.Store(false)
		a.j.host.Release()
	}
	if (a.async || a.clock != 0) && !a.resumed {
		a.resumed = true
		a.j.clock.Release()
		if a.j.group.rank() == 0 {
			a.j.clock.Resume() // ends the epoch of the clock on all ranks
		}
	}
	return nil
}

// errRuns says that the program's thread is not ours to use.
var errRuns = errors.New("the program is not stopped")

// onProgram runs f where the runtime may be used.
func (a *attempt) onProgram(f func()) error {
	switch {
	case !a.async: // it called us
		f()
		return nil
	case !a.parked.Load():
		return errRuns
	}
	return a.j.host.Errand(f)
}

// ---- agree -------------------------------------------------------------------------------------

// agree waits until all ranks are in MPIX_Checkpoint. Where ranks are interrupted, the clock has brought them here.
func (a *attempt) agree() error {
	switch {
	case a.called:
		defer a.noneStays()()
	case !a.meets():
		return nil
	default:
		defer a.notCome()()
	}
	all, err := gather(a, stepAgree, a.then)
	if err == nil {
		a.then = all[0]
	}
	return err
}

// ---- stop --------------------------------------------------------------------------------------

// park stops the program on all ranks.
func (a *attempt) park() error {
	a.stoppedAt = time.Now()
	mine := a.parkHere()
	all, err := gather(a, stepStopped, mine)
	if err != nil {
		return err
	}
	a.allStopped = time.Now()
	var reasons, disks []string
	for r, one := range all {
		if one.Obstacle != "" {
			reasons = append(reasons, a.prefix(r)+one.Obstacle)
		}
		if one.Disk {
			disks = append(disks, a.prefix(r)+one.Obstacle)
		}
	}
	if refused := (&control.RefusedError{Reasons: reasons}); len(disks) > 0 {
		return &lastingError{RefusedError: refused, reasons: disks, disk: true}
	} else if len(reasons) > 0 {
		return refused
	}
	a.then = all[0].Then
	a.touched = slices.ContainsFunc(all, func(p parkReport) bool { return p.OneSided })
	a.sockets = slices.ContainsFunc(all, func(p parkReport) bool { return p.Sockets })
	a.verbs = slices.ContainsFunc(all, func(p parkReport) bool { return p.Verbs })
	a.sysv = slices.ContainsFunc(all, func(p parkReport) bool { return p.SysV })
	a.synced = slices.ContainsFunc(all, func(p parkReport) bool { return p.Synced })
	for _, p := range all {
		a.segments = append(a.segments, p.Segments)
		a.posix = append(a.posix, p.Posix)
	}
	return nil
}

// ---- drain -------------------------------------------------------------------------------------

// quiet receives what is under way between the ranks and captures this rank; rank 0 makes the directory of the
// epoch. A rank that cannot be saved says so when all others are done too.
func (a *attempt) quiet() error {
	j, mine := a.j, &a.state
	if a.hasRuntime() && a.j.embedded == nil {
		a.drainHere()
	}
	if a.sockets {
		a.drainSockets()
	}
	if a.verbs {
		a.drainVerbs()
	}
	if a.sysv {
		a.matchSysV()
	}
	if mine.good() {
		a.captureHere()
	}
	var own error // what kept this rank
	if j.group.rank() == 0 && mine.good() {
		if own = a.beginEpoch(); own != nil {
			mine.Failure = own.Error() // if there is a directory of that number, it is somebody else's
		}
	}
	a.prepareElder()
	all, err := gather(a, stepBegin, *mine)
	if err == nil {
		err = capturedEverywhere(all)
	}
	if err == nil {
		err = j.allRegions(all)
	}
	if err == nil {
		a.epoch = all[0].Epoch
		a.touched = a.touched || slices.ContainsFunc(all, func(r captureReport) bool { return r.Uncopied })
		a.keepFiles(all)
		a.meetElders(all)
		if a.ctx.Err() != nil {
			err = context.Cause(a.ctx)
		}
	}
	if err != nil && own != nil && a.ctx.Err() != nil {
		return own // and for that it was too late to meet the others
	}
	return err
}

// dropCapture gives up the capture, unless the writer has it, and removes the epoch's directory.
func (a *attempt) dropCapture() error {
	a.capture.done()
	if !a.begun {
		return nil
	}
	return a.abandon(a.epoch)
}

// ---- snapshot ----------------------------------------------------------------------------------

// stands says that the program is stopped until its image is written, whatever its memory is.
func (a *attempt) stands() bool { return a.then != after.Continue || a.j.options.Snapshot == "stop" }

// snapshot makes a frozen copy and lets the program go on. A program that is to end after the commit stays stopped.
// So does one without a copy, until its image is written.
func (a *attempt) snapshot() error {
	a.held = a.then != after.Continue
	a.noteWrites()
	if a.stands() {
		return nil
	}
	if a.capture != nil && a.capture.uncopied != "" {
		a.j.log.Warn("no frozen copy: writing while the program is stopped", zap.String("why", a.capture.uncopied))
		return nil
	}
	if why := a.copyTooLarge(); why != "" {
		a.j.log.Warn("no frozen copy, because of --snapshot-memory: writing while the program is stopped", zap.String("why", why),
			zap.Int64("limit", a.j.options.SnapshotMemory))
		return nil
	}
	pid, err := a.freeze()
	if err != nil {
		a.j.log.Warn("no frozen copy: writing while the program is stopped", zap.Error(err))
		return nil
	}
	a.frozen(pid)
	a.allFrozen()
	return a.goOn()
}

// ---- write -------------------------------------------------------------------------------------

// write writes this rank's image. After that nothing needs the memory any more: the copy ends, or the program that
// was stopped for the writing goes on.
func (a *attempt) write() error {
	a.image = imageReport{Host: a.j.meta.Host, Tasks: a.state.Tasks}
	a.brakeOn() // not before an embedded runtime's rails are open again: that needs the program
	err := a.writePatiently()
	if err != nil {
		a.noPages(err)
	}
	if a.copy != 0 {
		a.brakeOff()
		a.thaw()
	} else if !a.held {
		a.allFrozen()
		_ = a.goOn()
	}
	a.unwritten = err
	a.image.Stop = a.stoppedFor.Seconds()
	if err != nil {
		a.image.Error = err.Error()
	}
	return nil
}

// ---- commit ------------------------------------------------------------------------------------

// commit returns on all ranks when the epoch is committed, or when it is certain that it will not be.
func (a *attempt) commit() error {
	// The program runs, or stands until the commit: its thread is not asked.
	all, err := step(a, stepCommit, nil, a.image)
	if err != nil && a.unwritten != nil && a.ctx.Err() != nil { // this rank is the one that is late
		err = a.unwritten
	}
	if a.j.group.rank() != 0 {
		return a.learn(err)
	}
	if err == nil {
		a.total, err = a.commitAll(all)
	}
	if err == nil {
		a.announce(a.total)
	}
	return err
}

// learn is the part of the other ranks: they wait for rank 0's word. A rank whose program is held waits for as long
// as there is a rank 0, since its program must end if the epoch is committed. Other ranks need not know.
func (a *attempt) learn(err error) error {
	j := a.j
	if err != nil {
		j.tell(0, kindSurrender, surrender{ID: a.id, Why: err.Error(), Stands: a.held})
	}
	ended := a.ctx.Done()
	if a.held {
		ended = nil
	}
	var limit <-chan time.Time
	for {
		select {
		case a.total = <-a.told:
			fault.Place("stage.told")
			if a.total.Error != "" {
				return a.total.err()
			}
			return nil
		case <-j.net.Failed():
			return a.learnAlone(epochLost(j.net.Err()))
		case <-ended: // rank 0's word may be the reason, or on its way
			ended, limit = nil, time.After(surrenderWait)
		case <-limit:
			if err == nil {
				err = context.Cause(a.ctx)
			}
			return fmt.Errorf("what became of epoch %d is not known here: %w", a.epoch, err)
		}
	}
}
