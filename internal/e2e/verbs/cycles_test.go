// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

const (
	cyclesWanted = "CKPT_VERBS_CYCLES" // how many
	cyclesLog    = "CKPT_VERBS_LOG"    // a line for each job
)

// TestVerbsCycles saves, kills and continues random jobs, on the adapter and over TCP in turn, until there have been as many
// cycles as are wanted: a few, or hundreds (make verbs-cycles). Each job finds everything right at its end, and ends as
// natively.
func TestVerbsCycles(t *testing.T) {
	need(t)
	wanted, each := 1, 2
	if v := os.Getenv(cyclesWanted); v != "" {
		n, err := strconv.Atoi(v)
		must(t, err)
		wanted, each = n, 25
	}
	s := seed(t)
	random := rand.New(rand.NewPCG(s, 1))
	say := func(format string, a ...any) { t.Logf(format, a...) }
	if path := os.Getenv(cyclesLog); path != "" {
		f, err := os.Create(path)
		must(t, err)
		defer f.Close()
		say = func(format string, a ...any) {
			if _, err := fmt.Fprintf(f, format+"\n", a...); err != nil {
				t.Error(err)
			}
		}
	}
	say("seed %d: jobs of shuffle, saved and killed, on the adapter and over TCP in turn", s)
	wrong, done, begun := 0, 0, time.Now()
	for n := 0; done < wanted && !t.Failed(); n++ {
		job := shuffle{ranks: 2 + random.IntN(3), seed: 1 + random.IntN(1<<20), steps: 1000 * each, pace: 200, lazy: 2 * random.IntN(4)}
		backs := [][]string{{"ibv", "tcp"}, {"tcp", "ibv"}}[n%2]
		t.Run(job.String(), func(t *testing.T) {
			w := newShuffle(t, job)
			l := life{t: t, w: w, random: random, within: 300 * time.Millisecond, lives: each, backs: backs}
			from := time.Now()
			defer func() {
				what := "right"
				if t.Failed() {
					what = "WRONG"
					wrong++
				}
				done += l.saved
				say("%v, began with %s: %d cycles, %.1f s, %s", job, backs[0], l.saved, time.Since(from).Seconds(), what)
			}()
			l.run()
			must(t, w.Same(job.natively(t)))
			job.right(t, w)
		})
	}
	say("%d cycles, %d jobs wrong, %.0f s", done, wrong, time.Since(begun).Seconds())
}
