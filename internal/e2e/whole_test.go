// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// wholeLimit is what a whole job may take on a loaded machine. No result depends on it.
const wholeLimit = 2 * time.Minute

// relay compiles relay.c against today's headers, once.
var relay = sync.OnceValues(func() (string, error) {
	return compileRuntime(built.Bin, "relay", filepath.Join(built.Root, "build", "include"))
})

// letters is letters.c.
var letters = sync.OnceValues(func() (string, error) {
	return compileRuntime(built.Bin, "letters", filepath.Join(built.Root, "build", "include"))
})

// newWhole prepares a job of relay.c with these arguments.
func newWhole(t *testing.T, args ...any) *Whole {
	t.Helper()
	return newWholeOf(t, relay, args...)
}

func newWholeOf(t *testing.T, compile func() (string, error), args ...any) *Whole {
	t.Helper()
	needCommands(t)
	program, err := compile()
	if err != nil {
		t.Fatal(err)
	}
	argv := []string{program}
	for _, a := range args {
		argv = append(argv, fmt.Sprint(a))
	}
	w, err := NewWhole(built, t.TempDir(), argv...)
	must(t, err)
	t.Cleanup(w.Mark.KillAll)
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// relayNatively runs relay.c by itself.
func relayNatively(t *testing.T, args ...any) *Whole {
	t.Helper()
	w := newWhole(t, args...)
	must(t, w.Natively())
	must(t, w.MustEnd(wholeLimit))
	return w
}

func epochOf(t *testing.T, w *Whole) int {
	t.Helper()
	n, err := w.Epoch()
	must(t, err)
	return n
}

// awaitEpochAfter waits until there is a newer epoch. It returns false when the job has ended before.
func awaitEpochAfter(t *testing.T, w *Whole, epoch int) bool {
	t.Helper()
	if !Poll(wholeLimit, nil, func() bool { return epochOf(t, w) > epoch || w.Ended() }) {
		t.Fatalf("no epoch after %d\n%s\n%s", epoch, w.Said(), Dump(w.Mark.Processes()))
	}
	return epochOf(t, w) > epoch
}

// keepAsking asks for checkpoints until stop is called, which returns how many were made. Other answers are
// errors in words; none takes longer than its time.
func keepAsking(t *testing.T, w *Whole) (stop func() int) {
	end, made := make(chan struct{}), make(chan int)
	dir := t.TempDir()
	go func() {
		n := 0
		for i := 0; ; i++ {
			select {
			case <-end:
				made <- n
				return
			case <-time.After(20 * time.Millisecond):
			}
			exit, said, err := w.Ckptctl(filepath.Join(dir, fmt.Sprint(i)), wholeLimit, "checkpoint", w.Run.Checkpoints(), "--timeout", "10s")
			switch {
			case err != nil:
				t.Error(err)
			case exit == (Exit{}):
				n++
			case said == "":
				t.Errorf("ckptctl checkpoint: %v, without a word", exit)
			}
		}
	}()
	stop = sync.OnceValue(func() int { close(end); return <-made })
	t.Cleanup(func() { stop() })
	return stop
}

// TestWhole kills jobs with kill -9 at random moments, in several generations, each under another launcher than the
// one before. The program saves itself, and operators ask at the same time.
func TestWhole(t *testing.T) {
	const generations, steps, every = 6, 3000, 50 // checkpoints take the time
	native := relayNatively(t, steps, every)
	names := []string{"shell", "mpich", "openmpi"}
	for first, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWhole(t, steps, every)
			must(t, w.Start(name))
			generation := 0
			stop := keepAsking(t, w)
			for ; generation < generations; generation++ {
				before := epochOf(t, w)
				// An odd one is killed wherever it is, perhaps in the middle of its restart.
				saved := generation%2 == 1 || awaitEpochAfter(t, w, before)
				if saved {
					time.Sleep(rand.N(400 * time.Millisecond)) // the random moment
				}
				if w.Ended() {
					break
				}
				must(t, w.Kill(wholeLimit, rand.N(2) == 0))
				must(t, w.Restart(names[(first+generation+1)%len(names)]))
			}
			err := w.MustEnd(3 * wholeLimit) // it saves itself some 230 times, beside two such jobs
			asked := stop()
			if err != nil {
				t.Fatalf("generation %d: %v", generation, err)
			}
			if err := w.Same(native); err != nil {
				t.Errorf("%v\n%s", err, w.Said())
			}
			said := w.Said()
			called := strings.Count(said, "called: checkpoint") // since the last restart, and before it what is in the image
			t.Logf("%d generations; the program saved itself %d times, others %d", generation, called, asked)
			if generation < generations-2 || called == 0 || asked == 0 {
				t.Errorf("%d generations, of %d; the program saved itself %d times, others %d", generation, generations, called, asked)
			}
			if bad := strings.Count(said, ": error,"); bad > 0 {
				t.Errorf("%d checkpoints ended in an error:\n%s", bad, said)
			}
		})
	}
}

// TestWholeAskedDuringCall: while some ranks are in the program's call and one is not, others ask for a checkpoint, and
// the job ends and is continued from it. The ranks in the call must wait on for the late one.
func TestWholeAskedDuringCall(t *testing.T) {
	t.Parallel()
	const steps, every = 300, 100
	native := relayNatively(t, steps, every)
	w := newWhole(t, steps, every, "late")
	must(t, w.Start("shell"))
	killed, dir := 0, t.TempDir()
	for range 3 {
		if !Poll(wholeLimit, nil, func() bool {
			exit, _, err := w.Ckptctl(dir, wholeLimit, "status", w.Run.Checkpoints())
			return err == nil && exit == Exit{} || w.Ended()
		}) {
			t.Fatalf("the job does not answer\n%s", w.Said())
		}
		time.Sleep(300 * time.Millisecond) // most of its time is in the call; when it is not, the test is only weaker
		exit, said, err := w.Ckptctl(dir, wholeLimit, "checkpoint", "--then", "kill", "--timeout", "60s", w.Run.Checkpoints())
		must(t, err)
		if w.Ended() && exit != (Exit{}) {
			break
		}
		if exit != (Exit{}) {
			t.Fatalf("ckptctl: %v\n%s\n%s", exit, said, w.Said())
		}
		killed++
		_, err = w.Wait(wholeLimit)
		must(t, err)
		must(t, w.Restart("shell"))
	}
	must(t, w.MustEnd(wholeLimit))
	if err := w.Same(native); err != nil || killed == 0 {
		t.Errorf("%v, %d requests\n%s", err, killed, w.Said())
	}
}
