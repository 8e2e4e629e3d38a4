// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tmpiJob is a program of examples/tmpi on a number of processes, each with some ranks on some workers.
type tmpiJob struct {
	processes, ranks, workers int
	program                   []string
}

func (j tmpiJob) String() string {
	return fmt.Sprintf("%s-%dx%d", j.program[0], j.processes, j.ranks)
}

func tmpi(name string) string { return filepath.Join(built.Root, "build", "examples", "tmpi", name) }

// command is the job's command line; under stands between tmpirun and the program.
func (j tmpiJob) command(under ...string) []string {
	argv := append([]string{tmpi("tmpirun"), "-n", strconv.Itoa(j.processes), "-r", strconv.Itoa(j.ranks), "-w", strconv.Itoa(j.workers)}, under...)
	return append(append(argv, tmpi(j.program[0])), j.program[1:]...)
}

func (j tmpiJob) restart(dir string) []string {
	return []string{tmpi("tmpirun"), "-n", strconv.Itoa(j.processes), built.CkptRun(), "--whole", "--restart", dir}
}

// native runs the job without ckptrun, and returns what it printed.
func (j tmpiJob) native(t *testing.T) string {
	t.Helper()
	return outputOf(t, j.command()...)
}

// TestTmpi runs the thread-based runtime of examples/tmpi without ckptrun. However ranks are divided among processes, and
// whichever rails their messages take, the results have the same bits.
func TestTmpi(t *testing.T) {
	t.Parallel()
	for _, alike := range [][]tmpiJob{
		{{1, 8, 2, nil}, {2, 4, 1, nil}, {4, 2, 2, nil}, {8, 1, 1, nil}},
		{{1, 512, 2, nil}, {4, 128, 2, nil}},
	} {
		ranks := alike[0].processes * alike[0].ranks
		for _, program := range [][]string{
			{"cg", strconv.Itoa(max(64, ranks)), "100", "20", "30"},
			{"heat", strconv.Itoa(max(64, ranks)), "200", "100", "20", "30"},
			{"heat", strconv.Itoa(max(64, ranks)), "5000", "20", "20", "15"}, // rows that are longer than the gate of shm
		} {
			want := ""
			for i, j := range alike {
				j.program = program
				got := j.native(t)
				if i == 0 {
					want = got
				}
				if got == "" || got != want {
					t.Errorf("%v: %q, other processes %q", j, got, want)
				}
				if tcp := outputOf(t, append([]string{"env", "TMPI_RAILS=tcp"}, j.command()...)...); tcp != want {
					t.Errorf("%v: over tcp alone: %q, want %q", j, tcp, want)
				}
			}
		}
	}
}

// TestTmpiFails: when a process of a job dies, the others are ended, and tmpirun says how it died.
func TestTmpiFails(t *testing.T) {
	t.Parallel()
	r, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	err = r.Once(patience, tmpi("tmpirun"), "-n", "3", "/bin/sh", "-c", "test $CKPT_RANK != 1 || kill -9 $$; exec sleep 1000")
	if err != nil || r.Exit != (Exit{Code: 128 + 9}) {
		t.Errorf("%v, %v", r.Exit, err)
	}
	if left, err := os.ReadDir(r.Work()); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// tmpiCycles are what is done to a job: interrupt ends it when an epoch is there, all of it at once.
type tmpiCycles struct {
	job       tmpiJob
	cycles    int
	interrupt func(t *testing.T, c *Chain, p *Process, mark Mark) (ended bool)
	again     []string // before each second restart
}

// run compares a job that is interrupted and continued with one that is not, and returns how often it was. A machine
// that does other things may have the job end before it is interrupted often enough: then another one is made.
func (s tmpiCycles) run(t *testing.T) int {
	t.Helper()
	for range 6 {
		if n := s.once(t); t.Failed() || 2*n >= s.cycles {
			return n
		}
	}
	t.Errorf("six jobs ended before they were interrupted %d times: they are too short", s.cycles)
	return 0
}

func (s tmpiCycles) once(t *testing.T) int {
	t.Helper()
	r, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	seed := fromEnv(t, "CKPT_E2E_SEED", *seedFlag)
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	want := s.job.native(t)
	c := &Chain{Built: built, Run: r, Random: rand.New(rand.NewPCG(seed, 1))}
	mark := NewMark()
	t.Cleanup(mark.KillAll)
	p, err := r.Start(mark, s.job.command(append([]string{built.CkptRun(), "--whole", "--dir", r.Checkpoints()}, options()...)...)...)
	if err != nil {
		t.Fatal(err)
	}
	for c.Cycles < s.cycles && !s.interrupt(t, c, p, mark) {
		c.Cycles++
		argv := s.job.restart(r.Checkpoints())
		if c.Cycles%2 == 0 {
			argv = append(s.again, argv...)
		}
		if p, err = r.Start(mark, argv...); err != nil {
			t.Fatal(err)
		}
	}
	exit, err := p.Wait(2 * patience)
	if err != nil || exit != (Exit{}) {
		t.Fatalf("after %d cycles: %v, %v\n%s", c.Cycles, exit, err, c.stderr())
	}
	if err := noneLeft(mark); err != nil {
		t.Error(err)
	}
	if got := string(mustRead(t, r.Stdout)); got != want {
		t.Errorf("after %d cycles:\n%s\nnatively:\n%s", c.Cycles, got, want)
	}
	t.Logf("interrupted %d times", c.Cycles)
	return c.Cycles
}

// killed kills the whole job by SIGKILL at a random moment after it has saved itself since its start.
func killed(t *testing.T, c *Chain, p *Process, mark Mark) bool {
	t.Helper()
	before, err := c.epochs()
	if err != nil {
		t.Fatal(err)
	}
	saved := Poll(patience, p.Done(), func() bool {
		now, err := c.epochs()
		return err == nil && now > before
	})
	if !saved && !p.Ended() {
		t.Fatalf("no epoch after %d\n%s", before, Dump(mark.Processes()))
	}
	return kill(t, c, p, mark)
}

// kill does it at a random moment from now.
func kill(t *testing.T, c *Chain, p *Process, mark Mark) bool {
	t.Helper()
	select {
	case <-p.Done():
		return true
	case <-time.After(time.Duration(c.Random.IntN(200)) * time.Millisecond):
	}
	p.Kill()
	exit, err := p.Wait(patience)
	if err != nil {
		t.Fatal(err)
	}
	if err := noneLeft(mark); err != nil {
		t.Fatal(err)
	}
	return exit != (Exit{Signal: syscall.SIGKILL}) // it was faster
}

// asked has the job saved and ended from the outside at a random moment.
func asked(t *testing.T, c *Chain, p *Process, mark Mark) bool {
	t.Helper()
	select {
	case <-p.Done():
		return true
	case <-time.After(time.Duration(c.Random.IntN(400)) * time.Millisecond):
	}
	before, err := c.epochs()
	if err != nil {
		t.Fatal(err)
	}
	ctl, err := c.Run.Start(mark, built.CkptCtl(), "checkpoint", c.Run.Checkpoints(), "--then", "kill", "--timeout", checkpointLimit.String())
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctl.Done():
	case <-p.Done(): // which may be what was asked for
	}
	exit, err := p.Wait(checkpointLimit + patience)
	if err != nil {
		t.Fatalf("%v\n%s", err, c.stderr())
	}
	if exit == (Exit{}) {
		ctl.Kill() // it has ended by itself, and ctl may wait for another one
		return true
	}
	said, err := ctl.Wait(patience)
	after, errs := c.epochs()
	if err != nil || errs != nil || said != (Exit{}) || exit != (Exit{Code: 128 + 9}) || after <= before {
		t.Fatalf("cycle %d: the job %v, ckptctl %v; epoch %d, before %d; %v, %v\n%s", c.Cycles, exit, said, after, before, err, errs, c.stderr())
	}
	if err := noneLeft(mark); err != nil {
		t.Fatal(err)
	}
	return false
}

// askedThenKilled has the job saved from the outside at random moments, wherever its ranks are, and kills it later.
func askedThenKilled(t *testing.T, c *Chain, p *Process, mark Mark) bool {
	t.Helper()
	for range 1 + c.Random.IntN(3) {
		select {
		case <-p.Done():
			return true
		case <-time.After(time.Duration(c.Random.IntN(300)) * time.Millisecond):
		}
		own, err := NewRun(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		ctl, err := own.Start(NewMark(), built.CkptCtl(), "checkpoint", c.Run.Checkpoints(), "--timeout", checkpointLimit.String())
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-ctl.Done():
		case <-p.Done():
			ctl.Kill()
			return true
		}
		said, err := ctl.Wait(patience)
		if p.Ended() {
			return true
		}
		words := string(mustRead(t, own.Stderr))
		if err == nil && said != (Exit{}) && strings.Contains(words, "the job is ending") {
			return true // run waits for that, and wants a good end
		}
		if err != nil || said != (Exit{}) {
			t.Fatalf("cycle %d: ckptctl %v, %v: %s\n%s", c.Cycles, said, err, words, c.stderr())
		}
	}
	return kill(t, c, p, mark)
}

var tmpiContinued = map[string]tmpiCycles{
	"killed-cg":      {job: tmpiJob{4, 128, 2, []string{"cg", "512", "1500", "50", "20"}}, interrupt: killed, cycles: 6},
	"killed-heat":    {job: tmpiJob{4, 8, 2, []string{"heat", "64", "6000", "3000", "50", "40"}}, interrupt: killed, cycles: 6, again: []string{"env", "TMPI_RAILS=tcp"}},
	"killed-workers": {job: tmpiJob{3, 16, 1, []string{"cg", "256", "2500", "50", "30"}}, interrupt: killed, cycles: 6, again: []string{"env", "TMPI_RAILS=tcp"}},
	"asked-cg":       {job: tmpiJob{4, 128, 2, []string{"cg", "512", "1500", "50"}}, interrupt: asked, cycles: 6},
	"asked-killed":   {job: tmpiJob{4, 16, 2, []string{"cg", "256", "3000", "50"}}, interrupt: askedThenKilled, cycles: 4},
	"asked-both":     {job: tmpiJob{4, 16, 2, []string{"cg", "256", "2500", "50", "100"}}, interrupt: askedThenKilled, cycles: 4, again: []string{"env", "TMPI_RAILS=tcp"}},
	"asked-heat":     {job: tmpiJob{2, 16, 1, []string{"heat", "64", "6000", "3000", "50"}}, interrupt: asked, cycles: 6},
}

// TestTmpiContinues: ckptrun --whole saves hundreds of ranks with their runtime, and continues them after all
// processes were killed, on other ports and over other rails. Nothing of what they print differs.
func TestTmpiContinues(t *testing.T) {
	for name, s := range tmpiContinued {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.run(t)
		})
	}
}

// TestTmpiCycles does the same one after the other, until there were so many cycles. bench/results/tmpi.txt is what
// it printed.
func TestTmpiCycles(t *testing.T) {
	most := int(fromEnv(t, "LIBCKPT_TMPI_CYCLES", 0))
	if most == 0 {
		t.Skip("some ten minutes' work: LIBCKPT_TMPI_CYCLES=200 has it done")
	}
	names := slices.Sorted(maps.Keys(tmpiContinued))
	for life, done := 0, 0; done < most && !t.Failed(); life++ {
		s := tmpiContinued[names[life%len(names)]]
		t.Run(names[life%len(names)], func(t *testing.T) {
			n := s.run(t)
			done += n
			t.Logf("%v: %d cycles, %d in all", s.job, n, done)
		})
	}
}
