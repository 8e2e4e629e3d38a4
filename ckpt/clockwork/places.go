// SPDX-License-Identifier: Apache-2.0

package clockwork

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Places says which ranks of the job live in which process. Nil maps: rank r is process r's only one.
type Places struct {
	ranks int
	of    []int32   // process of each rank
	local [][]int32 // ranks of each process, by local task
}

// OneEach is for a job of so many processes with one rank each.
func OneEach(processes int) *Places { return &Places{ranks: processes} }

// NewPlaces is for processes that say which ranks they have, in the order of their local tasks.
func NewPlaces(local [][]int32) (*Places, error) {
	p := &Places{local: local}
	one := true
	for process, ranks := range local {
		if len(ranks) == 0 {
			return nil, fmt.Errorf("process %d has no rank", process)
		}
		one = one && len(ranks) == 1 && int(ranks[0]) == process
		p.ranks += len(ranks)
	}
	if one {
		return OneEach(len(local)), nil
	}
	p.of = make([]int32, p.ranks)
	for i := range p.of {
		p.of[i] = -1
	}
	for process, ranks := range local {
		for task, r := range ranks {
			switch {
			case r < 0 || int(r) >= p.ranks:
				return nil, fmt.Errorf("local task %d of process %d is rank %d (task_rank), but there are %d ranks", task, process, r, p.ranks)
			case p.of[r] >= 0:
				return nil, fmt.Errorf("rank %d lives in process %d and in process %d (task_rank)", r, p.of[r], process)
			}
			p.of[r] = int32(process)
		}
	}
	if local[0][0] != 0 {
		return nil, errors.New("rank 0 is not the local task 0 of process 0 (task_rank), where the job is led from")
	}
	return p, nil
}

// Ranks is how many there are.
func (p *Places) Ranks() int { return p.ranks }

// Several tells whether some process has more than one rank.
func (p *Places) Several() bool { return p.of != nil }

// Process is where a rank lives; -1 for one that there is not.
func (p *Places) Process(rank int) int {
	switch {
	case rank < 0 || rank >= p.ranks:
		return -1
	case p.of == nil:
		return rank
	}
	return int(p.of[rank])
}

// Of are the ranks of a process.
func (p *Places) Of(process int) []int32 {
	if p.of == nil {
		return []int32{int32(process)}
	}
	return p.local[process]
}

// A message from rank to rank begins with the two, as varints.

func appendEnvelope(from, to int, payload []byte) []byte {
	b := binary.AppendUvarint(make([]byte, 0, 2*binary.MaxVarintLen32+len(payload)), uint64(from))
	return append(binary.AppendUvarint(b, uint64(to)), payload...)
}

// opened takes a message of another process out of its envelope.
func (w *Clock) opened(process int, b []byte) (from int32, to *task, payload []byte, err error) {
	number := func() int {
		v, n := binary.Uvarint(b)
		if n <= 0 || v >= uint64(w.places.ranks) {
			return -1
		}
		b = b[n:]
		return int(v)
	}
	from = int32(number())
	if from < 0 || w.places.Process(int(from)) != process {
		return 0, nil, nil, fmt.Errorf("a message of rank %d, which does not live there", from)
	}
	rank := number()
	if to = w.by[int32(rank)]; to == nil {
		return 0, nil, nil, fmt.Errorf("a message to rank %d, which does not live here", rank)
	}
	return from, to, b, nil
}
