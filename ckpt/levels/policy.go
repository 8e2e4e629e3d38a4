// SPDX-License-Identifier: Apache-2.0

package levels

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The levels.
const (
	Local   = 1
	Partner = 2
	Coded   = 3
	Shared  = 4
)

// Policy says which epochs are raised to which level: Policy[l] is n when every n-th one is raised to level l, 0 when
// none is. Policy[Local] is 1.
type Policy [Shared + 1]int

// DefaultPolicy is what holds when only a local directory is given.
const DefaultPolicy = "L1:every,L2:4,L3:8,L4:32"

// maxEvery bounds the numbers of a policy: larger ones are mistakes.
const maxEvery = 1_000_000

// ParsePolicy reads a list such as L1:every,L2:4,L3:8,L4:32.
func ParsePolicy(text string) (Policy, error) {
	var p Policy
	for _, item := range strings.Split(text, ",") {
		name, often, ok := strings.Cut(item, ":")
		level, err := strconv.Atoi(strings.TrimPrefix(name, "L"))
		if !ok || !strings.HasPrefix(name, "L") || err != nil || level < Local || level > Shared || len(name) != 2 {
			return p, fmt.Errorf("%q is not a level from L1 to L4 and how often, such as L2:4 or L4:every", item)
		}
		if p[level] != 0 {
			return p, fmt.Errorf("level L%d is there twice", level)
		}
		n := 1
		if often != "every" {
			n, err = strconv.Atoi(often)
			if err != nil || n < 1 || n > maxEvery {
				return p, fmt.Errorf("%q: %q is neither \"every\" nor a number from 1 to %d: L%d:4 means every fourth epoch", item, often, maxEvery, level)
			}
		}
		p[level] = n
	}
	if p[Local] != 1 {
		return p, fmt.Errorf("%q: every epoch is at level 1 first: it begins with L1:every", text)
	}
	return p, nil
}

// String is the text that ParsePolicy reads.
func (p Policy) String() string {
	var items []string
	for level := Local; level <= Shared; level++ {
		switch p[level] {
		case 0:
		case 1:
			items = append(items, fmt.Sprintf("L%d:every", level))
		default:
			items = append(items, fmt.Sprintf("L%d:%d", level, p[level]))
		}
	}
	return strings.Join(items, ",")
}

// Due lists the levels above the first to which the epoch is to be raised, lowest first. last: the job ends after it,
// so it is raised as far as the policy goes.
func (p Policy) Due(epoch int, last bool) []int {
	var due []int
	for level := Partner; level <= Shared; level++ {
		if p[level] > 0 && (last || epoch%p[level] == 0) {
			due = append(due, level)
		}
	}
	return due
}

// For is the policy on so many nodes: partners and codes need two. dropped are the levels that are left out.
func (p Policy) For(nodes int) (_ Policy, dropped []int) {
	if nodes > 1 {
		return p, nil
	}
	for _, level := range []int{Partner, Coded} {
		if p[level] > 0 {
			p[level] = 0
			dropped = append(dropped, level)
		}
	}
	return p, dropped
}

// Highest is the highest of some levels; Local when there are none.
func Highest(done []int) int {
	if len(done) == 0 {
		return Local
	}
	return slices.Max(done)
}
