// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"math/rand/v2"
	"testing"
)

// While the programs run, are saved and go on, the lower half's Go collects garbage without pause,
// starts and ends goroutines and threads, and preempts them with signals. Nothing of it may show.
func TestGoStress(t *testing.T) {
	t.Setenv("CKPT_DEBUG", "gcstress")
	needCommands(t)
	seed := fromEnv(t, "CKPT_E2E_SEED", *seedFlag)
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed: %d", seed)
	cycles := 0
	for i, p := range Programs {
		switch p.Name {
		case "cancel", "python", "sync", "jump":
		default:
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			row := tally{name: p.Name, want: 2}
			cycle(t, p, &row, rand.New(rand.NewPCG(seed, uint64(i))))
			cycles += row.equal
		})
	}
	t.Run("heat", func(t *testing.T) {
		h := newHeat(t, 400, 20)
		want := h.natively(t)
		p := h.start(t)
		for range 2 {
			before := h.newest(t)
			h.awaitEpoch(t, p, before)
			h.kill(t, p)
			cycles++
			p = h.restart(t, h.run.Checkpoints())
		}
		if exit := h.wait(t, p); exit != (Exit{}) {
			t.Fatalf("%v: %s", exit, mustRead(t, h.run.Stderr))
		}
		h.mustEqual(t, want)
	})
	t.Logf("cycles under stress: %d", cycles)
}
