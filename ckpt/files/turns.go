// SPDX-License-Identifier: Apache-2.0

package files

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"
)

// Tell is what a process tells the others of its changes: those of names and content of what was there at the epoch; and, as soon as it is known
// what others tell, those of names of what was made since, if they are about the same files or folders. others is nil the first time.
func Tell(mine []Change, others [][]Change) (list []Change) {
	at, below := map[string]bool{}, map[string]bool{}
	for _, o := range others {
		for i := range o {
			for _, path := range o[i].paths() {
				at[path] = true
				for d := filepath.Dir(path); d != "/" && !below[d]; d = filepath.Dir(d) {
					below[d] = true
				}
			}
		}
	}
	touches := func(path string) bool {
		path = filepath.Clean(path)
		if below[path] {
			return true
		}
		for ; path != "/"; path = filepath.Dir(path) {
			if at[path] {
				return true
			}
		}
		return false
	}
	for i := range mine {
		c := mine[i]
		c.Pos = i
		if c.old() == (others == nil) && (c.old() || touches(c.Path)) {
			list = append(list, c)
		}
	}
	return list
}

// Plan is how the processes of a job undo their changes together.
type Plan struct {
	// N is how many turns there are. A process undoes its changes of a turn, the last first, when all processes are through with the turn before: one
	// may have renamed what another has written to. A change that is not told has the turn of the next one of its process that is.
	N     int
	turns []map[int]int
	told  []map[int]*Change
	known map[Which]bool
}

// Turn is the turn of a told change of a process, which is as it is to be undone then: where a file was appended to before its content was kept, it says how
// much of that is to be put back. turn is -1 if another process has an older content of the file; told tells whether it was told.
func (p *Plan) Turn(rank, pos int) (c *Change, turn int, told bool) {
	turn, told = p.turns[rank][pos]
	return p.told[rank][pos], turn, told
}

// Knows tells whether the content of a file will be as it was: nothing has to be cut off then.
func (p *Plan) Knows(w Which) bool { return p.known[w] }

// NewPlan makes the plan, the same one in each process, of what each has told.
func NewPlan(all [][]Change) *Plan {
	p := &Plan{turns: make([]map[int]int, len(all)), told: make([]map[int]*Change, len(all)), known: map[Which]bool{}}
	oldest, grown := map[string]*Change{}, map[string]*Change{}
	for r := range all {
		p.turns[r], p.told[r] = map[int]int{}, map[int]*Change{}
		slices.SortFunc(all[r], func(a, b Change) int { return cmp.Compare(a.Pos, b.Pos) })
		for i := range all[r] {
			c := &all[r][i]
			p.told[r][c.Pos] = c
			if o := oldest[c.file(r)]; c.content() && (o == nil || c.before(o)) {
				oldest[c.file(r)] = c
			}
			if o := grown[c.file(0)]; c.Kind == spoiltGrows && (o == nil || c.before(o)) {
				grown[c.file(0)] = c
			}
		}
	}
	shorten := func(c *Change) {
		if o := grown[c.file(0)]; o != nil && o.before(c) && o.Size <= c.Size {
			c.Whole, c.Size, c.Modified = c.Size, o.Size, o.Modified
		}
	}
	for _, c := range oldest {
		p.known[c.which()] = true
		shorten(c)
	}
	for r := range all {
		for i := range all[r] {
			if c := &all[r][i]; c.Kind == spoiltName { // what has its name again by a link is cut
				shorten(c)
			}
		}
	}
	type entry struct {
		rank, i int
		at      int64
	}
	var order []entry
	for r := range all {
		at := int64(math.MaxInt64)
		for i := len(all[r]) - 1; i >= 0; i-- {
			c := &all[r][i]
			at = min(at, c.At) // a process knows the order of its own better than clocks do
			if c.content() && oldest[c.file(r)] != c {
				p.turns[r][c.Pos] = -1
				continue
			}
			order = append(order, entry{r, i, at})
		}
	}
	slices.SortStableFunc(order, func(a, b entry) int { return cmp.Compare(b.at, a.at) })
	at, below := map[string]touched{}, map[string]touched{}
	own := make([]int, len(all))
	for _, e := range order {
		c := &all[e.rank][e.i]
		turn := own[e.rank]
		paths := c.paths()
		for _, path := range paths {
			turn = max(turn, at[path].next(e.rank), below[path].next(e.rank))
			for d := filepath.Dir(path); d != "/"; d = filepath.Dir(d) {
				turn = max(turn, at[d].next(e.rank))
			}
		}
		for _, path := range paths {
			at[path] = at[path].with(turn, e.rank)
			for d := filepath.Dir(path); d != "/"; d = filepath.Dir(d) {
				below[d] = below[d].with(turn, e.rank)
			}
		}
		own[e.rank], p.turns[e.rank][c.Pos] = turn, turn
		p.N = max(p.N, turn+1)
	}
	return p
}

// paths are the names that it is about.
func (c *Change) paths() []string {
	if c.New == "" {
		return []string{filepath.Clean(c.Path)}
	}
	return []string{filepath.Clean(c.Path), filepath.Clean(c.New)}
}

// file is the file that it is about, equal in all processes where the file system says when it was made. Elsewhere files of several
// nodes may have the same number: then each process puts back what it knows, and the oldest comes last.
func (c *Change) file(rank int) string {
	if c.Born != 0 {
		return fmt.Sprint(c.Ino, " ", c.Born)
	}
	return fmt.Sprint(c.Ino, " ", rank, " ", c.Path)
}

func (c *Change) which() Which {
	if c.Born == 0 {
		return Which{Ino: c.Ino}
	}
	at := time.Unix(0, c.Born)
	return Which{Ino: c.Ino, Seconds: at.Unix(), Nanos: uint32(at.Nanosecond())}
}

// touched is the last turn of what is done to a path, and who does it: a rank and 1, or -1 for several.
type touched struct{ turn, who int }

// next is the first turn in which a process may do something to the path.
func (t touched) next(rank int) int {
	if t.who == 0 || t.who == rank+1 {
		return t.turn
	}
	return t.turn + 1
}

func (t touched) with(turn, rank int) touched {
	switch {
	case t.who == 0 || turn > t.turn:
		return touched{turn, rank + 1}
	case t.turn == turn && t.who != rank+1:
		return touched{turn, -1}
	}
	return t
}
