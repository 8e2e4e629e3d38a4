// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/after"
)

// What happens to the program after the commit. A program that is to end stays stopped until those who asked know
// of the epoch: the control server passes the answer on and calls Finish; then rank 0 orders the other ranks to
// end.

// Finish implements control.Job. Those who asked know of the commit; or they were told that it did not come in
// time, and then the program goes on.
func (c *controlled) Finish(then after.Action) {
	j := (*Job)(c)
	if j.group.size() == 1 && j.runtime == nil {
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

// endAfterCommit waits, on the program's thread, until those who asked know of the commit, and ends this rank. If
// they were told that there is none, it returns.
func (j *Job) endAfterCommit(a *attempt) {
	then := a.then
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
	if then == after.Exit && j.runtime != nil && j.embedded == nil { // an embedded runtime is stopped, too
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

// outcome waits for what becomes of an epoch that is being written.
func (a *attempt) outcome() outcome {
	<-a.written
	return a.end
}
