// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Whole is a job of a runtime that is saved with its program (ckptrun --whole): relay.c, started by a shell or by the
// launcher of one of the MPIs.
type Whole struct {
	Built *Built
	Run   *Run
	Mark  Mark     // asking commands have marks of their own
	Argv  []string // the program and its arguments
	Ranks int
	Env   []string // of all processes
	// RankEnv is added for one rank; under the shell alone.
	RankEnv map[int][]string
	// RankArgv is what one rank runs in the place of Argv; under the shell alone.
	RankArgv map[int][]string
	// Absent is not started; under the shell alone.
	Absent map[int]bool
	// Together: there is no runtime, and the processes are one job by --ranks. In the order of arrival: they get no numbers.
	Together, Arrive bool
	// CkptRun is the command under test, that of Built when it is empty.
	CkptRun string

	Files    RankFiles
	launched []*Process
	starts   int
}

// NewWhole prepares the folders of a job.
func NewWhole(b *Built, dir string, argv ...string) (*Whole, error) {
	run, err := NewRun(dir)
	if err != nil {
		return nil, err
	}
	return &Whole{Built: b, Run: run, Mark: NewMark(), Argv: argv, Ranks: 4, CkptRun: b.CkptRun(),
		Files: RankFiles(filepath.Join(run.Dir, "rank"))}, nil
}

// Natively starts the program by itself.
func (w *Whole) Natively() error { return w.launch("shell", nil, w.Argv) }

// Start starts the program under ckptrun.
func (w *Whole) Start(launcher string, options ...string) error {
	argv := []string{w.CkptRun, "--whole", "--dir", w.Run.Checkpoints()}
	if w.Together {
		argv = []string{w.CkptRun, "--ranks", strconv.Itoa(w.Ranks), "--dir", w.Run.Checkpoints()}
	}
	argv = append(argv, options...)
	return w.launch(launcher, append(argv, "--"), w.Argv)
}

// Restart continues the last epoch.
func (w *Whole) Restart(launcher string, options ...string) error {
	argv := []string{w.CkptRun, "--restart", w.Run.Checkpoints()}
	if !w.Together {
		argv = append(argv, "--whole")
	}
	return w.launch(launcher, append(argv, options...), nil)
}

// launch starts a command on all ranks, and by it a program, unless that is in an image. The runtime's own meeting place is
// a new folder each time.
func (w *Whole) launch(launcher string, command, program []string) error {
	meet := filepath.Join(w.Run.Dir, fmt.Sprint("meet-", w.starts))
	w.starts++
	if err := os.Mkdir(meet, 0o755); err != nil {
		return err
	}
	env := append([]string{"TMPDIR=" + w.Run.Work(), "LC_ALL=C", "RELAY_MEET=" + meet, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}, w.Env...)
	argv := w.Files.Argv(slices.Concat(command, program)...)
	c := Command{Argv: argv, Dir: w.Run.Work(), Mark: w.Mark, Stdout: w.Run.Stdout, Stderr: w.Run.Stderr, Env: env}
	w.launched = nil
	if launcher != "shell" {
		c.Argv = append(append(append([]string{}, launchers[launcher]...), "-n", strconv.Itoa(w.Ranks)), argv...)
		p, err := Start(c)
		if err == nil {
			w.launched = append(w.launched, p)
		}
		return err
	}
	for r := range w.Ranks {
		if w.Absent[r] {
			continue
		}
		number := []string{fmt.Sprint("CKPT_RANK=", r), fmt.Sprint("CKPT_SIZE=", w.Ranks)}
		if w.Arrive {
			number = []string{fmt.Sprint("CKPT_E2E_SLOT=", r)}
		}
		c.Env = append(append(number, env...), w.RankEnv[r]...)
		c.Argv = argv
		if own := w.RankArgv[r]; own != nil && program != nil {
			c.Argv = w.Files.Argv(slices.Concat(command, own)...)
		}
		p, err := Start(c)
		if err != nil {
			return err
		}
		w.launched = append(w.launched, p)
	}
	return nil
}

// Ended tells whether all that was started has ended.
func (w *Whole) Ended() bool {
	for _, p := range w.launched {
		if !p.Ended() {
			return false
		}
	}
	return true
}

// Wait waits for the end of all that was started: by rank under the shell, else the launcher's.
func (w *Whole) Wait(limit time.Duration) ([]Exit, error) {
	end := time.Now().Add(limit)
	var exits []Exit
	for _, p := range w.launched {
		exit, err := p.Wait(time.Until(end))
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, w.Said())
		}
		exits = append(exits, exit)
	}
	return exits, noneLeft(w.Mark)
}

// MustEnd waits for an end that is good everywhere.
func (w *Whole) MustEnd(limit time.Duration) error {
	exits, err := w.Wait(limit)
	if err != nil {
		return err
	}
	for i, exit := range exits {
		if exit != (Exit{}) {
			return fmt.Errorf("process %d: %v\n%s", i, exit, w.Said())
		}
	}
	return nil
}

// Kill ends all at once, the launcher too, or the ranks alone, so that the launcher has to end by itself.
func (w *Whole) Kill(limit time.Duration, launcherToo bool) error {
	ranks := w.Mark.Ranks()
	for _, pid := range ranks {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
	if launcherToo || len(ranks) < w.Ranks { // not all were there yet
		w.Mark.KillAll()
	}
	if !Poll(launcherPatience, nil, w.Ended) {
		if left := w.Mark.Ranks(); len(left) > 0 {
			return fmt.Errorf("killed, and still there:\n%s", Dump(left))
		}
		w.Mark.KillAll()
	}
	_, err := w.Wait(limit)
	return err
}

// launcherPatience is how long a launcher whose ranks are all dead may take. Open MPI's sometimes never ends when that
// happens while they start.
const launcherPatience = 20 * time.Second

// Printed is what all ranks wrote to a stream of their own.
func (w *Whole) Printed(stream string) (string, error) { return w.Files.Printed(stream, w.Ranks) }

// Said is all that anybody wrote to an error stream, for people and for looking up words.
func (w *Whole) Said() string {
	var all strings.Builder
	names, _ := filepath.Glob(string(w.Files) + ".err.*")
	for _, name := range append(names, w.Run.Stderr) {
		text, _ := os.ReadFile(name)
		all.Write(text)
	}
	return all.String()
}

// Same compares what the ranks printed.
func (w *Whole) Same(native *Whole) error {
	want, err := native.Printed("out")
	if err != nil {
		return err
	}
	got, err := w.Printed("out")
	if err != nil {
		return err
	}
	if want == "" {
		return errors.New("natively nothing was printed")
	}
	if got != want {
		return fmt.Errorf("the ranks print %q, natively %q", got, want)
	}
	return nil
}

// Epoch is the last committed one, 0 if there is none.
func (w *Whole) Epoch() (int, error) { return (&Chain{Run: w.Run}).epochs() }

// Ckptctl runs the operator's command, and returns how it ended and what it said.
func (w *Whole) Ckptctl(dir string, limit time.Duration, argv ...string) (Exit, string, error) {
	r, err := NewRun(dir)
	if err != nil {
		return Exit{}, "", err
	}
	if err := r.Once(limit, append([]string{w.Built.CkptCtl()}, argv...)...); err != nil {
		return Exit{}, "", err
	}
	out, err := os.ReadFile(r.Stdout)
	if err != nil {
		return Exit{}, "", err
	}
	errs, err := os.ReadFile(r.Stderr)
	return r.Exit, string(out) + string(errs), err
}
