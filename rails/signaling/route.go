// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"iter"
	"math/bits"
)

// distance is the number of steps between two ranks on a ring of size ranks, by the shorter way.
func distance(a, b, size int) int {
	d := a - b
	if d < 0 {
		d = -d
	}
	return min(d, size-d)
}

// nextHop picks, among the ranks that self has links to, the one nearest to the target. It returns
// false when none is nearer than self, which cannot happen when both links of the ring are up. Every hop
// comes nearer, so no message goes round in circles. Of two ranks that are equally near, the smaller is
// taken, so that the choice does not depend on the order of links.
func nextHop(self, to, size int, links iter.Seq[int]) (int, bool) {
	best, nearest := -1, distance(self, to, size)
	for peer := range links {
		d := distance(peer, to, size)
		if d < nearest || d == nearest && best >= 0 && peer < best {
			best, nearest = peer, d
		}
	}
	return best, best >= 0
}

// ringPeers are the ranks that self has a link to from the start.
func ringPeers(self, size int) []int {
	prev, next := (self+size-1)%size, (self+1)%size
	switch {
	case size == 1:
		return nil
	case prev == next:
		return []int{next}
	}
	return []int{prev, next}
}

// The tree of the collectives is binomial, with root 0. The subtree of v has the ranks v to v+span(v)-1, so
// gathered parts come in rank order.

func treeParent(v int) int { return v & (v - 1) }

func treeChildren(v, size int) []int {
	var c []int
	for k := 1; k < size; k <<= 1 {
		if v&k != 0 {
			break
		}
		if v|k < size {
			c = append(c, v|k)
		}
	}
	return c
}

// treeLast is the last rank of the subtree of v.
func treeLast(v, size int) int {
	if v == 0 {
		return size - 1
	}
	return min(v+1<<bits.TrailingZeros(uint(v)), size) - 1
}
