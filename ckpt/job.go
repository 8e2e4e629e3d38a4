// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/snapshot"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/rails/signaling"
	"github.com/libckpt/libckpt/vid"
)

// Job is this process's part of a running job.
//
// Fate at a checkpoint: nothing of it is saved but what capture writes into sections; a restart makes
// it anew.
type Job struct {
	host    Host
	options launch.Options
	log     *zap.Logger
	meta    Meta // of the running program; Epoch, Time are filled at each checkpoint

	group    group
	runtime  Runtime            // nil without MPI
	net      *signaling.Network // nil without MPI
	tables   *vid.Tables        // nil without MPI
	state    []byte             // the runtime's own bytes, in memory that C sees
	clock    *clockwork         // nil without MPI
	messages []byte             // restart: of the image, until the runtime has them

	store  *store.Store    // rank 0 commits; all write images
	server *control.Server // rank 0
	done   chan struct{}   // closed by Close: triggers end

	attempts sync.Mutex // one checkpoint at a time
	count    uint64     // attempts so far; equal on all ranks
	writing  chan struct{}

	mu     sync.Mutex
	status control.Status
	moment *moment    // rank 0 of an MPI job: the request that is being served
	looks  looks      // rank 0: who is asked what they are doing
	asking sync.Mutex // rank 0 of an MPI job: one request at a time
	ended  chan after.Action
	frozen map[int]bool
	closed bool
	cost   time.Duration // of the last committed checkpoint, for --overhead
}

type outcome struct {
	result control.Result
	err    error
}

func newJob(h Host, o launch.Options, meta Meta, log *zap.Logger) *Job {
	closedChannel := make(chan struct{})
	close(closedChannel)
	return &Job{
		host: h, options: o, log: log, meta: meta, group: solo{},
		done: make(chan struct{}), writing: closedChannel,
		ended: make(chan after.Action, 1), frozen: map[int]bool{},
		status: control.Status{State: control.Running, Program: meta.Program, Started: time.Now()},
	}
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

// Start begins the job of a program that is about to run. Under an MPI launcher the job has no
// control endpoint before the runtime opens it, since the rank is not known.
func Start(h Host, o launch.Options, p launch.Program, log *zap.Logger) (*Job, error) {
	meta, err := describe(o, p)
	if err != nil {
		return nil, err
	}
	j := newJob(h, o, meta, log)
	if launch.Launched(os.Getenv) {
		return j, nil
	}
	return j, j.serve()
}

// OpenRuntime makes the job one of all ranks of the runtime. Collective. tables are the virtual ids.
func (j *Job) OpenRuntime(rt Runtime, tables *vid.Tables) error {
	if err := j.connect(rt, tables); err != nil {
		return err
	}
	return j.serve()
}

// connect joins the ranks by the signaling network. Collective.
func (j *Job) connect(rt Runtime, tables *vid.Tables) error {
	if j.runtime != nil {
		return errors.New("a runtime has opened this process's job already; one is supported")
	}
	ep, err := signaling.Listen(signaling.Config{})
	if err != nil {
		return fmt.Errorf("signaling network: %w", err)
	}
	cards, err := rt.Allgather(ep.Card())
	if err != nil {
		ep.Close()
		return fmt.Errorf("all-gather of the signaling network's addresses: %w", err)
	}
	net, err := await(rt.Progress, func() (*signaling.Network, error) {
		return ep.Join(context.Background(), rt.Rank(), cards)
	})
	if err != nil {
		return fmt.Errorf("signaling network: %w", err)
	}
	j.runtime, j.net, j.tables, j.group = rt, net, tables, networked{net}
	j.meta.Rank, j.meta.Ranks = rt.Rank(), rt.Ranks()
	j.meta.MPI.Name, j.meta.MPI.Version = rt.Name(), rt.Version()
	j.meta.MPI.Threads = threadLevel(rt.Threads())
	if j.meta.MPI.ABI == "none" {
		j.meta.MPI.ABI = rt.Name()
	}
	net.Handle(kindEnd, func(_ int, payload []byte) { j.finishHere(after.Action(payload)) })
	net.Handle(kindTrigger, func(from int, payload []byte) {
		go j.ask(after.Action(payload), fmt.Sprintf("a signal to rank %d", from))
	})
	net.Handle(kindProgress, j.heard)
	if j.clock, err = newClockwork(net, tables, j.log); err != nil {
		return err
	}
	j.clock.stop, j.clock.over, j.clock.nudge = j.stopped, j.over, j.nudge
	net.Handle(kindWhere, j.sayWhere)
	net.Handle(kindStands, j.heardWhere)
	j.host.SetTables(tables.Address())
	return nil
}

// Kinds of messages of the signaling network.
const (
	kindEnd      = 1 // rank 0: do what was asked for after the commit
	kindTrigger  = 2 // to rank 0: a signal asks for a checkpoint
	kindProgress = 3 // to rank 0: control.RankStatus
	kindClock    = 4 // collclock.Message
	kindWhere    = 5 // rank 0 asks what a rank is doing: number of the question
	kindStands   = 6 // to rank 0: the answer, whereabouts
	kindMeet     = 7 // who takes part in MPI_Intercomm_create
)

// serve opens the directory and, on rank 0, the way for operators.
func (j *Job) serve() error {
	var err error
	if j.store, err = store.Create(j.options.Dir); err != nil {
		return err
	}
	j.status.Ranks = make([]control.RankStatus, j.group.size())
	for r := range j.status.Ranks {
		j.status.Ranks[r] = control.RankStatus{Rank: r, Phase: phaseComputing}
	}
	if j.group.rank() == 0 {
		if err := j.serveControl(); err != nil {
			return err
		}
	}
	go j.watchSignals()
	return nil
}

func (j *Job) serveControl() error {
	if err := j.refuseSecondJob(); err != nil {
		return err
	}
	if newest, err := j.store.Newest(); err == nil {
		j.status.Epoch = newest
	}
	server, err := control.Listen(control.Config{})
	if err != nil {
		return fmt.Errorf("control endpoint: %w", err)
	}
	j.server = server
	a := server.Address()
	err = j.store.WriteJob(store.Job{
		Libckpt: Version, Program: j.meta.Program, Args: j.meta.Args, Ranks: j.group.size(),
		MPI: j.meta.MPI, Host: a.Host, PID: os.Getpid(), Started: j.status.Started,
		Control: a.Control(), Key: a.Token,
	})
	if err != nil {
		server.Close()
		return err
	}
	if err := server.Serve((*controlled)(j)); err != nil {
		server.Close()
		return fmt.Errorf("control endpoint: %w", err)
	}
	go j.watchTime()
	return nil
}

// refuseSecondJob keeps two jobs from writing epochs into one directory.
func (j *Job) refuseSecondJob() error {
	old, err := j.store.ReadJob()
	if err != nil {
		return nil // none, or unreadable: it is replaced
	}
	a, err := control.ParseAddress(old.Host, old.Control, old.Key)
	if err != nil || old.PID == os.Getpid() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := control.NewClient(a).Status(ctx); err != nil {
		return nil
	}
	return fmt.Errorf("%s: another job writes its checkpoints there (%s, process %d on %s); choose another --dir, or end that job",
		j.store.Dir(), old.Program, old.PID, old.Host)
}

// Restarted tells whether the process was continued from an image.
func (j *Job) Restarted() bool { return j.meta.Epoch > 0 }

// settle waits until no epoch is being written.
func (j *Job) settle() {
	j.mu.Lock()
	w := j.writing
	j.mu.Unlock()
	<-w
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
	close(j.done)
	var poll func()
	if j.runtime != nil {
		poll = j.runtime.Progress
	}
	_, err := await(poll, func() (struct{}, error) {
		j.settle()
		if j.net != nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			return struct{}{}, j.net.Shutdown(ctx)
		}
		return struct{}{}, nil
	})
	if j.server != nil {
		j.server.Close()
		if rmErr := j.store.RemoveJob(); rmErr != nil && err == nil {
			err = rmErr
		}
		// A job that was never saved leaves no directory behind.
		_ = os.Remove(j.store.Dir())
	}
	j.host.SetTables(0)
	return err
}

// Ending is called when the program ends.
func (j *Job) Ending() {
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
}

// SetRuntimeState names the runtime's bytes, which every image saves as they are at that moment. The
// memory is C's.
func (j *Job) SetRuntimeState(b []byte) { j.state = b }

// RuntimeState is what the image had for SetRuntimeState.
func (j *Job) RuntimeState() []byte { return j.state }
