// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/libckpt/libckpt/collclock"
)

type opKind uint8

const (
	opCompute opKind = iota
	opColl           // on communicator arg
	opSend           // to rank arg
	opRecv           // from the ring neighbour
)

type op struct {
	kind opKind
	arg  int
}

type comm struct {
	id    collclock.ID
	group collclock.Group
}

// job is what all ranks do. A rank repeats a few operations for ever.
type job struct {
	ranks int
	comms []comm
	prog  [][]op
	of    [][]int // communicators of each rank
}

func (j *job) op(r, i int) op { return j.prog[r][i%len(j.prog[r])] }

// add makes a communicator and returns its index.
func (j *job) add(members []int32) int {
	n := len(j.comms)
	c := comm{group: collclock.Members(members), id: collclock.Child(collclock.World(), uint64(n+1), collclock.CreateSplit, members)}
	if len(members) == j.ranks {
		c = comm{group: collclock.Everybody(j.ranks), id: collclock.World()}
	}
	j.comms = append(j.comms, c)
	for _, r := range members {
		j.of[r] = append(j.of[r], n)
	}
	return n
}

// blocks cuts the ranks, in the given order, into communicators of size n.
func (j *job) blocks(order []int32, n int) []int {
	index := make([]int, j.ranks)
	for at := 0; at < len(order); at += n {
		c := j.add(order[at:min(at+n, len(order))])
		for _, r := range order[at:min(at+n, len(order))] {
			index[r] = c
		}
	}
	return index
}

// right is the next member of a rank in a communicator.
func (j *job) right(c, r int) int {
	g := j.comms[c].group
	return int(g.Rank((g.Index(int32(r)) + 1) % g.Size()))
}

func newJob(pattern string, ranks int, seed uint64) (*job, error) {
	j := &job{ranks: ranks, prog: make([][]op, ranks), of: make([][]int, ranks)}
	order := make([]int32, ranks)
	for i := range order {
		order[i] = int32(i)
	}
	switch pattern {
	case "world":
		w := j.add(order)
		for r := range ranks {
			j.prog[r] = []op{{opCompute, 0}, {opColl, w}}
		}
	case "grid":
		side := int(math.Sqrt(float64(ranks)))
		if side*side != ranks {
			return nil, fmt.Errorf("pattern grid needs a square number of ranks, not %d", ranks)
		}
		row := j.blocks(order, side)
		turned := make([]int32, ranks)
		for i := range turned {
			turned[i] = int32(i%side*side + i/side)
		}
		col := j.blocks(turned, side)
		for r := range ranks {
			j.prog[r] = []op{{opCompute, 0}, {opColl, row[r]}, {opCompute, 0}, {opColl, col[r]}}
		}
	case "nested", "nestedx":
		g8, g64, g1024 := j.blocks(order, 8), j.blocks(order, 64), j.blocks(order, 1024)
		if ranks <= 64 {
			g1024 = g64
			j.comms, j.of = j.comms[:len(j.comms)-1], dropLast(j.of)
		}
		mixed := append([]int32(nil), order...)
		rand.New(rand.NewPCG(seed, 2)).Shuffle(ranks, func(a, b int) { mixed[a], mixed[b] = mixed[b], mixed[a] })
		cross := j.blocks(mixed, 16)
		ring := g8
		if pattern == "nestedx" {
			ring = cross
		}
		for r := range ranks {
			exchange := []op{{opSend, j.right(ring[r], r)}, {opRecv, 0}, {opCompute, 0}}
			for i, c := range []int{g8[r], cross[r], g8[r], g64[r], g8[r], cross[r], g8[r], g1024[r]} {
				if i%2 == 0 {
					j.prog[r] = append(j.prog[r], exchange...)
				}
				j.prog[r] = append(j.prog[r], op{opColl, c})
			}
		}
	default:
		return nil, fmt.Errorf("no pattern %q: world, grid, nested or nestedx", pattern)
	}
	return j, nil
}

func dropLast(of [][]int) [][]int {
	for i := range of {
		of[i] = of[i][:len(of[i])-1]
	}
	return of
}
