// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"

	"github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/collclock/scenario"
)

// events are the steps that rcc.pml and the code both know. Steps of the code that are not here are
// no steps of the model: they are parts of others, or of what it leaves out.
var events = []collclock.TraceKind{
	collclock.TraceCall, collclock.TraceEnter, collclock.TraceReturn, collclock.TraceCreate,
	collclock.TraceSnapshot, collclock.TraceGo, collclock.TraceRipe, collclock.TraceReady,
	collclock.TraceFreeze, collclock.TraceClean, collclock.TraceStop, collclock.TraceResume,
}

// Trace is a recorded run of the code, in the terms of rcc.pml.
type Trace struct {
	steps [][4]int // event, rank, clock, value
}

// NewTrace translates what the machines of one run of the program have traced.
func NewTrace(p *scenario.Program, recorded []collclock.TraceEvent) *Trace {
	t := &Trace{}
	for _, e := range recorded {
		for n, kind := range events {
			if e.Kind != kind {
				continue
			}
			step := [4]int{n, e.Rank, 0, 0}
			clock := -1
			for i, c := range clocks(p) {
				if c.ID == e.Clock {
					clock = i
				}
			}
			switch kind {
			case collclock.TraceStop:
				if e.Rank != 0 {
					continue // the model says it once
				}
			case collclock.TraceSnapshot, collclock.TraceReady, collclock.TraceClean, collclock.TraceResume:
			default:
				if clock < 0 {
					continue // a clock that the program does not use
				}
				if kind == collclock.TraceCreate && clocks(p)[clock].Parent == "" {
					continue // exists from the start in the model
				}
				step[2], step[3] = clock, int(e.Value)
			}
			switch kind {
			case collclock.TraceGo, collclock.TraceRipe, collclock.TraceFreeze:
				step[1] = 0 // the home, whichever rank that is
			}
			t.steps = append(t.steps, step)
		}
	}
	return t
}

// Len is the number of steps.
func (t *Trace) Len() int { return len(t.steps) }

// Swap exchanges two steps, Drop leaves one out: for tests that the acceptor can refuse.
func (t *Trace) Swap(i, j int) { t.steps[i], t.steps[j] = t.steps[j], t.steps[i] }

// Drop leaves step i out.
func (t *Trace) Drop(i int) { t.steps = append(t.steps[:i:i], t.steps[i+1:]...) }

// Find is the first step of a kind, or -1.
func (t *Trace) Find(kind collclock.TraceKind) int {
	for i, s := range t.steps {
		if events[s[0]] == kind {
			return i
		}
	}
	return -1
}

// header is trace.h and the statements that fill its arrays. Without a trace every step is allowed;
// with one, only the next of the trace is, and the assertion fails (so that Spin tells) when the last
// one was taken. The arrays never change, so they are not part of the state.
func (t *Trace) header() (header, fill string) {
	var b strings.Builder
	for n, kind := range events {
		fmt.Fprintf(&b, "#define EV_%s %d\n", strings.ToUpper(kind.String()), n)
	}
	if t == nil {
		b.WriteString("#define NEXT(e, r, g, v) true\n#define ADV skip\n")
		return b.String(), ""
	}
	n := len(t.steps)
	fmt.Fprintf(&b, "hidden byte TE[%d], TR[%d], TG[%d], TV[%d];\nshort ti;\n", n, n, n, n)
	fmt.Fprintf(&b, "#define NEXT(e, r, g, v) (ti < %d && TE[ti] == (e) && TR[ti] == (r) && TG[ti] == (g) && TV[ti] == (v))\n", n)
	fmt.Fprintf(&b, "#define ADV ti++\nactive proctype acceptor() { ti == %d; assert(false) }\n", n)
	var f strings.Builder
	for i, s := range t.steps {
		fmt.Fprintf(&f, "    TE[%d] = %d; TR[%d] = %d; TG[%d] = %d; TV[%d] = %d;\n", i, s[0], i, s[1], i, s[2], i, s[3])
	}
	return b.String(), f.String()
}
