// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"
)

// TestSafeState: every pattern reaches a safe state, with the messages that the protocol costs at most:
// 5 a rank for the world's tree, and for each communicator of a rank 3, 2 more where something is owed
// and 2 for each collective that was gated.
func TestSafeState(t *testing.T) {
	for _, ranks := range []int{16, 64, 256} {
		for _, pattern := range []string{"world", "grid", "nested", "nestedx"} {
			for seed := range uint64(5) {
				t.Run(fmt.Sprint(pattern, ranks, "/", seed), func(t *testing.T) {
					j, err := newJob(pattern, ranks, seed)
					if err != nil {
						t.Fatal(err)
					}
					s := newSim(j, seed, 1000, 0.5)
					r := newRefined(s)
					s.run(r)
					if !s.done || r.safe < r.ready || r.ready <= r.asked {
						t.Fatalf("asked %v, ready %v, safe %v", r.asked, r.ready, r.safe)
					}
					most := 5 * ranks
					for _, c := range j.comms {
						most += 5 * c.group.Size()
					}
					for r := range j.ranks {
						most += 2 * len(j.of[r]) * s.beyond
					}
					if r.messages > most {
						t.Errorf("%d messages, expected at most %d", r.messages, most)
					}
				})
			}
		}
	}
}

func TestNewJobRefuses(t *testing.T) {
	for _, c := range []struct {
		pattern string
		ranks   int
	}{{"grid", 15}, {"torus", 16}} {
		if _, err := newJob(c.pattern, c.ranks, 1); err == nil {
			t.Errorf("%s on %d ranks is accepted", c.pattern, c.ranks)
		}
	}
}

// TestPublishedRaises: rank 1 owes the pair {0, 1}, but meets rank 2 first, which may have to be told.
// In the patterns of the command, where all ranks do alike, that hardly ever happens.
func TestPublishedRaises(t *testing.T) {
	raised := 0
	for seed := range uint64(50) {
		j := &job{ranks: 3, of: make([][]int, 3)}
		a, b := j.add([]int32{0, 1}), j.add([]int32{1, 2})
		j.prog = [][]op{{{opColl, a}}, {{opCompute, 0}, {opColl, b}, {opColl, a}}, {{opCompute, 0}, {opColl, b}}}
		s := newSim(j, seed, 1000, 1)
		p := newPublished(s)
		s.run(p)
		if !p.reached || p.safe < p.asked {
			t.Fatalf("seed %d: reached %t, asked %v, safe %v", seed, p.reached, p.asked, p.safe)
		}
		if p.messages > 0 {
			raised++
		}
	}
	if raised == 0 {
		t.Error("no job raised a target")
	}
}
