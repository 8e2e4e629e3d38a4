// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/meeting"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/ckpt/where"
	"github.com/libckpt/libckpt/internal/fault"
	"github.com/libckpt/libckpt/rails/signaling"
)

// Several processes without MPI that are saved and continued together (--ranks). They need not know of libckpt:
// each is interrupted wherever it is, as a program by itself is:
//
//	a request ──► rank 0 ──begin(n)──► all ranks: stop, capture, snapshot, write; rank 0 commits
//
// Programs that call MPIX_Checkpoint: crowd_call.go.
//
// The processes of a job meet in the checkpoint directory (ckpt/meeting), before the program begins or is continued.
// The first of them that ends is the end of the saving: an epoch needs all. The others go on by themselves.

// crowd is what a Job has of it.
type crowd struct {
	begun  uint64      // rank 0: checkpoints that it has begun; under asking
	orders chan uint64 // to other ranks
	*calling
}

// crowdMeeting is the ranks before they have a network.
type crowdMeeting struct{ meeting.Meeting }

func (m crowdMeeting) Size() int { return m.Ranks() }

// meetTogether brings the processes together. first is called by one that is to be rank 0 because it is the first.
// ranks is how many an epoch has; 0: at a start. The error of a signal that is to end this process is told, too.
func meetTogether(o launch.Options, ranks int, first func() error, logger *zap.Logger) (meeting.Meeting, error) {
	n, err := o.Together(os.Getenv, ancestors(), ranks)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := make(chan struct{})
	go func() {
		tick, slow := time.NewTicker(200*time.Millisecond), time.NewTimer(5*time.Second)
		defer tick.Stop()
		defer slow.Stop()
		for {
			select {
			case <-stop:
				return
			case <-slow.C:
				logger.Warn(fmt.Sprintf("waiting for the other processes of the job: %d in all, in %s", n.Ranks, o.Dir))
			case <-tick.C:
				if err := interrupted(); err != nil {
					cancel(err)
					return
				}
			}
		}
	}()
	defer close(stop)
	patience, err := meetPatience()
	if err != nil {
		return nil, err
	}
	return meeting.Find(ctx, meeting.Options{Getenv: os.Getenv, Dir: o.Dir, Numbers: n, First: first, Patience: patience, Log: structured(logger)})
}

// meetPatience is how long the processes wait for each other, if a test sets that; else 0.
func meetPatience() (time.Duration, error) {
	text, ok := fault.Debug("patience")
	if !ok {
		return 0, nil
	}
	return time.ParseDuration(text)
}

// startTogether is Start for one of several processes: rank 0 takes the directory, and all join.
func (j *Job) startTogether() (err error) {
	if _, err := store.Create(j.options.Dir); err != nil {
		return err
	}
	take := func() error {
		if j.owned != nil {
			return nil
		}
		w, err := own(j.host, j.options, "", j.meta.Program, true, j.log)
		j.owned = w
		return err
	}
	defer func() {
		if err != nil {
			j.owned.release()
		}
	}()
	m, err := meetTogether(j.options, 0, take, j.log)
	if err != nil {
		return err
	}
	defer m.Close()
	rt := &plain{ranks: crowdMeeting{m}}
	if err := ownTogether(j.host, rt, take); err != nil {
		return err
	}
	if err := j.joinTogether(rt); err != nil {
		return err
	}
	return j.meetAndServe()
}

// Together tells whether the epoch is of several processes without MPI.
func (r *Restart) Together() bool {
	return !r.MPI() && !r.Regions() && r.manifest.ProcessCount() > 1
}

// errRanks refuses --ranks for another job.
func (r *Restart) errRanks() error {
	if !r.MPI() {
		return fmt.Errorf("epoch %d of %s is of one process: leave --ranks out", r.manifest.Epoch, r.store.Dir())
	}
	return fmt.Errorf("epoch %d of %s is of an MPI job, whose MPI says who the ranks are: leave --ranks out", r.manifest.Epoch, r.store.Dir())
}

// continueTogether restores one of several processes. Collective.
func continueTogether(h Host, o launch.Options, r *Restart, log *zap.Logger) (_ *Job, err error) {
	defer func() {
		if err != nil {
			r.Disown()
		}
	}()
	m, err := meetTogether(o, r.Ranks(), func() error { return r.Own(h, o, log) }, log)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	rt := &plain{ranks: crowdMeeting{m}}
	if err = r.ownTogether(h, o, rt, log); err != nil {
		return nil, err
	}
	if err = r.settle(h, o, rt, log); err != nil {
		return nil, err
	}
	j, f := beginRestore(h, o, r, log)
	defer func() { j.doneWith(f) }()
	if err = j.joinTogether(rt); err != nil {
		return nil, err
	}
	if err = j.restore(r, f, func(err error) error { return errorOfAll(rt, err) }, rt.Allgather); err != nil {
		return nil, err
	}
	err = j.meetAndServe()
	go j.tellLoading()
	return j, err
}

// joinTogether joins the processes by the signaling network. Collective.
func (j *Job) joinTogether(rt Runtime) error {
	silence, err := silence()
	if err != nil {
		return err
	}
	net, err := join(rt, signaling.Config{Silence: silence, Log: structured(j.log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel)))})
	if err != nil {
		return err
	}
	j.net, j.group = net, networked{net}
	j.crowd = &crowd{orders: make(chan uint64, 8), calling: newCalling(net.Size())}
	j.meta.Rank, j.meta.Ranks = net.Rank(), net.Size()
	net.Handle(kindEnd, func(_ int, payload []byte) { j.finishHere(after.Action(payload)) })
	net.Handle(kindTrigger, func(from int, payload []byte) {
		go j.ask(after.Action(payload), fmt.Sprintf("a signal to rank %d", from))
	})
	net.Handle(kindProgress, j.heard)
	net.Handle(kindVerdict, j.heardVerdict)
	net.Handle(kindSurrender, j.heardSurrender)
	net.Handle(kindPages, j.heardPages)
	net.Handle(kindBegin, func(_ int, payload []byte) {
		if len(payload) != 8 {
			return
		}
		select {
		case j.crowd.orders <- binary.LittleEndian.Uint64(payload):
		case <-j.done:
		}
	})
	if net.Rank() == 0 {
		net.Handle(kindInCall, j.called)
	} else {
		net.Handle(kindAllIn, j.heardAllIn)
	}
	j.openAsker()
	net.OnReach(j.reach)
	j.watched = make(chan struct{})
	go j.watchNetwork(j.watched)
	go j.followOrders()
	return nil
}

// followOrders tells rank 0 where this process is, and makes its part of checkpoints, one after the other.
func (j *Job) followOrders() {
	select {
	case <-j.serving:
	case <-j.done:
		return
	}
	here := control.RankStatus{Rank: j.group.rank(), Host: j.meta.Host, PID: os.Getpid(), Phase: where.Computing}
	if j.group.rank() == 0 {
		j.note(here)
		return
	}
	j.tell(0, kindProgress, here)
	for {
		select {
		case <-j.done:
			return
		case <-j.net.Failed():
			return
		case n := <-j.crowd.orders:
			a := j.newAttempt(nil)
			a.id = cooperativeID(n)
			if err := j.runTogether(context.Background(), a); err != nil {
				j.log.Info("checkpoint", zap.Error(err)) // rank 0 reports it
			}
		}
	}
}

// interruptAll is one try of rank 0: every process is stopped wherever it is.
func (j *Job) interruptAll(q *request) outcome {
	if err := j.net.Err(); err != nil {
		return outcome{err: j.lostError(err)}
	}
	a := j.newAttempt(nil)
	a.then, a.asked, a.notify = q.then, q.asked, q.progress
	j.crowd.begun++
	a.id = cooperativeID(j.crowd.begun)
	word := binary.LittleEndian.AppendUint64(nil, j.crowd.begun)
	for r := 1; r < j.group.size(); r++ {
		if err := j.net.Send(context.Background(), r, kindBegin, word); err != nil {
			return outcome{err: j.lostError(err)}
		}
	}
	if err := j.runTogether(q.ctx, a); err != nil {
		return outcome{err: j.lostError(err)}
	}
	o := a.outcome()
	o.err = j.lostError(o.err)
	return o
}

// runTogether makes this rank's part of an attempt. A program that is to end stays stopped until its last order has
// come.
func (j *Job) runTogether(ctx context.Context, a *attempt) error {
	j.takeTurn(nil)
	err := a.run(ctx)
	if err != nil || !a.held {
		j.turn.Unlock()
		return err
	}
	go func() {
		defer j.turn.Unlock()
		if a.outcome().err == nil {
			j.endAfterCommit(a)
			_ = a.goOn() // those who asked were told that there is no epoch in time
		}
	}()
	return nil
}

// lostError says in which way a process is gone, where that is the reason.
func (j *Job) lostError(err error) error {
	var lost *signaling.LostError
	if !errors.As(err, &lost) {
		return err
	}
	return errors.New(goneText(lost))
}

// goneText is what becomes of a job when a process of it is gone.
func goneText(lost *signaling.LostError) string {
	if lost.Left() {
		return fmt.Sprintf("rank %d has ended: an epoch needs all processes, so no checkpoint can be made any more; the others go on", lost.Rank)
	}
	return fmt.Sprintf("rank %d is gone, and has not ended by itself (%s): no checkpoint can be made any more; the others go on; to go back to the last epoch, end them and restart the job", lost.Rank, lost.Cause)
}

// crowdLost says once that the job cannot be saved any more. That a process ends is no reason for a warning.
func (j *Job) crowdLost() {
	select {
	case <-j.done:
		return
	default:
	}
	var lost *signaling.LostError
	if err := j.net.Err(); errors.As(err, &lost) && lost.Left() {
		j.log.Info(goneText(lost))
	} else if errors.As(err, &lost) {
		j.log.Warn(goneText(lost))
	} else if err != nil {
		j.log.Warn("no checkpoint can be made any more; the program goes on", zap.Error(err))
	}
}
