// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"math/rand/v2"
)

// RandomProgram makes a program that cannot deadlock: all operations have one global order, and each
// rank does its part of them in that order. Waiting for requests comes at any later place.
func RandomProgram(seed uint64) *Program {
	rng := rand.New(rand.NewPCG(seed, 77))
	n := 2 + rng.IntN(5)
	p := &Program{}
	must(p.line(fmt.Sprintf("ranks %d", n)))
	for i := range 1 + rng.IntN(3) {
		if members := subset(rng, everybody(n)); len(members) > 1 {
			_, err := p.declare("", fmt.Sprintf("C%d", i), members, false)
			must(err)
		}
	}
	ops := make([][]Op, n)
	open := make([][]string, n) // requests not waited for
	freed := map[string]bool{}
	for event := range 6 + rng.IntN(14) {
		c := p.Comms[rng.IntN(len(p.Comms))]
		all := func(o Op) {
			for _, r := range c.Members {
				ops[r] = append(ops[r], o)
			}
		}
		if freed[c.Name] {
			continue
		}
		switch rng.IntN(12) {
		case 0, 1, 2:
			all(Op{Verb: Coll, Comm: c.Name})
		case 3:
			all(Op{Verb: Bcast, Comm: c.Name, Peer: int(c.Members[rng.IntN(len(c.Members))])})
		case 4, 5:
			q := fmt.Sprintf("q%d", event)
			all(Op{Verb: Icoll, Comm: c.Name, Request: q})
			for _, r := range c.Members {
				open[r] = append(open[r], q)
			}
		case 6:
			name := fmt.Sprintf("M%d", event)
			if members := subset(rng, c.Members); len(members) > 1 {
				_, err := p.declare(c.Name, name, members, false)
				must(err)
				all(Op{Verb: Make, Comm: c.Name, New: name, Members: members})
			}
		case 7:
			name := fmt.Sprintf("G%d", event)
			if members := subset(rng, c.Members); len(members) > 1 {
				_, err := p.declare(c.Name, name, members, true)
				must(err)
				for _, r := range members {
					ops[r] = append(ops[r], Op{Verb: Group, Comm: c.Name, New: name, Members: members})
				}
			}
		case 8:
			if c.Name != "W" {
				for _, r := range c.Members { // its requests must be complete
					for _, q := range open[r] {
						ops[r] = append(ops[r], Op{Verb: Wait, Request: q})
					}
					open[r] = nil
				}
				all(Op{Verb: Free, Comm: c.Name})
				freed[c.Name] = true
			}
		case 9:
			all(Op{Verb: Gated, Comm: c.Name})
		default:
			from, to := rng.IntN(n), rng.IntN(n)
			if from != to {
				verb := []Verb{Send, Ssend}[rng.IntN(2)]
				ops[from] = append(ops[from], Op{Verb: verb, Peer: to})
				ops[to] = append(ops[to], Op{Verb: Recv, Peer: from})
			}
		}
		if r := rng.IntN(n); len(open[r]) > 0 && rng.IntN(3) == 0 {
			ops[r] = append(ops[r], Op{Verb: Wait, Request: open[r][0]})
			open[r] = open[r][1:]
		}
	}
	for r := range n {
		for _, q := range open[r] {
			ops[r] = append(ops[r], Op{Verb: Wait, Request: q})
		}
		p.Threads = append(p.Threads, Thread{Rank: r, Ops: ops[r]})
	}
	return p
}

func everybody(n int) []int32 {
	all := make([]int32, n)
	for i := range all {
		all[i] = int32(i)
	}
	return all
}

func subset(rng *rand.Rand, of []int32) []int32 {
	var some []int32
	for _, r := range of {
		if rng.IntN(3) > 0 {
			some = append(some, r)
		}
	}
	rng.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	return some
}

// must is for programs that this file writes itself.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
