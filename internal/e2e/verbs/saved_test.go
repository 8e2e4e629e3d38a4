// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// jobLimit is what a job of small programs may take on a loaded machine.
const jobLimit = 8 * time.Minute

// newPingpong prepares a ping-pong as a job of two.
func newPingpong(t *testing.T, p pingpong, iterations int) *e2e.Whole {
	t.Helper()
	return newPair(t, p.argv(iterations))
}

// newPair prepares a job of a server and a client. The third word of a command is the port of the server.
func newPair(t *testing.T, argv [2][]string) *e2e.Whole {
	t.Helper()
	w, err := e2e.NewWhole(built, t.TempDir(), argv[0]...)
	must(t, err)
	w.Ranks, w.Together = 2, true
	w.RankArgv = map[int][]string{1: argv[1]}
	// Both begin at once, so that the client must wait for the server.
	w.RankEnv = map[int][]string{1: {"LD_PRELOAD=" + filepath.Join(built.Bin, "late"), "LATE_PORT=" + argv[0][2]}}
	t.Cleanup(w.Mark.KillAll)
	return w
}

// same compares what both sides of a ping-pong printed with a native run of it.
func (p pingpong) same(t *testing.T, w *e2e.Whole, iterations int) {
	t.Helper()
	native := newPingpong(t, p, 100)
	must(t, native.Natively())
	must(t, native.MustEnd(jobLimit))
	for r := range w.Ranks {
		want := mustRead(t, fmt.Sprintf("%s.out.%d", native.Files, r))
		got := mustRead(t, fmt.Sprintf("%s.out.%d", w.Files, r))
		finished(t, got, iterations)
		if without(got) != without(want) {
			t.Errorf("rank %d prints %q, natively %q", r, got, want)
		}
	}
}

// need skips or fails when the tree cannot run programs on verbs.
func need(t *testing.T) {
	t.Helper()
	needBed(t, "ibv_rc_pingpong")
	for _, path := range []string{built.CkptRun(), built.CkptCtl(), filepath.Join(built.Root, "build/lib/ckpt/front/libibverbs.so.1")} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v: run make first", err)
		}
	}
}

func TestPingpongUnderCkptrun(t *testing.T) {
	need(t)
	for _, p := range pingpongs {
		t.Run(p.String(), func(t *testing.T) {
			needmpi.Time(t)
			iterations := p.times(2000)
			w := newPingpong(t, p, iterations)
			must(t, w.Start("shell"))
			must(t, w.MustEnd(jobLimit))
			p.same(t, w, iterations)
		})
	}
}

func TestCasesUnderCkptrun(t *testing.T) {
	need(t)
	wantCases(t, built.CkptRun(), "--dir", filepath.Join(t.TempDir(), "ckpt"), "--")
}

func TestShuffleUnderCkptrun(t *testing.T) {
	need(t)
	for _, s := range shuffles {
		t.Run(s.String(), func(t *testing.T) {
			needmpi.Time(t)
			w := newShuffle(t, s)
			must(t, w.Start("shell"))
			must(t, w.MustEnd(jobLimit))
			must(t, w.Same(s.natively(t)))
		})
	}
}

// life is how a job is saved, ended and continued until its program has ended.
type life struct {
	t      *testing.T
	w      *e2e.Whole
	random *rand.Rand
	within time.Duration // a moment to save is chosen from this
	lives  int           // at most
	// back is what CKPT_VERBS says in each life, in turn.
	backs []string
	// from waits until the program has come to where it may be saved.
	from func()
	// ends lets the program end, which does not before.
	ends func()
	// mayEnd: it is not wrong when it was too early for a save.
	mayEnd bool

	saved int
}

// begun waits until the job of this life can be asked. It is false when the program has ended first.
func (l *life) begun() bool {
	l.t.Helper()
	dir := l.w.Run.Checkpoints()
	ok := e2e.Poll(jobLimit, nil, func() bool {
		if l.w.Ended() {
			return true
		}
		if onRxe { // where to ask takes from the job what it needs to begin
			time.Sleep(time.Second)
		}
		exit, said, err := l.w.Ckptctl(l.t.TempDir(), patience, "status", dir)
		return err == nil && exit == (e2e.Exit{}) && strings.Contains(said, "runs")
	})
	if !ok {
		l.t.Fatalf("the job does not run: %s", l.w.Said())
	}
	return !l.w.Ended()
}

// save makes a checkpoint; false: the program had ended.
func (l *life) save(then string) bool {
	l.t.Helper()
	if l.w.Ended() { // ckptctl would wait for a job to come
		return false
	}
	before, err := l.w.Epoch()
	must(l.t, err)
	exit, said, err := l.w.Ckptctl(l.t.TempDir(), jobLimit, "checkpoint", l.w.Run.Checkpoints(), "--then", then, "--timeout", "3m")
	must(l.t, err)
	after, err := l.w.Epoch()
	must(l.t, err)
	if exit == (e2e.Exit{}) && after > before {
		l.saved++
		return true
	}
	// Refused is right only at the end.
	if e2e.Poll(patience, nil, l.w.Ended) {
		return false
	}
	l.t.Fatalf("checkpoint %d: %v: %s%s", before+1, exit, said, l.w.Said())
	return false
}

func (l *life) pause() {
	time.Sleep(time.Duration(l.random.Int64N(int64(l.within))))
}

// environment is that of one life.
func (l *life) environment(n int) {
	if len(l.backs) > 0 {
		l.w.Env = []string{"CKPT_VERBS=" + l.backs[n%len(l.backs)]}
	}
}

// run starts the job and leads its lives: each second one is killed at a moment of its own, the others at the commit.
func (l *life) run() {
	l.t.Helper()
	l.environment(0)
	must(l.t, l.w.Start("shell"))
	for n := range l.lives {
		if !l.begun() {
			break
		}
		if l.from != nil {
			l.from()
		}
		l.pause()
		then := []string{"kill", "continue"}[n%2]
		if !l.save(then) {
			break
		}
		if then == "continue" {
			l.pause()
			must(l.t, l.w.Kill(jobLimit, true))
		} else {
			_, err := l.w.Wait(jobLimit)
			must(l.t, err)
		}
		l.environment(n + 1)
		anotherDevice(l.t)
		must(l.t, l.w.Restart("shell"))
	}
	if l.ends != nil {
		l.ends()
	}
	must(l.t, l.w.MustEnd(jobLimit))
	if l.saved == 0 && !l.mayEnd {
		l.t.Error("it was never saved: it ended before")
	}
	l.t.Logf("saved and continued %d times", l.saved)
}

func seed(t *testing.T) uint64 {
	t.Helper()
	s := rand.Uint64()
	if v := os.Getenv("CKPT_E2E_SEED"); v != "" {
		var err error
		s, err = strconv.ParseUint(v, 10, 64)
		must(t, err)
	}
	t.Logf("seed: %d (again with CKPT_E2E_SEED=%d)", s, s)
	return s
}

func TestPingpongSaved(t *testing.T) {
	need(t)
	s := seed(t)
	for i, p := range pingpongs {
		t.Run(p.String(), func(t *testing.T) {
			needmpi.Time(t)
			random := rand.New(rand.NewPCG(s, uint64(i)))
			iterations := p.times(60000)
			for saved := 0; saved == 0; iterations *= 4 { // how long it takes above rdma_rxe nobody can say
				w := newPingpong(t, p, iterations)
				l := life{t: t, w: w, random: random, within: within(time.Second / 2), lives: few(3, 1), mayEnd: onRxe && iterations < 20000}
				l.run()
				p.same(t, w, iterations)
				if saved = l.saved; t.Failed() {
					break
				}
			}
		})
	}
}

func TestShuffleSaved(t *testing.T) {
	need(t)
	s := seed(t)
	for i, job := range shuffles {
		t.Run(job.String(), func(t *testing.T) {
			job.steps, job.pace = few(4000, 2000), 200
			w := newShuffle(t, job)
			l := life{t: t, w: w, random: rand.New(rand.NewPCG(s, uint64(i))), within: within(time.Second / 2), lives: few(4, 1)}
			l.run()
			must(t, w.Same(job.natively(t)))
		})
	}
}

// A job goes on over TCP, and on the adapter again: each life has other numbers, another way to peers and another kind of
// port.
func TestShuffleAlternating(t *testing.T) {
	need(t)
	s := seed(t)
	turns := [][]string{{"ibv", "tcp"}, {"tcp", "ibv"}, {"tcp"}}
	for i, backs := range turns[:few(3, 2)] {
		t.Run(strings.Join(backs, ","), func(t *testing.T) {
			job := shuffle{ranks: 3, seed: 5, steps: few(4000, 2000), pace: 200, lazy: 4}
			w := newShuffle(t, job)
			l := life{t: t, w: w, random: rand.New(rand.NewPCG(s, uint64(i))), within: within(time.Second / 2), lives: few(4, 2), backs: backs}
			l.run()
			must(t, w.Same(job.natively(t)))
		})
	}
}

// Where a restart finds no device it goes on over TCP, and says so.
func TestPingpongWithoutDevice(t *testing.T) {
	need(t)
	for _, p := range []pingpong{{"rc", []string{"-c"}}, {"ud", []string{"-c", "-e"}}} {
		t.Run(p.String(), func(t *testing.T) {
			needmpi.Time(t)
			iterations := p.times(60000)
			w := newPingpong(t, p, iterations)
			for l := (life{t: t, w: w}); ; l.w = w {
				must(t, w.Start("shell"))
				if l.begun() && l.save("kill") {
					break
				}
				if iterations *= 4; !onRxe || iterations > 1000000 { // how long it takes above rdma_rxe nobody can say
					t.Fatal("it ended before it was saved")
				}
				w = newPingpong(t, p, iterations)
			}
			_, err := w.Wait(jobLimit)
			must(t, err)
			w.Env = []string{"SYSFS_PATH=/nowhere", "IBV_DRIVERS="}
			again := noDevice(t)
			must(t, w.Restart("shell"))
			must(t, w.MustEnd(jobLimit))
			again()
			p.same(t, w, iterations)
			if said := w.Said(); !strings.Contains(said, "no InfiniBand device here: continuing over TCP") {
				t.Errorf("it does not say over what it goes on: %s", said)
			}
		})
	}
}

// Answers that are late: a message has been received, an addition been made, and the side that asked does not know
// yet when it is stopped. Both must have happened once.
func TestShuffleLateAnswers(t *testing.T) {
	need(t)
	s := seed(t)
	job := shuffle{ranks: 2, seed: 4, steps: 3000}
	w := newShuffle(t, job)
	w.Env = []string{"CKPTSOFT_ANSWER_DELAY_MS=20", "SHUFFLE_LINGER_MS=900"}
	l := life{t: t, w: w, random: rand.New(rand.NewPCG(s, 0)), within: within(time.Second / 2), lives: 3}
	l.run()
	must(t, w.Same(job.natively(t)))
}

// While no answer comes at all a checkpoint waits for them, and is made when they do.
func TestShuffleAnswersHeld(t *testing.T) {
	need(t)
	job := shuffle{ranks: 2, seed: 4, steps: 3000, pace: 200}
	w := newShuffle(t, job)
	hold := filepath.Join(w.Run.Dir, "hold")
	w.Env = []string{"CKPTSOFT_HOLD=" + hold}
	l := life{t: t, w: w}
	must(t, w.Start("shell"))
	if !e2e.Poll(jobLimit, nil, func() bool {
		said, err := w.Printed("out")
		return err == nil && strings.Count(said, " begins\n") == w.Ranks
	}) {
		t.Fatalf("it does not begin: %s", w.Said())
	}
	must(t, os.WriteFile(hold, nil, 0o644))
	time.Sleep(time.Second / 4) // until all wait for answers
	saved := make(chan bool, 1)
	go func() { saved <- l.save("kill") }()
	select {
	case <-saved:
		t.Error("it was saved though sends had not been answered")
	case <-time.After(2 * time.Second):
	}
	must(t, os.Remove(hold))
	if !<-saved {
		t.Fatal("it was not saved")
	}
	_, err := w.Wait(jobLimit)
	must(t, err)
	must(t, w.Restart("shell"))
	must(t, w.MustEnd(jobLimit))
	must(t, w.Same(job.natively(t)))
}
