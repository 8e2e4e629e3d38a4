// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/libckpt/libckpt/rails/signaling"
)

// group is the ranks that make an epoch together.
type group interface {
	rank() int
	size() int
	// allgather collects what every rank gives; tag is equal on all ranks and used once.
	allgather(ctx context.Context, tag uint64, mine []byte) ([][]byte, error)
	// exchange delivers to each rank what others have for it; ranks that have nothing for each other do
	// not talk. Collective like allgather, with tags of the same kind.
	exchange(ctx context.Context, tag uint64, out map[int][]byte) (map[int][]byte, error)
}

type solo struct{}

func (solo) rank() int { return 0 }
func (solo) size() int { return 1 }
func (solo) allgather(_ context.Context, _ uint64, mine []byte) ([][]byte, error) {
	return [][]byte{mine}, nil
}
func (solo) exchange(_ context.Context, _ uint64, out map[int][]byte) (map[int][]byte, error) {
	return out, nil
}

type networked struct{ net *signaling.Network }

func (n networked) rank() int { return n.net.Rank() }
func (n networked) size() int { return n.net.Size() }
func (n networked) allgather(ctx context.Context, tag uint64, mine []byte) ([][]byte, error) {
	return n.net.Allgather(ctx, tag, mine)
}
func (n networked) exchange(ctx context.Context, tag uint64, out map[int][]byte) (map[int][]byte, error) {
	return n.net.Exchange(ctx, tag, out)
}

// pollPeriod is how often a thread that waits for the other ranks drives its MPI: they may be inside
// a call that needs it.
const pollPeriod = 100 * time.Microsecond

// await runs f on another goroutine and calls poll on this one until f is done. Callbacks of a runtime must run on
// the thread on which the runtime called libckpt: this goroutine's.
func await[T any](poll func(), f func() (T, error)) (T, error) {
	if poll == nil {
		return f()
	}
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	for {
		select {
		case r := <-done:
			return r.v, r.err
		case <-tick.C:
			poll()
		}
	}
}

// allgatherJSON is allgather for values, with poll called meanwhile.
func allgatherJSON[T any](ctx context.Context, g group, tag uint64, poll func(), mine T) ([]T, error) {
	b, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := await(poll, func() ([][]byte, error) { return g.allgather(ctx, tag, b) })
	if err != nil {
		return nil, err
	}
	out := make([]T, len(all))
	for r, b := range all {
		if err := json.Unmarshal(b, &out[r]); err != nil {
			return nil, fmt.Errorf("what rank %d sent: %w", r, err)
		}
	}
	return out, nil
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
	stepKept
	stepReopened // of no attempt: their numbers begin at 1
	stepQuiesced
	stepQuiet
	stepSignals
	stepClosed
	stepOpened
	stepLook
	stepTogether
	stepTasks // of no attempt
	stepNodes // of no attempt; two
	stepPlaces
	stepRaised // of no attempt
	stepSockets
	stepDry
	stepSysV
	stepVerbs
	steps
)

func (a *attempt) tag(step int) uint64 { return uint64(a.id)*steps + uint64(step) }

// step is allgatherJSON among the ranks of the attempt; if it fails, the attempt has failed.
func step[T any](a *attempt, no int, poll func(), mine T) ([]T, error) {
	all, err := allgatherJSON(a.ctx, a.j.group, a.tag(no), poll, mine)
	if err != nil {
		a.cancel(err)
	}
	return all, err
}

// gather tells mine to all ranks and returns what all say. Meanwhile it drives the runtime where that is possible:
// other ranks may be inside a call that needs this one. They wait for this rank's word, so it says one in any case.
func gather[T any](a *attempt, no int, mine T) (all []T, err error) {
	if a.onProgram(func() { all, err = step(a, no, a.poll, mine) }) != nil {
		all, err = step(a, no, nil, mine)
	}
	return all, err
}
