// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// streams prepares a job of streams.c.
func streams(t *testing.T, n int, bytes int64) *Whole {
	t.Helper()
	w := newTogether(t, n)
	meet := w.Run.Dir + "/ports"
	must(t, os.Mkdir(meet, 0o755))
	w.Argv = []string{built.Bin + "/streams", fmt.Sprint(n), fmt.Sprint(bytes), meet}
	return w
}

// mayEnd lets the processes of a job of streams.c come to their end.
func mayEnd(t *testing.T, w *Whole) {
	t.Helper()
	must(t, os.WriteFile(w.Run.Dir+"/ports/end", nil, 0o644))
}

// Streams between all processes, in both directions, are saved at random moments, killed and continued, several times;
// between those they are saved and go on. No byte is lost, comes twice or in another order.
func TestStreams(t *testing.T) {
	bytes, cycles := int64(300_000_000), 4
	if testing.Short() {
		bytes, cycles = 60_000_000, 2
	}
	seed := fromEnv(t, "CKPT_E2E_SEED", uint64(time.Now().UnixNano()))
	t.Logf("CKPT_E2E_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	native := streams(t, 3, bytes)
	begun := time.Now()
	mayEnd(t, native)
	must(t, native.Natively())
	must(t, native.MustEnd(togetherLimit))
	took := time.Since(begun)
	t.Logf("natively it takes %v", took)

	w := streams(t, 3, bytes)
	must(t, w.Start("shell", options()...))
	saved := 0
	for c := range cycles {
		if !Poll(patience, nil, func() bool { return answers(w.Run.Checkpoints()) || w.Ended() }) {
			t.Fatalf("no job: %s", w.Said())
		}
		goes(t, w)
		for _, then := range []string{"continue", "kill"} {
			time.Sleep(time.Duration(random.Int64N(int64(took/time.Duration(cycles)/4 + 1))))
			if c%2 == 0 && then == "continue" {
				continue
			}
			saveTogether(t, w, then)
			saved++
		}
		_, err := w.Wait(togetherLimit)
		must(t, err)
		must(t, w.Restart("shell", options()...))
	}
	mayEnd(t, w)
	must(t, w.MustEnd(togetherLimit))
	must(t, w.Same(native))
	if epoch, err := w.Epoch(); err != nil || epoch != saved {
		t.Errorf("%d epochs, saved %d times, %v", epoch, saved, err)
	}
}
