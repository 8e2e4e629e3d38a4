// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/sockets"
)

// Sockets of the program (ckpt/sockets): which connections are the job's own is found out together, while all programs
// are stopped.

// plugs are the sockets of this rank's program, when nothing is under way on them.
type plugs struct {
	here  *sockets.Here
	table sockets.Table
}

func (j *Job) hasSockets() bool {
	return j.regional == nil && sockets.Any(j.host.Descriptors())
}

// drainSockets finds out which connections are the job's own, and has all that is under way on them arrive. Collective.
func (a *attempt) drainSockets() {
	err := a.drainSocketsHere()
	if err != nil {
		a.state.Failure = err.Error()
	}
}

func (a *attempt) drainSocketsHere() error {
	j := a.j
	here, err := sockets.Look(without(j.host.Descriptors(), j.ignoredFDs()), &j.names, j.visitors())
	defer here.Restore()
	defer func() {
		if here != nil {
			j.welcome(here.Welcome())
		}
	}()
	mine := sockets.Report{}
	if err == nil {
		mine = here.Report()
	}
	reports, gerr := gather(a, stepSockets, mine)
	if gerr != nil {
		return gerr
	}
	var word sockets.Word
	if err == nil {
		here.Match(j.group.rank(), reports)
		word = here.Drain(a.ctx)
	}
	words, gerr := gather(a, stepDry, word)
	if err != nil || gerr != nil {
		if err == nil {
			err = gerr
		}
		return err
	}
	here.Restore()
	here.Words(words)
	table, err := here.Table()
	if err == nil {
		a.plugs = &plugs{here, table}
	}
	return err
}

// VisitorHost is a Host that gives the program connections that were accepted before it did.
type VisitorHost interface {
	Visitors() []sockets.Visitor
	SetVisitors([]sockets.Visitor)
}

func (j *Job) visitors() []sockets.Visitor {
	if h, ok := j.host.(VisitorHost); ok {
		return h.Visitors()
	}
	return nil
}

// welcome gives the host what waits to be accepted; why is what is not as it should be.
func (j *Job) welcome(all []sockets.Visitor, why error) {
	if h, ok := j.host.(VisitorHost); ok {
		h.SetVisitors(all)
	}
	if why != nil {
		j.log.Warn("the program may not learn that somebody is there before it calls accept", zap.Error(why))
	}
}

func without(list, some []int) (out []int) {
	not := map[int]bool{}
	for _, n := range some {
		not[n] = true
	}
	for _, n := range list {
		if !not[n] {
			out = append(out, n)
		}
	}
	return out
}

// keep is a files.Sockets.
func (p *plugs) keep(fd int) (int, *files.Obstacle, bool) {
	if p == nil {
		return 0, nil, false
	}
	index, o, ok := p.here.Keep(fd)
	if o == nil {
		return index, nil, ok
	}
	return index, &files.Obstacle{What: o.What, Hint: o.Hint, Passing: o.Passing}, ok
}

func readSockets(f *image.File) (sockets.Table, error) {
	b, err := f.Section(sectionSockets)
	if err != nil {
		return sockets.Table{}, err
	}
	t, err := sockets.Decode(b)
	if err != nil {
		err = fmt.Errorf("%s: section %q: %w", f.Name(), sectionSockets, err)
	}
	return t, err
}

// makeSockets makes the sockets of an image again, connected with those of other ranks, and has the program see their
// former names. Collective; gather is nil in a process by itself.
func (j *Job) makeSockets(f *image.File, gather func([]byte) ([][]byte, error)) (*sockets.Made, error) {
	table, err := readSockets(f)
	if errors.Is(err, image.ErrNoSection) {
		return nil, nil // so it is on all ranks
	}
	all := func(mine []byte) ([][]byte, error) {
		if gather == nil {
			return [][]byte{mine}, nil
		}
		return gatherWith(gather, mine)
	}
	made, merr := sockets.Make(context.Background(), table, j.meta.Rank, all, &j.names, func(m string) { j.log.Warn(m) })
	if err != nil || merr != nil {
		made.Close()
		if err == nil {
			err = merr
		}
		return nil, err
	}
	j.host.Name(j.names.List())
	j.welcome(made.Visitors())
	return made, nil
}
