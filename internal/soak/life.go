// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/suites"
)

// Limits for a loaded machine. None of them decides whether an answer is right.
const (
	nativeLimit  = 5 * time.Minute  // a program without ckptrun
	endLimit     = 10 * time.Minute // a program under ckptrun, from its last start on
	readyLimit   = 3 * time.Minute  // from the start to the job's record
	requestLimit = 3 * time.Minute  // a checkpoint
	dieLimit     = time.Minute      // the launcher, after its ranks were killed; ckptctl, when interrupted
	answerLimit  = 15 * time.Second // ckptctl, after the job has ended
)

// mostEvents bounds the number of events in one life, so that a life ends.
const mostEvents = 40

// Life is one program from its start to its end, with all that happened to it.
type Life struct {
	Seed    uint64
	Program *Program
	Ranks   int
	Argv    []string // with BIN
	First   string   // the MPI that the program was built with
	Dir     string   // all files of the life are below
	Most    int      // the most events
	Disk    bool     // the checkpoints are on a file system of their own

	Cycles       int // times saved or killed, and continued
	Events       map[string]int
	Safe, Commit Durations
	Err          error

	tree   *Tree
	other  *suites.Program // as placed in the tree; nil for a program of ours
	random *rand.Rand
	story  []string // what happened, in words
	mark   e2e.Mark
	now    *incarnation
	native *native
	disk   *disk // with Disk
}

// incarnation is one start of the ranks.
type incarnation struct {
	process        *e2e.Process
	mpi            string
	stdout, stderr string // of the launcher
	own            e2e.RankFiles
}

// NewLife draws a life from a seed; dir must exist.
func NewLife(seed uint64, tree *Tree, from []Program, dir string) *Life {
	l := &Life{Seed: seed, tree: tree, Dir: dir, Most: mostEvents, random: rand.New(rand.NewPCG(seed, 1)), Events: map[string]int{}}
	l.Program = Draw(l.random, from)
	l.Ranks = l.Program.Ranks[l.random.IntN(len(l.Program.Ranks))]
	if l.Program.Argv != nil {
		l.Argv = l.Program.Argv(l.random)
	}
	l.First = l.someMPI(l.Program.MPIs)
	if p, ok := l.Program.other[l.First]; ok {
		l.Argv = append(slices.Clone(p.Argv), l.Argv...)
	}
	l.Disk = l.random.IntN(3) == 0 && !l.Program.Links && mayMount()
	return l
}

// someMPI draws one MPI of some; nil: of all.
func (l *Life) someMPI(mpis []string) string {
	if mpis == nil {
		mpis = MPIs
	}
	return mpis[l.random.IntN(len(mpis))]
}

// String is the command, as one would type it.
func (l *Life) String() string {
	return fmt.Sprintf("%#x %s on %d ranks, built with %s: %s", l.Seed, l.Program.Name, l.Ranks, l.First, strings.Join(l.Argv, " "))
}

// Story says what happened, with one line per event.
func (l *Life) Story() string { return strings.Join(l.story, "\n") }

func (l *Life) tell(format string, args ...any) {
	l.story = append(l.story, fmt.Sprintf(format, args...))
}

func (l *Life) count(event string) { l.Events[event]++ }

// Go runs the life. The error is in l.Err, too.
func (l *Life) Go() error {
	l.mark = e2e.NewMark()
	defer l.mark.KillAll()
	l.Err = l.lead()
	if l.Err != nil {
		l.tell("FAILED: %v", l.Err)
	}
	return l.Err
}

func (l *Life) lead() error {
	if p, ok := l.Program.other[l.First]; ok {
		placed, err := l.tree.other(p)
		if err != nil {
			return err
		}
		placed.Argv = append(placed.Argv, l.Argv[len(p.Argv):]...)
		l.other, l.Argv = &placed, placed.Argv
	}
	if err := l.learn(); err != nil {
		return err
	}
	if l.Disk {
		disk, err := mountDisk(l.checkpoints())
		if err != nil {
			return err
		}
		defer disk.unmount()
		l.disk = disk
	}
	if err := l.start(); err != nil {
		return err
	}
	for range l.Most {
		if l.now.process.Ended() {
			break
		}
		if err := l.event(); err != nil {
			return err
		}
	}
	exit, err := l.await(l.now.process, endLimit, "the program does not end")
	if err != nil {
		return err
	}
	here, err := l.ending(l.now, l.work(), exit)
	if err == nil {
		err = errors.Join(l.native.outcome.same(here), l.verify())
	}
	if err != nil {
		return fmt.Errorf("%w\nof rank 0: %s\nof the launcher: %s%s", err, tail(string(l.own())+".err.0"), tail(l.now.stdout), tail(l.now.stderr))
	}
	l.tell("ended under %s with the right answer", l.now.mpi)
	return nil
}

func (l *Life) work() string        { return filepath.Join(l.Dir, "work") }
func (l *Life) own() e2e.RankFiles  { return e2e.RankFiles(filepath.Join(l.Dir, "rank")) }
func (l *Life) checkpoints() string { return filepath.Join(l.Dir, "ckpt") }

// launch starts ranks, natively or under ckptrun.
func (l *Life) launch(c start) (*incarnation, error) {
	in := &incarnation{mpi: c.mpi, stdout: filepath.Join(l.Dir, c.name+".out"), stderr: filepath.Join(l.Dir, c.name+".err"), own: c.own}
	command := append(append([]string{}, launchers[c.mpi]...), "-n", fmt.Sprint(l.Ranks))
	p, err := e2e.Start(e2e.Command{Argv: append(command, c.own.Argv(c.argv...)...), Dir: c.work, Mark: c.mark,
		Stdout: in.stdout, Stderr: in.stderr,
		// A linear algebra library that starts threads of its own adds in an order of their own.
		Env: append(c.env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "LC_ALL=C", "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1")})
	in.process = p
	return in, err
}

// start is what a start of ranks needs.
type start struct {
	mpi, name, work string
	own             e2e.RankFiles
	mark            e2e.Mark
	env, argv       []string
}

// learn finds the program's native result, and how long the program takes.
func (l *Life) learn() error {
	command := fmt.Sprint(l.First, l.Ranks, l.Argv)
	if l.native = l.tree.natives[command]; l.native != nil {
		return nil
	}
	began := time.Now()
	work, own := filepath.Join(l.Dir, "native"), e2e.RankFiles(filepath.Join(l.Dir, "native-rank"))
	if err := l.fresh(work, own); err != nil {
		return err
	}
	in, err := l.launch(start{l.First, "native", work, own, l.mark, nil, l.tree.command(l.Argv, l.First)})
	if err != nil {
		return err
	}
	l.now = in
	exit, err := l.await(in.process, nativeLimit, "the program does not end natively")
	if err != nil {
		return err
	}
	if exit != (e2e.Exit{}) {
		return fmt.Errorf("natively it ended with %v: %s", exit, tail(in.stderr))
	}
	e, err := l.ending(in, work, exit)
	if err != nil {
		return fmt.Errorf("natively: %w", err)
	}
	if l.other == nil && e.text == "" {
		return errors.New("natively it prints nothing, so there is nothing to compare")
	}
	l.native = &native{*e, time.Since(began)}
	l.tree.natives[command] = l.native
	return nil
}

// start starts the program, or continues it from the newest epoch if there is one. This epoch must be good.
func (l *Life) start() error {
	var argv, env []string
	mpi, how := l.First, "start"
	if l.saved() {
		if err := l.verify(); err != nil {
			return err
		}
		argv = l.again()
		if how = "restart"; l.other == nil || !l.other.Order {
			mpi = l.someMPI(nil)
		}
	} else {
		if err := l.fresh(l.work(), l.own()); err != nil {
			return err
		}
		argv = l.first()
	}
	l.count(how + " under " + mpi)
	// A record of the former incarnation must not be taken for a record of the next.
	if err := os.Remove(filepath.Join(l.checkpoints(), "job.json")); err != nil && !os.IsNotExist(err) {
		return err
	}
	name := fmt.Sprintf("run-%02d", l.Cycles)
	l.tell("%s under %s (%s)", how, mpi, name)
	if l.random.IntN(4) == 0 {
		l.tell("its connections break")
		l.count("connections between ranks break")
		argv[0], env = l.tree.faulty(), breaks(l.random)
	}
	in, err := l.launch(start{mpi, name, l.work(), l.own(), l.mark, env, argv})
	l.now = in
	return err
}

// first and again are the commands of a rank.
func (l *Life) first() []string {
	return append(append(l.ckptrun(), "--"), l.tree.command(l.Argv, l.First)...)
}

func (l *Life) again() []string { return append(l.ckptrun(), "--restart", l.checkpoints()) }

func (l *Life) ckptrun() []string {
	return append([]string{l.tree.Tool("ckptrun"), "--dir", l.checkpoints()}, l.Program.Options...)
}

// saved tells whether there is an epoch.
func (l *Life) saved() bool {
	epochs, _ := filepath.Glob(filepath.Join(l.checkpoints(), "epoch-*", "manifest.json"))
	return len(epochs) > 0
}

// ready waits until the job accepts requests. It returns false when the program has ended first.
func (l *Life) ready() (bool, error) {
	record := filepath.Join(l.checkpoints(), "job.json")
	there := func() bool { _, err := os.Stat(record); return err == nil }
	if e2e.Poll(readyLimit, l.now.process.Done(), there) {
		return true, nil
	}
	if l.now.process.Ended() {
		return false, nil
	}
	return false, l.hang("the job does not say where it listens")
}

// pause waits for a random time of at most d, or until the program has ended; then it returns true.
func (l *Life) pause(d time.Duration) bool {
	select {
	case <-l.now.process.Done():
		return true
	case <-time.After(time.Duration(l.random.Float64() * float64(d))):
		return l.now.process.Ended()
	}
}

// kill ends ranks as a crash of their nodes would: one or all of them.
func (l *Life) kill(one bool) error {
	pids := l.mark.Ranks()
	if one && len(pids) > 0 {
		pids = pids[l.random.IntN(len(pids)):][:1]
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
	}
	return l.dead()
}

// dead waits until no process of the incarnation is left. Open MPI's mpiexec sometimes hangs when its ranks
// die; then dead kills it, as users have to.
func (l *Life) dead() error {
	launcher := l.now.process.PID()
	select {
	case <-l.now.process.Done():
	case <-time.After(dieLimit):
		if slices.Equal(l.mark.Processes(), []int{launcher}) {
			_ = syscall.Kill(-launcher, syscall.SIGKILL) // it may end by itself now
		}
	}
	if _, err := l.await(l.now.process, dieLimit, "the launcher does not end although ranks are dead"); err != nil {
		return err
	}
	if !e2e.Poll(dieLimit, nil, func() bool { return len(l.mark.Ranks()) == 0 }) {
		return l.hang("ranks are left behind")
	}
	return nil
}

// await waits for the end of a process; if this takes too long, the error says what all processes are doing.
func (l *Life) await(p *e2e.Process, limit time.Duration, what string) (e2e.Exit, error) {
	select {
	case <-p.Done():
		return p.Wait(limit)
	case <-time.After(limit):
		return e2e.Exit{}, l.hang(fmt.Sprintf("%s within %v", what, limit))
	}
}

// hang describes what all processes are doing.
func (l *Life) hang(what string) error {
	return fmt.Errorf("HANG: %s\n%s\nstderr: %s", what, l.where(), tail(l.now.stderr))
}

func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	const most = 4000
	return string(text[max(0, len(text)-most):])
}
