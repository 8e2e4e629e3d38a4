// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/where"
)

// controlled is the job as the control server sees it.
type controlled Job

// Status implements control.Job.
func (c *controlled) Status() control.Status {
	j := (*Job)(c)
	s := j.known()
	if err := j.owned.lostTo(); err != nil {
		s.Holds = append(s.Holds, err.Error())
	}
	s.Chosen = j.chosenStatus()
	if j.crowd != nil && s.State == control.Running {
		j.showCalls(s.Ranks)
	}
	if j.runtime != nil && s.State != control.Ending {
		overlay(s.Ranks, j.asker.Processes())
	}
	return s
}

// known is what rank 0 knows without asking anybody.
func (j *Job) known() control.Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.status
	s.Ranks = append([]control.RankStatus(nil), s.Ranks...)
	s.Writing = control.WritingOf(s.Ranks, time.Now())
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
		if (s.Phase == where.Computing || s.Phase == stageAgree.String()) && s.Detail == "" { // remind has one
			s.Phase, s.Detail, s.WaitsFor = d.Phase, d.Detail, d.WaitsFor
		}
	}
}

// enter and progress keep the status, on rank 0 for all ranks.
func (a *attempt) enter(s stage) {
	a.stage = s
	a.progress(control.RankStatus{Phase: s.String()})
}

// newsWait is how long news may wait for rank 0 to take older ones.
const newsWait = 10 * time.Millisecond

func (a *attempt) progress(rs control.RankStatus) {
	a.notify(control.Event{Epoch: a.epoch, Phase: rs.Phase, Done: rs.Done, Total: rs.Total, Detail: rs.Detail})
	if a.j.group.rank() == 0 {
		a.j.mu.Lock()
		a.j.status.State, a.j.status.Phase, a.j.status.Pending = control.Checkpointing, rs.Phase, a.epoch
		a.j.mu.Unlock()
	}
	a.j.tellStatus(rs)
}

// tellStatus tells rank 0 what this rank does.
func (j *Job) tellStatus(rs control.RankStatus) {
	rs.Rank, rs.Host, rs.PID = j.group.rank(), j.meta.Host, os.Getpid()
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
func (j *Job) recordOutcome(o outcome) {
	if o.err != nil {
		j.recordFailure(o.err)
		return
	}
	j.log.Info("epoch committed", zap.Int("epoch", o.result.Epoch), zap.Uint64("bytes", o.result.Bytes),
		zap.Float64("seconds", o.result.Seconds), zap.Float64("stopped", o.result.Stopped))
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calm()
	j.status.Epoch = o.result.Epoch
	j.status.Counters.Committed++
	j.status.Last = &control.Outcome{When: time.Now(), Epoch: o.result.Epoch, Bytes: o.result.Bytes, Seconds: o.result.Seconds}
}

// recordFailure records an attempt that made no epoch. Every rank calls it, with the common error or with its own.
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
