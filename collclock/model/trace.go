// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
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
	// Of a job: how many calls each rank had made, and how many of them had returned, on each clock when
	// its counters were read. The code sees none of those, so the trace does not tell when they were
	// made. Nil when it tells all.
	calls, returns []int
}

// NewTrace translates what the machines of one run of the program have traced.
func NewTrace(p *scenario.Program, recorded []collclock.TraceEvent) *Trace {
	t := &Trace{}
	for _, e := range recorded {
		clock := slices.IndexFunc(clocks(p), func(c scenario.Comm) bool { return c.ID == e.Clock })
		t.add(p, e.Kind, e.Rank, clock, int(e.Value))
	}
	return t
}

// add appends a step, unless the model does not have it. clock is -1 for one that the program does not
// use.
func (t *Trace) add(p *scenario.Program, kind collclock.TraceKind, rank, clock, value int) {
	event := slices.Index(events, kind)
	if event < 0 {
		return
	}
	step := [4]int{event, rank, 0, 0}
	switch kind {
	case collclock.TraceStop:
		if rank != 0 {
			return // the model says it once
		}
	case collclock.TraceSnapshot, collclock.TraceReady, collclock.TraceClean, collclock.TraceResume:
	default:
		if clock < 0 {
			return
		}
		if kind == collclock.TraceCreate && clocks(p)[clock].Parent == "" {
			return // exists from the start in the model
		}
		step[2], step[3] = clock, value
	}
	switch kind {
	case collclock.TraceGo, collclock.TraceRipe, collclock.TraceFreeze:
		step[1] = 0 // the home, whichever rank that is
	}
	t.steps = append(t.steps, step)
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
// with one, only the next of the trace is, and those that it does not tell of; the assertion fails (so
// that Spin tells) when the last one was taken. The arrays never change, so they are not part of the
// state.
func (t *Trace) header() (header, fill string) {
	var b, f strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for n, kind := range events {
		line("#define EV_%s %d", strings.ToUpper(kind.String()), n)
	}
	if t == nil {
		line("#define NEXT(e, r, g, v) true\n#define ADV(e, r, g, v) skip\n#define COUNTED(r, g)")
		return b.String(), ""
	}
	n := len(t.steps)
	line("hidden byte TE[%d], TR[%d], TG[%d], TV[%d];\nshort ti;", n, n, n, n)
	line("#define TOLD(e, r, g, v) (ti < %d && TE[ti] == (e) && TR[ti] == (r) && TG[ti] == (g) && TV[ti] == (v))", n)
	if t.calls == nil {
		line("#define NEXT(e, r, g, v) TOLD(e, r, g, v)\n#define ADV(e, r, g, v) ti++\n#define COUNTED(r, g)")
	} else {
		line("hidden byte TC[N * G], TD[N * G];")
		line("#define UNTOLD(e, r, g, v) (left[r] || ((e) == EV_CALL || (e) == EV_ENTER) && (v) <= TC[I(r, g)] || (e) == EV_RETURN && (v) <= TD[I(r, g)])")
		line("#define NEXT(e, r, g, v) (UNTOLD(e, r, g, v) || TOLD(e, r, g, v))")
		line("#define ADV(e, r, g, v) if :: UNTOLD(e, r, g, v) -> skip :: else -> ti++ fi")
		line("#define COUNTED(r, g) && CALL[I(r, g)] == TC[I(r, g)] && RET[I(r, g)] == TD[I(r, g)]")
		for i := range t.calls {
			fmt.Fprintf(&f, "    TC[%d] = %d; TD[%d] = %d;\n", i, t.calls[i], i, t.returns[i])
		}
	}
	line("active proctype acceptor() { ti == %d; assert(false) }", n)
	for i, s := range t.steps {
		fmt.Fprintf(&f, "    TE[%d] = %d; TR[%d] = %d; TG[%d] = %d; TV[%d] = %d;\n", i, s[0], i, s[1], i, s[2], i, s[3])
	}
	return b.String(), f.String()
}
