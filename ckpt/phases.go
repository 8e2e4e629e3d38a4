// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"time"

	"github.com/libckpt/libckpt/ckpt/store"
)

// passage is when a rank was in a stage, in nanoseconds of its own clock since 1970.
type passage struct {
	Stage string `json:"stage"`
	Begun int64  `json:"begun"`
	Ended int64  `json:"ended"`
}

// crossing is passage as this rank measures it.
type crossing struct {
	stage        stage
	begun, ended time.Time
}

// passed notes a stage that this rank has left. What was written is told with the image.
func (a *attempt) passed(s stage, begun time.Time) {
	a.passages = append(a.passages, crossing{s, begun, time.Now()})
	if s == stageWrite {
		// All by the clock as it was when all had stopped: it may be set meanwhile.
		at := func(t time.Time) int64 { return a.allStopped.UnixNano() + int64(t.Sub(a.allStopped)) }
		for _, p := range a.passages {
			a.image.Passages = append(a.image.Passages, passage{p.stage.String(), at(p.begun), at(p.ended)})
		}
		a.image.AllStopped = at(a.allStopped)
		if !a.wentOn.IsZero() {
			a.image.WentOn = at(a.wentOn)
		}
	}
}

// clocksAgree is how far the clocks of two ranks may be apart, seen at the moment at which all had stopped, for which no
// rank knows more than when it heard so.
const clocksAgree = time.Second

// byOurClock gives a rank's times by the clock of rank 0, which had heard at stopped that all were. It is what a clock
// was wrong by that is taken away, and not what a message took.
func (r *imageReport) byOurClock(stopped int64) {
	apart := r.AllStopped - stopped
	if r.AllStopped == 0 || max(apart, -apart) < int64(clocksAgree) {
		return
	}
	for i := range r.Passages {
		r.Passages[i].Begun -= apart
		r.Passages[i].Ended -= apart
	}
	if r.WentOn != 0 {
		r.WentOn -= apart
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
