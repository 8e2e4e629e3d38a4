// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/attributes"
	"github.com/libckpt/libckpt/ckpt/clockwork"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/lazy"
	"github.com/libckpt/libckpt/ckpt/lease"
	"github.com/libckpt/libckpt/ckpt/shm"
	"github.com/libckpt/libckpt/ckpt/snapshot"
	"github.com/libckpt/libckpt/ckpt/sockets"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/ckpt/verbs"
	"github.com/libckpt/libckpt/ckpt/where"
	"github.com/libckpt/libckpt/internal/fault"
	"github.com/libckpt/libckpt/rails/signaling"
	"github.com/libckpt/libckpt/vid"
)

// Job is this process's part of a running job.
//
// Fate at a checkpoint: only what capture writes into sections is saved; a restart makes a new Job.
type Job struct {
	host    Host
	options launch.Options
	log     *zap.Logger
	meta    Meta // of the running program; Epoch, Time are filled at each checkpoint
	began   attributes.Start

	group      group
	runtime    Runtime            // nil without MPI
	net        *signaling.Network // nil for a process by itself
	peers      *verbs.Asker       // of one of several processes without MPI
	crowd      *crowd             // one of several processes without MPI; else nil
	tables     *vid.Tables        // nil without MPI
	places     *clockwork.Places  // nil without MPI
	state      []byte             // the runtime's own bytes, in memory that C sees
	names      sockets.Names      // of sockets that were made again
	clock      *clockwork.Clock   // nil without MPI
	asker      *where.Asker       // nil without MPI; asked on rank 0 only
	messages   []byte             // restart: of the image, until the runtime has them
	embedded   Embedded           // the runtime, when it is in the program's half; else nil
	turns      turns              // with embedded
	ignored    map[int]inode      // descriptors of the runtime; under mu
	signals    *Signals           // with embedded
	remade     *shm.Restored      // restart in whole mode: shared segments of the image
	regional   *regional          // ranks are saved, and not the process; else nil
	loader     *lazy.Loader       // lazy restart: brings what is missing of the memory; nil: nothing is
	loaderRuns bool               // it has begun, and uses the image
	restored   chan struct{}      // closed when only the loader uses the image
	levels     *leveled           // images go to local directories first; else nil

	owned   *owned          // rank 0: the directories that are this job's
	store   *store.Store    // rank 0 commits; all write images
	server  *control.Server // rank 0; read it only when serving is closed
	done    chan struct{}   // closed by Close: triggers end
	watched chan struct{}   // closed when watchNetwork has ended; nil before there is a network

	serving chan struct{} // closed once requests can be served: other ranks may be there earlier
	served  sync.Once     // closes serving

	turn    sync.Mutex // one checkpoint at a time
	parking sync.Mutex // held by who stops the program without a turn, and while it stands
	tries   tries
	slow    slow // steps on the disk that do not come back
	lineage lineage
	notes   notes
	made    madeLog
	written image.Model  // what writing costs here
	missing map[int]bool // ranks that cannot be reached; of reach alone
	last    *attempt     // whose image is being written, or was last; under mu
	when    *when        // rank 0: chooses periods; nil: it is not asked to
	// The rank that said last that it cannot receive what is under way.
	undrained atomic.Pointer[undrained]

	mu        sync.Mutex
	status    control.Status
	awaited   *safeState // rank 0 of an MPI job: what a request waits for
	asking    sync.Mutex // rank 0: one request at a time
	endOrders chan after.Action
	frozen    map[int]bool
	closed    bool
}

type outcome struct {
	result control.Result
	err    error
	noted  bool // an error is in the status and in the log
}

func newJob(h Host, o launch.Options, meta Meta, log *zap.Logger) *Job {
	j := &Job{
		host: h, options: o, log: log, meta: meta, group: solo{}, began: attributes.Begin(h.Limit),
		done: make(chan struct{}), serving: make(chan struct{}),
		endOrders: make(chan after.Action, 1), frozen: map[int]bool{}, restored: make(chan struct{}),
		tries:  tries{open: map[tryID]*attempt{}, verdicts: map[tryID]decision{}},
		status: control.Status{State: control.Running, Program: meta.Program, Started: time.Now()},
	}
	if err := j.began.Err; err != nil {
		j.log.Warn("threads go on as the next launcher starts them", zap.Error(err))
	}
	return j
}

// describe fills in what is true of this process.
func describe(o launch.Options, p launch.Program) (Meta, error) {
	cpu, err := snapshot.CPUFlags()
	if err != nil {
		return Meta{}, fmt.Errorf("features of the processor: %w", err)
	}
	host, _ := os.Hostname()
	return Meta{
		Version: metaVersion, Libckpt: Version, Ranks: 1, MPI: store.MPI{Name: "none", ABI: "none"},
		Program: p.Exe, Args: p.Argv, Host: host, Kernel: kernel(), CPU: cpu, Trap: o.Trap,
	}, nil
}

// Start begins the job of a program that is about to run. The program runs only if the job owns its directory.
// Under an MPI launcher the job has no control endpoint before the runtime opens it.
func Start(h Host, o launch.Options, p launch.Program, log *zap.Logger) (*Job, error) {
	meta, err := describe(o, p)
	if err != nil {
		return nil, err
	}
	j := newJob(h, o, meta, log)
	if o.Several() {
		return j, j.startTogether()
	}
	launched, rank := launch.Launched(os.Getenv), launch.LauncherRank(os.Getenv)
	if o.Whole { // the runtime says who the ranks are, when it opens the job
		launched, rank = true, launch.WholeRank(os.Getenv)
	}
	switch {
	case !launched || rank == 0:
		j.owned, err = own(h, o, "", meta.Program, false, log)
	case rank > 0:
		err = awaitOwner(o, "", log)
	}
	if err != nil || launched {
		if j.owned != nil {
			j.owned.alone = launch.LauncherRanks(os.Getenv) != 1
		}
		return j, err
	}
	if err := j.meetAndServe(); err != nil {
		j.owned.release()
		return nil, err
	}
	return j, nil
}

// OpenRuntime makes the job one of all ranks of the runtime. Collective. tables are the virtual ids.
func (j *Job) OpenRuntime(rt Runtime, tables *vid.Tables) error {
	err := ownTogether(j.host, rt, func() (err error) {
		if j.owned == nil {
			j.owned, err = own(j.host, j.options, "", j.meta.Program, true, j.log)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := j.connect(rt, tables); err != nil {
		return err
	}
	if j.owned != nil {
		j.owned.alone = false
	}
	return j.meetAndServe()
}

// connect joins the ranks by the signaling network. Collective.
func (j *Job) connect(rt Runtime, tables *vid.Tables) error {
	switch {
	case j.runtime != nil:
		return errors.New("a runtime has opened this process's job already; one is supported")
	case j.crowd != nil:
		return errors.New("this process was started with --ranks, which is for processes without MPI: leave --ranks out, the MPI says who the ranks are")
	}
	silence, err := silence()
	if err != nil {
		return err
	}
	net, err := join(rt, signaling.Config{Silence: silence, Log: structured(j.log)})
	if err != nil {
		return err
	}
	j.runtime, j.net, j.tables, j.group = rt, net, tables, networked{net}
	j.meta.Rank, j.meta.Ranks = rt.Rank(), rt.Ranks()
	j.meta.MPI.Name, j.meta.MPI.Version = rt.Name(), shortVersion(rt.Version())
	j.meta.MPI.Threads = threadLevel(rt.Threads())
	if j.meta.MPI.ABI == "none" {
		j.meta.MPI.ABI = rt.Name()
	}
	if _, whole := rt.(Embedded); whole && j.regional == nil {
		j.meta.MPI.ABI = abiWhole
	}
	net.Handle(kindEnd, func(_ int, payload []byte) { j.finishHere(after.Action(payload)) })
	net.Handle(kindTrigger, func(from int, payload []byte) {
		go j.ask(after.Action(payload), fmt.Sprintf("a signal to rank %d", from))
	})
	net.Handle(kindProgress, j.heard)
	net.Handle(kindUndrained, j.heardUndrained)
	if err := j.findPlaces(rt); err != nil {
		return err
	}
	j.clock, err = clockwork.New(clockwork.Config{
		Process: net.Rank(), Places: j.places, Tables: tables, Log: j.log,
		Events: clockwork.Events{Safe: j.onSafe, Resumed: j.onResumed, Deferred: j.nudge},
		Kinds:  clockwork.Kinds{Clock: kindClock, Meet: kindMeet},
	})
	if err != nil {
		return err
	}
	j.listenEmbedded(rt)
	net.Handle(kindVerdict, j.heardVerdict)
	net.Handle(kindSurrender, j.heardSurrender)
	net.Handle(kindPages, j.heardPages)
	j.clock.Listen(net)
	net.OnReach(j.reach)
	j.watched = make(chan struct{})
	go j.watchNetwork(j.watched)
	j.asker = where.NewAsker(net.Size(), j.places, j.here, j.askWhere, net.Failed())
	net.Handle(kindWhere, j.answerWhere)
	net.Handle(kindStands, j.asker.Heard)
	j.host.SetTables(tables.Address())
	return nil
}

// silence is how long a rank may say nothing before it counts as missing, if a test sets that; else 0.
func silence() (time.Duration, error) {
	text, ok := fault.Debug("silence")
	if !ok {
		return 0, nil
	}
	return time.ParseDuration(text)
}

// Kinds of messages of the signaling network.
const (
	kindEnd      = 1 // rank 0: do what was asked for after the commit
	kindTrigger  = 2 // to rank 0: a signal asks for a checkpoint
	kindProgress = 3 // to rank 0: control.RankStatus
	kindClock    = 4 // clockwork.Kinds
	kindWhere    = 5 // rank 0 asks what a rank is doing: number of the question
	kindStands   = 6 // to rank 0: the answer
	kindMeet     = 7 // clockwork.Kinds
	// How an attempt ended: rank 0's word to all, and to rank 0 the word of a rank that has given the attempt up.
	kindVerdict   = 8
	kindSurrender = 9
	kindUndrained = 10 // id of the attempt: this rank cannot receive what is under way
	kindOrder     = 11 // rank 0: order, with an embedded runtime
	kindCalled    = 12 // to rank 0: the program has called ckpt_checkpoint
	kindSegment   = 13 // of a shared segment, between its processes (ckpt/shm)
	kindLeft      = 14 // to rank 0: all local tasks have left
	kindBegin     = 15 // rank 0: a checkpoint of processes without MPI begins; its number
	kindVerbs     = 16 // questions of InfiniBand verbs, and answers (ckpt/verbs)
	kindPages     = 17 // of the image that the first rank of a node writes, to the others
	// MPIX_Checkpoint of processes without MPI: to rank 0, one is in the call; from it, all are, with the attempt's number.
	kindInCall = 18
	kindAllIn  = 19
	// Levels: rank 0's orders to the leaders of nodes, and their answers.
	kindRaise  = 40
	kindRaised = 41
	kindKeep   = 42
)

// meetAndServe opens the directory, and is serve when all ranks have, and have told of their nodes: a rank that
// cannot use it ends a job that nobody has been told of yet. Collective; serve itself is not.
func (j *Job) meetAndServe() error {
	if err := j.openStore(); err != nil {
		return err
	}
	if err := j.openLevels(); err != nil {
		return err
	}
	return j.serve()
}

func (j *Job) openStore() (err error) {
	j.store, err = store.Create(j.options.Dir)
	return err
}

// serve opens, on rank 0, the way for operators.
func (j *Job) serve() error {
	lines := make([]control.RankStatus, j.group.size())
	for r := range lines {
		lines[r] = control.RankStatus{Rank: r, Phase: where.Computing}
	}
	j.mu.Lock() // other ranks may have news already
	j.status.Ranks = lines
	j.mu.Unlock()
	if j.group.rank() == 0 {
		j.store = j.store.Guard(j.owned.check)
	}
	if j.group.rank() == 0 {
		j.when = j.newWhen()
	}
	j.serveLevels()
	if j.group.rank() == 0 {
		if err := j.serveControl(); err != nil {
			return err
		}
	}
	j.served.Do(func() { close(j.serving) })
	go j.watchSignals()
	return nil
}

func (j *Job) serveControl() error {
	if newest, _, err := j.store.NewestSound(); err == nil {
		j.mu.Lock()
		j.status.Epoch = newest
		j.mu.Unlock()
	}
	local, only := j.options.ControlAt(j.net == nil || j.net.OneHost(), os.Getenv)
	server, err := control.Listen(control.Config{LoopbackOnly: local, Only: only, Log: structured(j.log)})
	if err != nil {
		return fmt.Errorf("control endpoint: %w", err)
	}
	j.server = server
	a := server.Address()
	record := store.Job{
		Libckpt: Version, Program: j.meta.Program, Args: j.meta.Args, Ranks: j.rankCount(),
		MPI: j.meta.MPI, Host: a.Host, PID: os.Getpid(), Started: j.status.Started,
		Control: a.Control(), Key: a.Token,
	}
	if err := j.store.WriteJob(record); err != nil {
		server.Close()
		return err
	}
	if err := server.Serve((*controlled)(j)); err != nil {
		server.Close()
		return fmt.Errorf("control endpoint: %w", err)
	}
	j.owned.mark(lease.Running)
	j.owned.publish(func() { j.recordAgain(record) })
	go j.watchTime()
	return nil
}

// recordAgain writes job.json if somebody removed it, or damaged it.
func (j *Job) recordAgain(record store.Job) {
	if r, err := j.store.ReadJob(); err == nil && r.Key == record.Key {
		return
	}
	if err := j.store.WriteJob(record); err != nil {
		j.log.Warn("job.json is gone and could not be written again", zap.Error(err))
		return
	}
	j.log.Warn("job.json was gone; it is written again", zap.String("dir", j.store.Dir()))
}

// unrecord removes job.json, unless it is another job's.
func (j *Job) unrecord() error {
	j.owned.publish(nil)
	if j.owned.lostTo() != nil {
		return nil
	}
	return j.store.RemoveJob()
}

// Restarted tells whether the process was continued from an image.
func (j *Job) Restarted() bool { return j.meta.Epoch > 0 }

// settle waits until no epoch is being written.
func (j *Job) settle() {
	j.mu.Lock()
	last := j.last
	j.mu.Unlock()
	if last != nil {
		<-last.written
	}
}

// ending tells whether Close was called.
func (j *Job) ending() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// Close ends the job's part in this process. With a runtime it is collective.
func (j *Job) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	j.status.State = control.Ending
	j.mu.Unlock()
	j.awaitRaised()
	close(j.done)
	var poll func()
	if j.runtime != nil {
		poll = j.runtime.Progress
	}
	_, err := await(poll, func() (struct{}, error) {
		j.settle()
		if j.watched != nil {
			<-j.watched // the tables are the caller's to close now
		}
		if j.crowd != nil { // the others go on
			j.net.Close()
			return struct{}{}, nil
		}
		if j.net != nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			return struct{}{}, j.net.Shutdown(ctx)
		}
		return struct{}{}, nil
	})
	if j.server != nil {
		j.server.Close()
		if rmErr := j.unrecord(); rmErr != nil && err == nil {
			err = rmErr
		}
	}
	if j.regional != nil {
		j.regional.saved.done()
		j.regional.named.done()
	}
	if j.runtime == nil || j.regional != nil { // nobody sees a plain process end
		j.owned.release()
	} else {
		j.owned.mark(lease.Ending) // the program still runs, and may write its files
	}
	j.host.SetTables(0)
	return err
}

// Ending is called when the program ends. whole: the program did all its work itself, and ended well.
func (j *Job) Ending(whole bool) {
	if j.runtime == nil && whole && j.options.Whole && launch.WholeRank(os.Getenv) <= 0 {
		j.log.Warn(j.meta.Program + " has ended and has not called ckpt_open, so it could not be saved: --whole is for programs whose MPI, or other runtime, calls libckpt itself; leave it out to save a program without its MPI")
	} else if j.runtime == nil && j.crowd == nil && whole && launch.Launched(os.Getenv) && launch.LauncherRank(os.Getenv) == 0 {
		j.log.Warn(j.meta.Program + " has ended without a call of MPI_Init, so it could not be saved: of what an MPI launcher starts, only MPI programs are. Without MPI, start it without the launcher: ckptrun --dir " +
			j.options.Dir + " " + j.meta.Program)
	}
	if j.runtime != nil {
		// Without MPI_Finalize the other ranks end the job; nothing can be committed any more.
		j.mu.Lock()
		closed := j.closed
		j.mu.Unlock()
		if !closed {
			return
		}
	}
	if err := j.Close(); err != nil {
		j.log.Warn("end of the job", zap.Error(err))
	}
	j.owned.release()
}

// SetRuntimeState names the runtime's bytes, which every image saves as they are at that moment. The
// memory is C's.
func (j *Job) SetRuntimeState(b []byte) { j.state = b }

// RuntimeState is what the image had for SetRuntimeState.
func (j *Job) RuntimeState() []byte { return j.state }
