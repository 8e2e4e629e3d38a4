// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/internal/tap"
)

// What moved is judged by whose socket it was and when: a byte in the window is enough.
func TestWitnessWeighs(t *testing.T) {
	const offset, second = 5_000_000_000, 1_000_000_000
	asked := time.Unix(1000, 0)
	phases := []store.Phase{{Name: "stop", At: 1, Seconds: 1}, {Name: "drain", At: 2, Seconds: 1}, {Name: "snapshot", At: 3, Seconds: 2}, {Name: "write", At: 5, Seconds: 3}}
	m := &store.Manifest{Epoch: 7, Ranks: 2, Asked: asked, Images: []store.Image{{Rank: 0, Phases: phases, StillUntil: 4}, {Rank: 1, Phases: phases}}}
	at := func(s float64) uint64 { return uint64(asked.UnixNano() - offset + int64(s*second)) }
	w := &witness{ranks: []watchedRank{{rank: 0, pid: 10}, {rank: 1, pid: 11}}, offset: offset,
		own: map[int]map[uint64]bool{10: {100: true}, 11: {}}, all: map[int]map[uint64]bool{10: {100: true, 101: true}, 11: {200: true}}}
	quiet := []tap.Moved{
		{At: at(-1), PID: 10, Socket: 101, Bytes: 1000}, // before the request
		{At: at(2.5), PID: 10, Socket: 101, Bytes: 30},  // the drain
		{At: at(3.5), PID: 10, Socket: 100, Bytes: 40},  // libckpt's own
		{At: at(4.1), PID: 10, Socket: 101, Bytes: 50},  // it runs again
		{At: at(3.5), PID: 12, Socket: 101, Bytes: 60},  // another process
		{At: at(2.9), PID: 11, Socket: 200, Bytes: 5},
	}
	r := &witnessReport{Epoch: 7}
	w.weigh(r, m, quiet)
	r.Proven = len(r.Problems) == 0
	if a := r.Ranks[0]; !r.Proven || a.Before != 30 || a.Moved != 0 || a.After != 50 || a.Sockets != 1 || a.Own != 1 || a.From != 3 || a.Until != 4 {
		t.Errorf("%+v", r)
	}
	if b := r.Ranks[1]; b.Before != 5 || b.From != 3 || b.Until != 8 { // it stood until its image was written
		t.Errorf("%+v", b)
	}
	var out bytes.Buffer
	if r.print(&out); r.err() != nil || !strings.Contains(out.String(), "no byte moved on the 2 sockets of 2 ranks") {
		t.Errorf("%v: %s", r.err(), out.String())
	}
	for name, bad := range map[string]tap.Moved{
		"just after the drain":     {At: at(3), PID: 10, Socket: 101, Bytes: 1},
		"just before it runs":      {At: at(4), PID: 10, Socket: 101, Bytes: 1, Sent: true},
		"while the other is saved": {At: at(7.9), PID: 11, Socket: 200, Bytes: 1},
		"a socket nobody knows":    {At: at(3.5), PID: 10, Socket: 999, Bytes: 1},
		"another's own number":     {At: at(3.5), PID: 11, Socket: 100, Bytes: 1},
	} {
		r := &witnessReport{Epoch: 7}
		w.weigh(r, m, append(quiet, bad))
		if len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "between drain and snapshot") || r.err() == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	// A manifest that does not say when.
	m.Images[1].Phases = nil
	r = &witnessReport{}
	if w.weigh(r, m, nil); len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "older libckpt") {
		t.Errorf("%+v", r)
	}
}

func TestClockOffset(t *testing.T) {
	a, err := clockOffset()
	if err != nil {
		t.Fatal(err)
	}
	b, err := clockOffset()
	if d := time.Duration(a - b).Abs(); err != nil || d > 10*time.Millisecond {
		t.Errorf("%v apart, %v", d, err)
	}
}
