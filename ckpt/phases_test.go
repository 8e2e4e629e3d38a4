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
