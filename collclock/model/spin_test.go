// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/collclock/scenario"
)

const (
	ok       = "ok"
	deadlock = "invalid end state"
	unsafe   = "assertion violated"
	cycle    = "acceptance cycle"
)

// programs that are smaller than in the scenario file, so that all their states fit.
var small = map[string]string{
	"F3": "ranks 3\ncomm X 0 1 2\n0: bcast X 0, free X\n1: bcast X 0, free X\n2: bcast X 0, free X\n",
	"N9": "ranks 2\ncomm C 0 1\n0: object C P, object C Q, start P p, start Q q, wait p, wait q\n" +
		"1: object C P, object C Q, start Q q, start P p, wait p, wait q\n",
	"N17": "ranks 2\ncomm A 0\ncomm B 1\ncomm C 0 1\n" +
		"0: icoll C q, bridge A X 0 1, wait q\n1: bridge B X 0 1, icoll C q, wait q\n",
	"N18":   "ranks 3\ncomm X 0 1 2\n0: bcast X 0, gone X\n1: bcast X 0, gone X\n2: bcast X 0, gone X\n",
	"EARLY": "ranks 3\ncomm C 1 2\n0: bcast W 0, send 1\n1: recv 0, bcast W 0, coll C\n2: coll C, bcast W 0\n",
}

// checks are all verifications: what must hold, and what must fail.
var checks = []struct {
	program, model, defines, want string
}{
	{"F1", "pub.pml", "", deadlock},
	{"F1b", "pub.pml", "", deadlock},
	{"F2", "pub.pml", "", unsafe},
	{"F2b", "pub.pml", "", deadlock},
	{"F3", "pub.pml", "FORGET", unsafe},
	{"F5", "pub.pml", "", ok}, // perfect detection does not need to count messages
	{"F5", "pub.pml", "INFLIGHT", unsafe},
	{"F6", "pub.pml", "", deadlock},
	{"N1", "pub.pml", "", ok},
	{"N1", "pub.pml", "DROP", deadlock},
	{"N2", "pub.pml", "RESET", deadlock},
	{"N3", "pub.pml", "", deadlock},
	{"N7", "pub.pml", "", ok},
	{"N7", "pub.pml", "PARKAFTER", deadlock},
	{"N8b", "pub.pml", "", deadlock},

	{"F1", "rcc.pml", "", ok},
	{"F2", "rcc.pml", "", ok},
	{"F2", "rcc.pml", "ABORT", ok},
	{"F2b", "rcc.pml", "", ok},
	{"F2b", "rcc.pml", "ABORT", ok},
	{"F3", "rcc.pml", "", ok},
	{"F5", "rcc.pml", "", ok},
	{"F6", "rcc.pml", "", ok},
	{"N1", "rcc.pml", "", ok},
	{"N2", "rcc.pml", "", ok},
	{"N3", "rcc.pml", "", ok},
	{"N7", "rcc.pml", "", ok},
	{"N8", "rcc.pml", "", ok},
	{"N8b", "rcc.pml", "", ok},
	{"N9", "rcc.pml", "", ok},
	{"N16", "rcc.pml", "HASTY", deadlock},
	{"N16", "rcc.pml", "", ok},
	{"N17", "rcc.pml", "", ok},
	{"N18", "rcc.pml", "", ok},
	{"N13", "rcc.pml", "EAGER", unsafe},
	{"N13", "rcc.pml", "", ok},
	// A program that is not portable MPI hangs while pending, and goes on when the epoch is given up.
	{"EARLY", "rcc.pml", "", deadlock},
	{"EARLY", "rcc.pml", "ABORT", ok},

	{"", "fence.pml", "FENCE=0", unsafe},
	{"", "fence.pml", "FENCE=1", unsafe},
	{"", "fence.pml", "FENCE=2", ok},
	{"", "fence.pml", "FENCE=3", ok},
	{"", "decide.pml", "FIX=0", unsafe},
	{"", "decide.pml", "FIX=1", ok},
	{"", "lost.pml", "FIX=0", deadlock},
	{"", "lost.pml", "FIX=1", ok},
	{"", "chase.pml", "POLICY=0", cycle},
	{"", "chase.pml", "POLICY=1", ok},
}

func needTools(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"spin", "cc"} {
		if _, err := exec.LookPath(tool); errors.Is(err, exec.ErrNotFound) {
			t.Fatalf("%s is not installed (make setup installs it): the models cannot be checked", tool)
		}
	}
}

func program(t *testing.T, name string) *scenario.Program {
	t.Helper()
	if name == "" {
		return nil
	}
	if text, ok := small[name]; ok {
		p, err := scenario.ParseProgram(text)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	text, err := os.ReadFile("../testdata/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	f, err := scenario.ParseFile(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return f.Program
}

// TestModels searches all states of each model and compares what Spin finds with what must be found.
// A search that was not finished is a failure, whatever was expected.
func TestModels(t *testing.T) {
	needTools(t)
	for _, c := range checks {
		t.Run(strings.Trim(c.program+"."+c.model+"."+c.defines, "."), func(t *testing.T) {
			t.Parallel()
			j := Job{Model: c.model, Program: program(t, c.program), Liveness: c.model == "chase.pml"}
			if c.defines != "" {
				j.Defines = []string{c.defines}
			}
			r, err := j.Check(t.Context(), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states: %s", r.States, r.Verdict())
			if r.Verdict() != c.want {
				t.Errorf("Spin says %q, expected %q\n%s", r.Verdict(), c.want, r.Output)
			}
		})
	}
}

// record runs a program on the code and returns what it did, in the terms of the model.
func record(t *testing.T, p *scenario.Program, seed uint64) *Trace {
	t.Helper()
	var events []collclock.TraceEvent
	maker := scenario.Refined(func(e collclock.TraceEvent) { events = append(events, e) })
	res := scenario.Run(p, maker, scenario.Options{Requests: 1}, seed, false)
	if res.Err != nil || res.Safe != 1 {
		t.Fatalf("seed %d: %d safe states, %v", seed, res.Safe, res.Err)
	}
	return NewTrace(p, events)
}

func accepted(t *testing.T, p *scenario.Program, tr *Trace) bool {
	t.Helper()
	r, err := Job{Model: "rcc.pml", Program: p, Trace: tr}.Check(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if r.Errors == 0 && !r.Complete {
		t.Fatalf("the search was not finished:\n%s", r.Output)
	}
	if r.Errors > 0 && r.Kind != unsafe {
		t.Fatalf("unexpected %s", r.Output)
	}
	return r.Errors > 0
}

// TestTraces records runs of the code and has the model accept them: whatever the code does, the
// model, which was searched completely, can do too.
func TestTraces(t *testing.T) {
	needTools(t)
	for _, name := range []string{"F1", "F2", "F5", "N1", "N3", "N8b"} {
		for seed := range uint64(2) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := program(t, name)
				tr := record(t, p, seed)
				if !accepted(t, p, tr) {
					t.Errorf("seed %d: the model cannot do what the code did (%d steps: %v)", seed, tr.Len(), tr.steps)
				}
			})
		}
	}
}

// TestTraceRefused shows that the acceptor can say no.
func TestTraceRefused(t *testing.T) {
	needTools(t)
	for name, spoil := range map[string]func(*Trace){
		"stop before the last is clean": func(tr *Trace) { i := tr.Find(collclock.TraceStop); tr.Swap(i-1, i) },
		"frozen before all are ready":   func(tr *Trace) { tr.Swap(tr.Find(collclock.TraceReady), tr.Find(collclock.TraceFreeze)) },
		"returned but never entered":    func(tr *Trace) { tr.Drop(tr.Find(collclock.TraceEnter)) },
		"a snapshot is missing":         func(tr *Trace) { tr.Drop(tr.Find(collclock.TraceSnapshot)) },
		"a wrong limit":                 func(tr *Trace) { tr.steps[tr.Find(collclock.TraceFreeze)][3]++ },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := program(t, "F1")
			tr := record(t, p, 3)
			spoil(tr)
			if accepted(t, p, tr) {
				t.Error("the model accepts it")
			}
		})
	}
}
