// SPDX-License-Identifier: Apache-2.0

package scenario

import "fmt"

// Explored is the outcome of an exhaustive search.
type Explored struct {
	States   int
	Complete bool // every state was seen; otherwise the search stopped at its limit
	Err      error
	Path     []string // how to get to the error
}

// Explore takes every possible step in every reachable state, up to limit states.
func Explore(p *Program, m Maker, opt Options, limit int) Explored {
	type node struct {
		w    *World
		list []choice
		next int
	}
	var res Explored
	first := New(p, m, opt)
	seen := map[uint64]struct{}{first.Fingerprint(): {}}
	stack := []node{{w: first, list: first.choices(nil)}}
	fail := func(err error) Explored {
		res.Err, res.States = err, len(seen)
		w := New(p, m, opt)
		w.log = func(format string, args ...any) { res.Path = append(res.Path, fmt.Sprintf(format, args...)) }
		for _, n := range stack {
			if n.next > 0 && w.take(n.list[n.next-1]) != nil {
				break
			}
		}
		return res
	}
	if len(stack[0].list) == 0 {
		return fail(first.ended())
	}
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		if top.next == len(top.list) {
			stack = stack[:len(stack)-1]
			continue
		}
		c := top.list[top.next]
		top.next++
		w := top.w
		if top.next < len(top.list) {
			w = top.w.Clone()
		}
		if err := w.take(c); err != nil {
			return fail(err)
		}
		key := w.Fingerprint()
		if _, old := seen[key]; old {
			continue
		}
		seen[key] = struct{}{}
		list := w.choices(nil)
		if len(list) == 0 {
			stack = append(stack, node{w: w})
			if err := w.ended(); err != nil {
				return fail(err)
			}
			stack = stack[:len(stack)-1]
			continue
		}
		if len(seen) >= limit {
			res.States = len(seen)
			return res
		}
		stack = append(stack, node{w: w, list: list})
	}
	res.States, res.Complete = len(seen), true
	return res
}
