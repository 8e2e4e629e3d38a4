// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"runtime"
)

// Outcome of a probe.
type Outcome string

// Outcomes.
const (
	Yes     Outcome = "yes"
	No      Outcome = "no"
	Unknown Outcome = "unknown" // could not find out
)

// Result is what a probe found.
type Result struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Detail  string  `json:"detail,omitempty"` // what was seen
	For     string  `json:"for"`              // what libckpt uses the feature for
	Advice  string  `json:"advice,omitempty"` // what to do about it; only when there is something to do

	// Needed says that ckptrun does not work without the feature; the others have a slower or smaller substitute.
	Needed bool `json:"needed"`
}

// Probe is one question.
type Probe struct {
	Name   string
	For    string
	Needed bool
	Advice string // when the outcome is not Yes
	Run    func(ctx context.Context) (Outcome, string)
}

// Do runs the probe.
func (p *Probe) Do(ctx context.Context) Result {
	out, detail := p.Run(ctx)
	r := Result{Name: p.Name, Outcome: out, Detail: detail, For: p.For, Needed: p.Needed}
	if out != Yes {
		r.Advice = p.Advice
	}
	return r
}

// All lists the probes in the order in which a person wants to read them.
func All() []Probe {
	var list []Probe
	list = append(list, cpuProbes()...)
	list = append(list, trapProbes()...)
	list = append(list, memoryProbes()...)
	list = append(list, limitProbes()...)
	list = append(list, tapProbes()...)
	return append(list, mpiProbes()...)
}

// Run runs all probes.
func Run(ctx context.Context) []Result {
	list := All()
	results := make([]Result, len(list))
	for i := range list {
		results[i] = list[i].Do(ctx)
	}
	return results
}

// onOwnThread runs f on a thread that ends with it.
func onOwnThread(f func() (Outcome, string)) (out Outcome, detail string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread dies with the goroutine
		out, detail = f()
	}()
	<-done
	return out, detail
}
