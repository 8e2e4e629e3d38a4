// SPDX-License-Identifier: Apache-2.0

package meeting

import (
	"errors"
	"fmt"
	"strconv"
)

// PMIx is the client library of a launcher that speaks PMIx. Its methods are called by one goroutine, in this order.
type PMIx interface {
	// Init connects to the launcher and says which rank this is, of how many.
	Init() (rank, ranks int, err error)
	// Put says something under a key to all ranks, from the next Fence on.
	Put(key string, value []byte) error
	// Fence waits for all ranks. Collective.
	Fence() error
	// Get returns what a rank has said.
	Get(rank int, key string) ([]byte, error)
	// Finalize tells the launcher that this process has ended its part.
	Finalize() error
}

// findPMIx asks the launcher's library.
func findPMIx(o Options) (Meeting, error) {
	if o.PMIx == nil {
		return nil, errors.New("the launcher speaks PMIx, for which there is no library here")
	}
	rank, ranks, err := o.PMIx.Init()
	if err != nil {
		return nil, err
	}
	if ranks < 1 || rank < 0 || rank >= ranks {
		return nil, errors.Join(fmt.Errorf("the launcher says rank %d of %d", rank, ranks), o.PMIx.Finalize())
	}
	return &pmix{lib: o.PMIx, rank: rank, ranks: ranks}, nil
}

type pmix struct {
	lib         PMIx
	rank, ranks int
	round       int // of all-gathers: what was said under a key stays, so each has its own
	ended       error
	closed      bool
}

func (p *pmix) Rank() int  { return p.rank }
func (p *pmix) Ranks() int { return p.ranks }

func (p *pmix) Allgather(mine []byte) ([][]byte, error) {
	if p.ended != nil {
		return nil, p.ended
	}
	all, err := p.allgather(mine)
	if err != nil {
		p.ended = fmt.Errorf("all-gather of %d ranks: %w", p.ranks, err)
		return nil, p.ended
	}
	return all, nil
}

func (p *pmix) allgather(mine []byte) ([][]byte, error) {
	key := "ckpt." + strconv.Itoa(p.round)
	p.round++
	// A rank that may not give so much still comes to the fence, where others would wait for it.
	wrong := checkGive(mine)
	if wrong != nil {
		mine = nil
	}
	// The byte before is for those who give nothing: an empty value is none.
	if err := p.lib.Put(key, append([]byte{1}, mine...)); err != nil {
		return nil, err
	}
	if err := p.lib.Fence(); err != nil {
		return nil, err
	}
	if wrong != nil {
		return nil, wrong
	}
	all := make([][]byte, p.ranks)
	for r := range all {
		b, err := p.lib.Get(r, key)
		if err != nil {
			return nil, fmt.Errorf("what rank %d gave: %w", r, err)
		}
		if len(b) != 1+len(mine) {
			return nil, fmt.Errorf("rank %d gives %d bytes, and rank %d %d: all must give the same number", r, len(b)-1, p.rank, len(mine))
		}
		all[r] = b[1:]
	}
	return all, nil
}

func (p *pmix) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	if p.ended == nil {
		p.ended = errClosed
	}
	return p.lib.Finalize()
}
