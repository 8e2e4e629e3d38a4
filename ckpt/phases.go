// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"time"

	"github.com/libckpt/libckpt/ckpt/store"
)

// passage is when a rank was in a stage, in nanoseconds of its own clock since 1970: ranks of several nodes are
// compared with each other only as well as their clocks agree.
type passage struct {
	Stage string `json:"stage"`
	Begun int64  `json:"begun"`
	Ended int64  `json:"ended"`
}

// passed notes a stage that this rank has left. What was written is told with the image.
func (a *attempt) passed(s stage, begun time.Time) {
	a.passages = append(a.passages, passage{s.String(), begun.UnixNano(), time.Now().UnixNano()})
	if s == stageWrite {
		a.image.Passages = a.passages
		if !a.wentOn.IsZero() {
			a.image.WentOn = a.wentOn.UnixNano()
		}
	}
}

// stillUntil is when the program ran again, in seconds after the request; 0: it was stopped until the commit.
func stillUntil(wentOn int64, asked time.Time) float64 {
	return time.Duration(max(wentOn-asked.UnixNano(), 0)).Seconds()
}

// phasesOf is how a rank came from the request to its image, for the manifest. The wait for the safe state is before
// its attempt begins: it counts as agreeing.
func phasesOf(list []passage, asked time.Time) []store.Phase {
	var out []store.Phase
	for _, p := range list {
		at := max(p.Begun-asked.UnixNano(), 0)
		if p.Stage == stageAgree.String() {
			at = 0
		}
		end := max(p.Ended-asked.UnixNano(), at)
		out = append(out, store.Phase{Name: p.Stage, At: time.Duration(at).Seconds(), Seconds: time.Duration(end - at).Seconds()})
	}
	return out
}
