// SPDX-License-Identifier: Apache-2.0

package collclock

import "encoding/binary"

// Arity of all trees: 4 children keep a tree over 65,536 ranks eight hops deep.
const arity = 4

// Group is an ordered set of world ranks. The zero Group is empty.
type Group struct {
	size  int
	ranks []int32 // nil: rank i is member i
}

// Everybody is the group of the ranks 0 to n-1.
func Everybody(n int) Group { return Group{size: n} }

// Members is a group of these world ranks, in this order. The group keeps the slice, which must not change.
func Members(ranks []int32) Group { return Group{size: len(ranks), ranks: ranks} }

// Size is the number of members.
func (g Group) Size() int { return g.size }

// Rank is the world rank of member i.
func (g Group) Rank(i int) int32 {
	if g.ranks == nil {
		return int32(i)
	}
	return g.ranks[i]
}

// Index is the position of a world rank, or -1.
func (g Group) Index(rank int32) int {
	if g.ranks == nil {
		if rank >= 0 && int(rank) < g.size {
			return int(rank)
		}
		return -1
	}
	for i, r := range g.ranks {
		if r == rank {
			return i
		}
	}
	return -1
}

// Home is the member that collects what the others know about a clock. The home follows from the identity,
// which spreads the homes of many communicators over the ranks.
func (g Group) Home(id ID) int {
	return int(binary.LittleEndian.Uint64(id[8:]) % uint64(g.size))
}

// place is where one member stands in a tree over its group.
type place struct {
	parent   int32 // world rank; -1 at the root
	children []int32
}

// tree places member me in the 4-ary tree over g whose root is member root.
func tree(g Group, root, me int) place {
	at := me - root // position counted from the root
	if at < 0 {
		at += g.size
	}
	rankAt := func(p int) int32 { return g.Rank((p + root) % g.size) }
	p := place{parent: -1}
	if at > 0 {
		p.parent = rankAt((at - 1) / arity)
	}
	first, last := arity*at+1, min(arity*at+arity, g.size-1)
	if first <= last {
		p.children = make([]int32, 0, last-first+1)
		for c := first; c <= last; c++ {
			p.children = append(p.children, rankAt(c))
		}
	}
	return p
}

// childIndex is the position of rank among the children, or -1.
func (p *place) childIndex(rank int32) int {
	for i, c := range p.children {
		if c == rank {
			return i
		}
	}
	return -1
}
