// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"slices"
	"testing"
	"time"

	"github.com/libckpt/libckpt/ckpt/store"
)

func TestPhasesOf(t *testing.T) {
	asked := time.Unix(1000, 0)
	at := func(ms int64) int64 { return asked.UnixNano() + ms*1e6 }
	got := phasesOf([]passage{
		{"agree", at(300), at(301)}, // 300 ms passed before the attempt began
		{"stop", at(301), at(305)},
		{"write", at(305), at(805)},
	}, asked)
	want := []store.Phase{{Name: "agree", Seconds: 0.301}, {Name: "stop", At: 0.301, Seconds: 0.004}, {Name: "write", At: 0.305, Seconds: 0.5}}
	if !slices.Equal(got, want) {
		t.Errorf("phases %v, want %v", got, want)
	}
	// Who came to the meeting before it was called waited since then only.
	if got := phasesOf([]passage{{"agree", at(-40), at(2)}}, asked); got[0].At != 0 || got[0].Seconds != 0.002 {
		t.Errorf("phase %+v", got[0])
	}
	// A clock that was set back gives no negative times.
	for _, p := range phasesOf([]passage{{"stop", at(-50), at(-60)}}, asked) {
		if p.At < 0 || p.Seconds < 0 {
			t.Errorf("phase %+v", p)
		}
	}
}

// TestPhasesOtherClock: a rank whose calendar is a day ahead, and one that is behind, are as far as rank 0 is; what a
// message took is no matter of clocks.
func TestPhasesOtherClock(t *testing.T) {
	asked := time.Unix(1000, 0)
	for _, c := range []struct {
		name          string
		ahead, differ time.Duration
	}{{"the same", 0, 0}, {"slow messages", 0, 300 * time.Millisecond}, {"ahead", 24 * time.Hour, 0}, {"behind", -3 * time.Hour, 0}} {
		t.Run(c.name, func(t *testing.T) {
			at := func(ms int64) int64 { return asked.UnixNano() + ms*1e6 + int64(c.ahead) }
			r := imageReport{AllStopped: at(5) + int64(c.differ), WentOn: at(9), Passages: []passage{{"stop", at(1), at(5)}, {"write", at(9), at(809)}}}
			r.byOurClock(asked.UnixNano() + 5e6)
			want := []store.Phase{{Name: "stop", At: 0.001, Seconds: 0.004}, {Name: "write", At: 0.009, Seconds: 0.8}}
			if got := phasesOf(r.Passages, asked); !slices.Equal(got, want) || stillUntil(r.WentOn, asked) != 0.009 {
				t.Errorf("phases %v, still until %v, want %v", got, stillUntil(r.WentOn, asked), want)
			}
		})
	}
}
