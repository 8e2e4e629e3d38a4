// SPDX-License-Identifier: Apache-2.0

package levels

import "fmt"

// Nodes and groups.
const (
	// DefaultGroup is how many nodes share parities when nobody says it.
	DefaultGroup = 4
	// MaxGroup bounds a group: a code has at most 256 shards, two for each node.
	MaxGroup = 128
)

// Layout says on which node each process is, and which nodes are a group.
type Layout struct {
	Names  []string // of the nodes, in the order of their first processes
	Of     []int    // node of each process
	Groups [][]int  // nodes of each group
}

// NewLayout makes groups of g nodes in order. The last group takes the rest, unless that is a single node, which
// joins the group before it.
func NewLayout(names []string, g int) Layout {
	var l Layout
	known := map[string]int{}
	for _, name := range names {
		n, ok := known[name]
		if !ok {
			n = len(l.Names)
			known[name] = n
			l.Names = append(l.Names, name)
		}
		l.Of = append(l.Of, n)
	}
	for n := range l.Names {
		last := len(l.Groups) - 1
		full := last < 0 || len(l.Groups[last]) >= g
		if alone := n == len(l.Names)-1 && last >= 0; full && !alone {
			l.Groups = append(l.Groups, []int{n})
			continue
		}
		l.Groups[last] = append(l.Groups[last], n)
	}
	return l
}

// CheckGroup says whether groups can have so many nodes.
func CheckGroup(g int) error {
	if g < 2 || g >= MaxGroup {
		return fmt.Errorf("%d is not a number of nodes from 2 to %d", g, MaxGroup-1)
	}
	return nil
}

// Leader is the process that works for a node: its first.
func (l *Layout) Leader(node int) int {
	for p, n := range l.Of {
		if n == node {
			return p
		}
	}
	return -1
}

// Processes are those of a node.
func (l *Layout) Processes(node int) (list []int) {
	for p, n := range l.Of {
		if n == node {
			list = append(list, p)
		}
	}
	return list
}

// GroupOf finds a node in its group.
func (l *Layout) GroupOf(node int) (group, index int) {
	for g, nodes := range l.Groups {
		for i, n := range nodes {
			if n == node {
				return g, i
			}
		}
	}
	return -1, -1
}

// Before is the node whose files a node has copies of: the one before it in the group, of which it is the partner.
// -1: it is alone.
func (l *Layout) Before(node int) int {
	g, i := l.GroupOf(node)
	nodes := l.Groups[g]
	if len(nodes) < 2 {
		return -1
	}
	return nodes[(i+len(nodes)-1)%len(nodes)]
}
