// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"os"

	"github.com/libckpt/libckpt/ckpt/clockwork"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/where"
)

// Clock is the collective clock of this rank, nil without a runtime.
func (j *Job) Clock() *clockwork.Clock { return j.clock }

// rankCount is how many ranks the job has; without a runtime it is one.
func (j *Job) rankCount() int {
	if j.places == nil {
		return j.group.size()
	}
	return j.places.Ranks()
}

// tasksOf are the ranks of a process, where some process has several.
func (j *Job) tasksOf(process int) []int {
	if j.places == nil || !j.places.Several() {
		return nil
	}
	var ranks []int
	for _, r := range j.places.Of(process) {
		ranks = append(ranks, int(r))
	}
	return ranks
}

// doing says what each rank is doing; rank 0 of an MPI job only.
func (j *Job) doing() []control.RankStatus { return j.asker.Doing() }

// here is what this process answers, of each of its ranks: where it stands in its collective calls, and what else its
// program waits for.
func (j *Job) here() []where.Rank {
	all := make([]where.Rank, len(j.places.Of(j.group.rank())))
	for local := range all {
		at := &all[local]
		at.Host, at.PID = j.meta.Host, os.Getpid()
		positions, awaited := j.clock.Positions(local)
		for _, p := range positions {
			at.Clocks = append(at.Clocks, where.Clock(p))
		}
		for _, w := range awaited {
			at.Calls = append(at.Calls, where.Call{Call: w.Call, Comm: w.Name, Peer: w.Peer, Tag: -1})
		}
	}
	at := &all[0]
	for _, w := range j.runtime.Waiting() {
		peer := w.Peer
		if peer >= 0 {
			peer = j.tables.PeerOf(w.Comm, peer)
		}
		at.Waits(w, j.clock.CommName(w.Comm), peer)
	}
	if call := j.runtime.Inside(); call != "" {
		at.WaitsOutside(call)
	}
	return all
}

// answerWhere tells rank 0 what this rank is doing.
func (j *Job) answerWhere(_ int, question []byte) {
	answer, err := where.Answer(question, j.here)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), where.Wait)
	defer cancel()
	_ = j.net.Send(ctx, 0, kindStands, answer) // too late is the same as not at all
}

func (j *Job) askWhere(ctx context.Context, rank int, question []byte) error {
	return j.net.Send(ctx, rank, kindWhere, question)
}
