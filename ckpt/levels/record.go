// SPDX-License-Identifier: Apache-2.0

package levels

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Record is what a manifest says of the files that are not in the shared directory.
type Record struct {
	Done []int  `json:"done"` // levels that are complete, ascending; the first is Local
	Set  string `json:"set"`
	// Local is the local directory that rank 0 was given, for messages.
	Local  string    `json:"local"`
	Nodes  []Node    `json:"nodes"`
	Groups int       `json:"groups"`
	Failed []Failure `json:"failed,omitempty"` // levels that it could not be raised to
	Took   []Took    `json:"took,omitempty"`   // what it was raised to, in that order
	// Lost is read only: why the epoch cannot be had any more, which is in the manifest itself by now.
	Lost string `json:"lost,omitempty"`
}

// Node is where files were written first.
type Node struct {
	Name   string  `json:"name"`
	Group  int     `json:"group"`
	Files  []File  `json:"files"`
	Copies string  `json:"copies,omitempty"` // the node with copies of these files, from Partner on
	Parity *Parity `json:"parity,omitempty"` // on this node, from Coded on
}

// File is one of an epoch.
type File struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Parity is a file that was computed from all files of a group.
type Parity struct {
	File
	Index  int    `json:"index"`
	Digest string `json:"digest"` // of the file: "blake3:" and hexadecimal digits
}

// Failure is a level that an epoch was not raised to.
type Failure struct {
	Level int    `json:"level"`
	Why   string `json:"why"`
}

// Took is how long raising to a level took.
type Took struct {
	Level   int     `json:"level"`
	Seconds float64 `json:"seconds"`
}

// NewRecord describes an epoch whose files are where they were written. files is in the order of the processes.
func NewRecord(l *Layout, set, local string, files []File) *Record {
	r := &Record{Done: []int{Local}, Set: set, Local: local, Groups: len(l.Groups)}
	for n, name := range l.Names {
		g, _ := l.GroupOf(n)
		node := Node{Name: name, Group: g}
		for _, p := range l.Processes(n) {
			node.Files = append(node.Files, files[p])
		}
		r.Nodes = append(r.Nodes, node)
	}
	return r
}

// Level is the highest complete level.
func (r *Record) Level() int { return Highest(r.Done) }

// Has tells whether a level is complete.
func (r *Record) Has(level int) bool { return slices.Contains(r.Done, level) }

// ParityOf is the parity of that name; nil: there is none.
func (r *Record) ParityOf(name string) *Parity {
	for i := range r.Nodes {
		if p := r.Nodes[i].Parity; p != nil && p.Name == name {
			return p
		}
	}
	return nil
}

// Clone is a copy that shares nothing that changes.
func (r *Record) Clone() *Record {
	c := *r
	c.Done, c.Nodes, c.Failed = slices.Clone(r.Done), slices.Clone(r.Nodes), slices.Clone(r.Failed)
	c.Took = slices.Clone(r.Took)
	return &c
}

// Complete notes that a level is.
func (r *Record) Complete(level int) {
	r.Failed = slices.DeleteFunc(r.Failed, func(f Failure) bool { return f.Level == level })
	if !r.Has(level) {
		r.Done = append(r.Done, level)
		slices.Sort(r.Done)
	}
}

// Fail notes why a level is not.
func (r *Record) Fail(level int, why string) {
	r.Failed = slices.DeleteFunc(r.Failed, func(f Failure) bool { return f.Level == level })
	r.Failed = append(r.Failed, Failure{level, why})
}

// Members are the nodes of a group, in order.
func (r *Record) Members(group int) (list []int) {
	for n := range r.Nodes {
		if r.Nodes[n].Group == group {
			list = append(list, n)
		}
	}
	return list
}

// bytes is how long the files of a node are together.
func (n *Node) bytes() (sum int64) {
	for _, f := range n.Files {
		sum += f.Bytes
	}
	return sum
}

// shard is the length of each shard of a group: that of its largest node.
func (r *Record) shard(group int) (most int64) {
	for _, n := range r.Members(group) {
		most = max(most, r.Nodes[n].bytes())
	}
	return most
}

// ParityName names the parity with that index, of a group.
func ParityName(group, index int) string { return fmt.Sprintf("parity-%d-%d.rs", group, index) }

// Check says what is wrong with a record.
func (r *Record) Check() error {
	switch {
	case !validSet(r.Set):
		return fmt.Errorf("%q is not the name of a set of local files", r.Set)
	case len(r.Done) == 0 || r.Done[0] != Local || r.Done[len(r.Done)-1] > Shared || !slices.IsSorted(r.Done) ||
		len(slices.Compact(slices.Clone(r.Done))) != len(r.Done):
		return fmt.Errorf("levels %v", r.Done)
	case len(r.Nodes) == 0 || r.Groups < 1 || r.Groups > len(r.Nodes):
		return fmt.Errorf("%d nodes in %d groups", len(r.Nodes), r.Groups)
	}
	seen, names := map[string]bool{}, map[string]bool{}
	count := make([]int, r.Groups)
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if n.Name == "" || names[n.Name] || n.Group < 0 || n.Group >= r.Groups {
			return fmt.Errorf("node %d: %q in group %d", i, n.Name, n.Group)
		}
		names[n.Name] = true
		if err := n.check(count[n.Group], r.Has(Coded), seen); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		if count[n.Group]++; count[n.Group] > MaxGroup {
			return fmt.Errorf("group %d has more than %d nodes", n.Group, MaxGroup)
		}
	}
	for g, members := range count {
		if members == 0 {
			return fmt.Errorf("group %d has no node", g)
		}
	}
	return nil
}

// check wants files with names of their own, and a parity where there must be one.
func (n *Node) check(index int, coded bool, seen map[string]bool) error {
	for _, f := range n.Files {
		if !validFile(f.Name) || seen[f.Name] || f.Bytes <= 0 || n.bytes() < 0 {
			return fmt.Errorf("file %q of %d bytes", f.Name, f.Bytes)
		}
		seen[f.Name] = true
	}
	if len(n.Files) == 0 {
		return errors.New("it has no files")
	}
	p := n.Parity
	switch {
	case p == nil && coded:
		return errors.New("it has no parity")
	case p != nil && (p.Index != index || p.Name != ParityName(n.Group, index) || p.Bytes <= 0 || !strings.HasPrefix(p.Digest, digestPrefix)):
		return fmt.Errorf("parity %+v", *p)
	}
	return nil
}

const digestPrefix = "blake3:"
