// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/verbs"
)

// InfiniBand verbs of the program (capi/verbs, ckpt/verbs). Every rank takes part in the drain when any of them has
// opened a device.

// VerbsHost is a Host whose programs may use verbs.
type VerbsHost interface {
	// Verbs is nil as long as the program has not asked for devices. With load they are there afterwards, or err says why not.
	Verbs(load bool) (device verbs.Device, err error)
}

// device is this process's, nil when it has none.
func (j *Job) device() verbs.Device {
	h, ok := j.host.(VerbsHost)
	if !ok {
		return nil
	}
	d, err := h.Verbs(false)
	if err != nil || d == nil {
		return nil
	}
	return d
}

func (j *Job) usesVerbs() bool {
	d := j.device()
	return j.regional == nil && d != nil && d.Used()
}

// openAsker has the ranks answer each other's questions.
func (j *Job) openAsker() {
	j.peers = &verbs.Asker{
		Send: func(to int, b []byte) error { return j.net.Send(context.Background(), to, kindVerbs, b) },
		Answer: func(from int, question, id uint32) ([]byte, bool) {
			d := j.device()
			if d == nil {
				return nil, false
			}
			return d.Answer(from, question, id)
		},
	}
	j.net.Handle(kindVerbs, j.peers.Heard)
	joined.Store(j)
}

// joined is the job of this process once its ranks know each other: a program that is continued asks others before it
// runs, and the process has no Job yet.
var joined atomic.Pointer[Job]

// VerbsJob says which rank of how many this process is; ranks is 0 where processes do not know each other.
func VerbsJob() (rank, ranks int) {
	if j := joined.Load(); j != nil {
		return j.group.rank(), j.group.size()
	}
	return 0, 0
}

// VerbsAsk asks another rank of the job.
func VerbsAsk(rank int, question, id uint32) ([]byte, error) {
	j := joined.Load()
	if j == nil || rank < 0 || rank >= j.group.size() {
		return nil, verbs.ErrNone
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-j.net.Failed():
			cancel()
		case <-ctx.Done():
		}
	}()
	return j.peers.Ask(ctx, rank, question, id)
}

// turnLongest bounds the pause between turns.
const turnLongest = 5 * time.Millisecond

// drainVerbs has all that was sent arrive, on every rank. Collective.
func (a *attempt) drainVerbs() {
	j := a.j
	d := j.device()
	if d != nil {
		defer d.End()
	}
	end := time.Now().Add(drainTimeout)
	if deadline, ok := a.ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline.Add(-time.Until(deadline) / 5)
	}
	var in []byte
	var holds []string // sends to nobody in the job may never end
	if d != nil {
		holds = d.Holds()
	}
	pause := 50 * time.Microsecond
	for turn := 0; ; turn++ {
		var word verbs.Word
		var err error
		switch {
		case len(holds) > 0:
			word = verbs.Word{Left: 1, Why: holds[0], Over: true}
		case d != nil:
			word.Told, word.Left, word.Why, err = d.Turn(turn == 0, in)
		}
		if err != nil {
			word = verbs.Word{Left: 1, Why: err.Error(), Over: true}
		}
		word.Over = word.Over || time.Now().After(end)
		words, gerr := gatherTurn(a, turn, word)
		if gerr != nil {
			a.state.Failure = gerr.Error()
			return
		}
		if verbs.Dry(words) {
			break
		}
		if verbs.GivenUp(words) { // each rank says what is left of its own
			switch {
			case len(holds) > 0:
				a.state.Obstacles = append(a.state.Obstacles, holds...)
			case word.Left > 0:
				a.state.Obstacles = append(a.state.Obstacles, word.Why)
			}
			return
		}
		if in, err = verbs.In(j.group.rank(), words); err != nil {
			a.state.Failure = err.Error()
			return
		}
		if turn > 2 {
			time.Sleep(pause)
			pause = min(2*pause, turnLongest)
		}
	}
	if d != nil {
		a.state.Obstacles = append(a.state.Obstacles, d.Holds()...)
	}
}

// gatherTurn is gather with a number of its own for each turn.
func gatherTurn(a *attempt, turn int, word verbs.Word) ([]verbs.Word, error) {
	all, err := allgatherJSON(a.ctx, a.j.group, a.tag(stepVerbs)+uint64(turn)<<40, nil, word)
	if err != nil {
		a.cancel(err)
	}
	return all, err
}

// verbsSection is the section of an image: where the program's objects begin.
func (j *Job) verbsSection() []byte {
	d := j.device()
	if d == nil {
		return make([]byte, 8)
	}
	return binary.LittleEndian.AppendUint64(nil, d.Root())
}

// makeVerbs makes the program's verbs again, in memory that is there. Collective when any rank has some; gather is nil
// in a process by itself.
func (j *Job) makeVerbs(f *image.File, agree func(error) error, gather func([]byte) ([][]byte, error)) error {
	b, err := f.Section(sectionVerbs)
	if errors.Is(err, image.ErrNoSection) {
		return nil // so it is on all ranks
	}
	if err == nil && len(b) != 8 {
		err = fmt.Errorf("%s: section %q has %d bytes", f.Name(), sectionVerbs, len(b))
	}
	var d verbs.Device
	var root uint64
	if err == nil {
		root = binary.LittleEndian.Uint64(b)
	}
	if err == nil && root != 0 {
		if h, ok := j.host.(VerbsHost); ok {
			d, err = h.Verbs(true)
		}
	}
	for step := 1; step <= 2; step++ {
		if err == nil && d != nil {
			err = d.Make(step, root)
		}
		if err = agree(err); err != nil {
			return err
		}
		if step == 1 {
			all, gerr := gatherAs(gather, verbs.WayOf(d, j.meta.Host))
			if gerr != nil {
				return gerr
			}
			if err = verbs.Mixed(all); err != nil {
				return err
			}
		}
	}
	return nil
}
