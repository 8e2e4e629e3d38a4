// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/where"
)

// controlled is the job as the control server sees it.
type controlled Job

// retryAfter is how long a request waits before it looks again whether the program can be saved.
const retryAfter = 5 * time.Millisecond

// Checkpoint implements control.Job. ctx bounds all stages; --timeout of ckptrun does where it was given, and
// otherwise the time until the program is stopped: nobody has said then how long a disk may take.
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
	if j.runtime != nil {
		return j.anyMoment(ctx, waiting, r, progress)
	}
	return j.interrupt(ctx, waiting, r, progress)
}

// interrupt stops a program without MPI wherever it is; while it is in a state that cannot be saved
// (a child runs, a socket is open) it is tried again until waiting ends.
func (j *Job) interrupt(ctx, waiting context.Context, r control.Request, progress func(control.Event)) (control.Result, error) {
	asked := time.Now()
	for {
		j.turn.Lock()
		j.settle()
		a := j.newAttempt(nil)
		a.then, a.asked, a.notify = r.Then, asked, progress
		written, err := a.run(ctx)
		j.turn.Unlock()
		if err == nil {
			o := <-written
			return o.result, o.err
		}
		var refused *control.RefusedError
		if !errors.As(err, &refused) {
			j.recordFailure(err)
			return control.Result{}, err
		}
		progress(control.Event{Phase: "stop", Detail: strings.Join(refused.Reasons, "; ")})
		select {
		case <-waiting.Done():
			j.recordFailure(err)
			return control.Result{}, err
		case <-j.done:
			return control.Result{}, control.ErrEnding
		case <-time.After(retryAfter):
		}
	}
}

// Finish implements control.Job: the commit is known to those who asked, or they were told that there is
// none in time: then the program goes on.
func (c *controlled) Finish(then after.Action) {
	j := (*Job)(c)
	if j.runtime == nil {
		if then == after.Continue {
			j.host.Release()
			return
		}
		j.endProcess(then)
		return
	}
	for r := 1; r < j.group.size(); r++ {
		if err := j.net.Send(context.Background(), r, kindEnd, []byte(then)); err != nil {
			j.log.Warn("telling a rank to end", zap.Int("rank", r), zap.Error(err))
		}
	}
	j.finishHere(then)
}

func (j *Job) finishHere(then after.Action) {
	select {
	case j.endOrders <- then:
	default:
	}
}

// endAfterCommit waits, on the program's thread, until those who asked know of the commit, and ends
// this rank; when they were told otherwise it returns.
func (j *Job) endAfterCommit(a *attempt, then after.Action) {
	said, _ := await(a.poll, func() (after.Action, error) {
		select {
		case said := <-j.endOrders:
			return said, nil
		case <-j.networkFailed(): // rank 0 has ended already
			return then, nil
		}
	})
	if said == after.Continue {
		return
	}
	if then == after.Exit && j.runtime != nil {
		if err := j.runtime.Finalize(); err != nil {
			j.log.Warn("MPI_Finalize", zap.Error(err))
		}
	}
	j.endProcess(then)
}

func (j *Job) networkFailed() <-chan struct{} {
	if j.net == nil {
		return nil
	}
	return j.net.Failed()
}

func (j *Job) endProcess(then after.Action) {
	if j.group.rank() == 0 {
		if err := j.unrecord(); err != nil {
			j.log.Warn("job.json", zap.Error(err))
		}
		j.owned.release()
	}
	if then == after.Kill {
		j.host.End(-1)
	}
	j.host.End(j.options.ExitCode)
}

// Status implements control.Job.
func (c *controlled) Status() control.Status {
	j := (*Job)(c)
	s := j.known()
	if err := j.owned.lostTo(); err != nil {
		s.Holds = append(s.Holds, err.Error())
	}
	if j.runtime != nil && s.State != control.Ending {
		overlay(s.Ranks, j.doing())
	}
	return s
}

// known is what rank 0 knows without asking anybody.
func (j *Job) known() control.Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.status
	s.Ranks = append([]control.RankStatus(nil), s.Ranks...)
	if s.Last != nil {
		last := *s.Last
		s.Last = &last
	}
	return s
}

// overlay puts what the ranks are doing into their lines, but for those that a stage of the checkpoint
// has stopped, or that write.
func overlay(lines, doing []control.RankStatus) {
	for i, d := range doing {
		s := &lines[i]
		if d.PID != 0 {
			s.Host, s.PID = d.Host, d.PID
		}
		if s.Phase == where.Computing || s.Phase == "agree" {
			s.Phase, s.Detail, s.WaitsFor = d.Phase, d.Detail, d.WaitsFor
		}
	}
}

// phase and progress keep the status, on rank 0 for all ranks.
func (a *attempt) phase(name string) {
	a.stage = name
	a.progress(control.RankStatus{Phase: name})
}

// newsWait is how long news may wait for rank 0 to take older ones.
const newsWait = 10 * time.Millisecond

func (a *attempt) progress(rs control.RankStatus) {
	j := a.j
	rs.Rank, rs.Host, rs.PID = j.group.rank(), j.meta.Host, os.Getpid()
	a.notify(control.Event{Epoch: a.epoch, Phase: rs.Phase, Done: rs.Done, Total: rs.Total, Detail: rs.Detail})
	if j.group.rank() != 0 {
		b, err := json.Marshal(rs)
		if err == nil {
			// News may be lost; results travel otherwise.
			ctx, cancel := context.WithTimeout(context.Background(), newsWait)
			_ = j.net.Send(ctx, 0, kindProgress, b)
			cancel()
		}
		return
	}
	j.mu.Lock()
	j.status.State, j.status.Phase, j.status.Pending = control.Checkpointing, rs.Phase, a.epoch
	j.mu.Unlock()
	j.note(rs)
}

func (j *Job) heard(_ int, payload []byte) {
	var rs control.RankStatus
	if json.Unmarshal(payload, &rs) == nil {
		j.note(rs)
	}
}

func (j *Job) note(rs control.RankStatus) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if rs.Rank >= 0 && rs.Rank < len(j.status.Ranks) {
		j.status.Ranks[rs.Rank] = rs
	}
}

// recordOutcome records how an attempt that was written ended.
func (j *Job) recordOutcome(a *attempt, o outcome) {
	if o.err != nil {
		j.recordFailure(o.err)
		return
	}
	j.log.Info("epoch committed", zap.Int("epoch", o.result.Epoch), zap.Uint64("bytes", o.result.Bytes),
		zap.Float64("seconds", o.result.Seconds), zap.Float64("stopped", o.result.Stopped))
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calm()
	j.cost = time.Duration(o.result.Seconds * float64(time.Second))
	j.status.Epoch = o.result.Epoch
	j.status.Counters.Committed++
	j.status.Last = &control.Outcome{When: time.Now(), Epoch: o.result.Epoch, Bytes: o.result.Bytes, Seconds: o.result.Seconds}
}

// recordFailure records an attempt that made no epoch. Every rank comes here with the same, or its own end of it.
func (j *Job) recordFailure(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calm()
	j.status.Last = &control.Outcome{When: time.Now(), Error: err.Error()}
	var refused *control.RefusedError
	if errors.As(err, &refused) {
		j.status.Last.Refused = refused.Reasons
		j.status.Counters.Refused++
		j.log.Info("checkpoint refused", zap.Strings("reasons", refused.Reasons))
		return
	}
	if errors.Is(err, control.ErrEnding) {
		j.log.Info("no checkpoint: the job is ending")
		return
	}
	j.status.Counters.Failed++
	if j.owned.lostTo() != nil {
		return // it was said
	}
	level := zap.ErrorLevel
	if j.group.rank() != 0 { // rank 0 says it for all
		level = zap.InfoLevel
	}
	j.log.Log(level, "checkpoint failed; the job goes on", zap.Error(err))
}

// calm puts the status back to running. The caller holds j.mu.
func (j *Job) calm() {
	if j.status.State == control.Checkpointing {
		j.status.State = control.Running
	}
	j.status.Phase, j.status.Pending = "", 0
	for r := range j.status.Ranks {
		s := &j.status.Ranks[r]
		*s = control.RankStatus{Rank: s.Rank, Host: s.Host, PID: s.PID, Phase: where.Computing}
	}
}

// ---- triggers ----------------------------------------------------------------------------------

// firstOverhead is when --overhead makes its first checkpoint, whose cost it then knows.
const firstOverhead = 10 * time.Second

// watchTime asks for checkpoints by --interval and --overhead, on rank 0.
func (j *Job) watchTime() {
	period := func() time.Duration {
		if j.options.Interval > 0 {
			return j.options.Interval
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.cost == 0 {
			return firstOverhead
		}
		return max(time.Second, time.Duration(float64(j.cost)/j.options.Overhead))
	}
	if j.options.Interval == 0 && j.options.Overhead == 0 {
		return
	}
	for {
		select {
		case <-j.done:
			return
		case <-time.After(period()):
			j.ask(after.Continue, "the interval")
		}
	}
}

// ask requests a checkpoint on behalf of the job itself, as soon as requests are served; rank 0 only.
func (j *Job) ask(then after.Action, who string) {
	select {
	case <-j.serving:
	case <-j.done:
		return
	}
	if j.owned.lostTo() != nil {
		return
	}
	_, err := j.server.Request(context.Background(), control.Request{Then: then}, func(control.Event) {})
	if err != nil && !errors.Is(err, control.ErrEnding) && j.owned.lostTo() == nil {
		j.log.Warn("checkpoint", zap.String("asked by", who), zap.Error(err))
	}
}

// watchSignals reads the numbers of signals that C writes into the pipe (--signal).
func (j *Job) watchSignals() {
	if triggers == nil {
		return
	}
	b := make([]byte, 1)
	for {
		if n, err := triggers.Read(b); err != nil || n == 0 {
			return
		}
		then, ok := j.options.Signals[unix.Signal(b[0])]
		if !ok {
			continue
		}
		if j.group.rank() == 0 {
			go j.ask(then, "a signal")
		} else if err := j.net.Send(context.Background(), 0, kindTrigger, []byte(then)); err != nil {
			j.log.Warn("passing a signal on to rank 0", zap.Error(err))
		}
	}
}

var triggers *os.File

// TriggerPipe makes the pipe through which signals ask for checkpoints; it returns the end for C.
func TriggerPipe() (fd int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return -1, err
	}
	triggers = os.NewFile(uintptr(p[0]), "signals")
	return p[1], nil
}
