// SPDX-License-Identifier: Apache-2.0

package vid

import (
	"cmp"
	"fmt"
	"slices"
)

// Rebuild makes every object again after Load: it calls make once for each live object that has a
// descriptor, in the sequence that the package comment describes, and stores the real handle it
// returns. real is the present handle of a predefined object, 0 for others. make may call Descriptor,
// Find, Real, SetComm and Name. The first error ends it; the tables are of no use then.
func (t *Tables) Rebuild(make func(k Kind, id ID, desc []byte, real uint64) (uint64, error)) error {
	t.mu.Lock()
	plan, err := t.plan()
	t.mu.Unlock()
	if err != nil {
		return err
	}
	for _, o := range plan {
		t.mu.Lock()
		s := t.mem.slot(o.id)
		old := s.real
		t.mu.Unlock()
		real, err := make(o.id.Kind(), o.id, o.desc, old)
		if err != nil {
			return fmt.Errorf("vid: cannot make %v %#x again: %w", o.id.Kind(), uint32(o.id), err)
		}
		t.mu.Lock()
		t.setReal(o.id, s, real)
		t.mu.Unlock()
	}
	return nil
}

// plan puts the objects to rebuild into sequence.
func (t *Tables) plan() ([]*object, error) {
	levels, err := t.levels()
	if err != nil {
		return nil, err
	}
	var plan []*object
	for _, o := range t.objects {
		if o.live && o.desc != nil {
			plan = append(plan, o)
		}
	}
	// step 0: local, needs nothing collective; 1: collective; 2: local, needs collective ones.
	step := func(o *object) int {
		switch {
		case o.order != 0:
			return 1
		case levels[o.id].level == 0:
			return 0
		}
		return 2
	}
	slices.SortFunc(plan, func(x, y *object) int {
		sx := step(x)
		if c := cmp.Compare(sx, step(y)); c != 0 {
			return c
		}
		if sx == 1 {
			return cmp.Or(cmp.Compare(levels[x.id].level, levels[y.id].level),
				cmp.Compare(x.order, y.order), cmp.Compare(x.seq, y.seq))
		}
		return cmp.Or(cmp.Compare(levels[x.id].depth, levels[y.id].depth), cmp.Compare(x.seq, y.seq))
	})
	return plan, nil
}

// place is where an object stands in the graph of needs.
type place struct {
	level int // collective objects on the longest chain of needs, itself included
	depth int // objects on the longest chain of needs
}

// levels computes the place of every object, without recursion: chains may be long.
func (t *Tables) levels() (map[ID]place, error) {
	places := make(map[ID]place, len(t.objects))
	open := make(map[ID]bool)
	for root := range t.objects {
		todo := []ID{root}
		for len(todo) > 0 {
			id := todo[len(todo)-1]
			o := t.objects[id]
			if _, done := places[id]; done || o == nil { // nil: a predefined object without a record
				todo = todo[:len(todo)-1]
				continue
			}
			p, waits := place{}, false
			for _, n := range o.needs {
				if t.objects[n] == nil {
					continue
				}
				q, done := places[n]
				if !done {
					if open[n] {
						return nil, fmt.Errorf("vid: %v %#x and %v %#x need each other", id.Kind(), uint32(id), n.Kind(), uint32(n))
					}
					todo = append(todo, n)
					waits = true
				}
				p.level, p.depth = max(p.level, q.level), max(p.depth, q.depth+1)
			}
			if waits {
				open[id] = true
				continue
			}
			if o.order != 0 {
				p.level++
			}
			places[id] = p
			delete(open, id)
			todo = todo[:len(todo)-1]
		}
	}
	return places, nil
}
