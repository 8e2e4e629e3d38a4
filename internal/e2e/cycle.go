// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Run is one execution of a program: where the program ran, and its result.
type Run struct {
	Dir            string // all files of the run are below
	Exit           Exit
	Stdout, Stderr string // files
	Time           time.Duration
}

// NewRun prepares the folders of a run.
func NewRun(dir string) (*Run, error) {
	r := &Run{Dir: dir, Stdout: filepath.Join(dir, "stdout"), Stderr: filepath.Join(dir, "stderr")}
	return r, os.MkdirAll(r.Work(), 0o755)
}

// Work is the program's own folder, empty at first.
func (r *Run) Work() string { return filepath.Join(r.Dir, "work") }

// Checkpoints is the folder of the checkpoints.
func (r *Run) Checkpoints() string { return filepath.Join(r.Dir, "ckpt") }

// Start starts a command of the run; its output is appended to that of earlier ones.
func (r *Run) Start(mark Mark, argv ...string) (*Process, error) {
	return Start(Command{Argv: argv, Dir: r.Work(), Mark: mark, Stdout: r.Stdout, Stderr: r.Stderr,
		Env: []string{"TMPDIR=" + r.Work(), "LC_ALL=C"}})
}

// Once runs a command to its end.
func (r *Run) Once(limit time.Duration, argv ...string) error {
	mark := NewMark()
	defer mark.KillAll()
	start := time.Now()
	p, err := r.Start(mark, argv...)
	if err != nil {
		return err
	}
	r.Exit, err = p.Wait(limit)
	r.Time = time.Since(start)
	if err != nil {
		return err
	}
	return noneLeft(mark)
}

// patience is the time that a small step may take on a loaded machine. No result depends on it.
var patience = slowly(2 * time.Minute)

// slowly is more of a limit where the processor is emulated.
func slowly(d time.Duration) time.Duration {
	if os.Getenv(slowName) != "" {
		return 10 * d
	}
	return d
}

// noneLeft gives killed processes a moment to disappear.
func noneLeft(mark Mark) error {
	if Poll(patience, nil, func() bool { return len(mark.Processes()) == 0 }) {
		return nil
	}
	return fmt.Errorf("left behind:\n%s", Dump(mark.Processes()))
}

// slowName is set where the processor is emulated (scripts/test-vm.sh). A job that has just begun to compute may take more than
// 10 s there to greet ckptctl, which then goes and comes again, and the job logs that. Nothing else is forgiven.
const slowName = "LIBCKPT_E2E_SLOW"

var late = regexp.MustCompile(`(?m)^\S+\tWARN\tckptrun\t(?:somebody who is not of this job connected|a connection was closed before it said who it is)[^\t]*\t\{"port": "control port", "error": "handshake with 127\.0\.0\.1:.*\n`)

// few is the first number, or the second where the processor is emulated.
func few(n, slow int) int {
	if os.Getenv(slowName) != "" {
		return slow
	}
	return n
}

// Same compares two runs and describes the first difference.
func (r *Run) Same(other *Run) error {
	var differences []error
	if r.Exit != other.Exit {
		differences = append(differences, fmt.Errorf("ended with %v, natively with %v", other.Exit, r.Exit))
	}
	for _, f := range [][3]string{{"stdout", r.Stdout, other.Stdout}, {"stderr", r.Stderr, other.Stderr}} {
		want, err := os.ReadFile(f[1])
		if err != nil {
			return err
		}
		got, err := os.ReadFile(f[2])
		if err != nil {
			return err
		}
		if os.Getenv(slowName) != "" {
			got = late.ReplaceAll(got, nil)
		}
		if at := firstDifference(want, got); at >= 0 {
			differences = append(differences, fmt.Errorf("%s: %d bytes, natively %d; differs at byte %d\n   natively: %q\n   here:     %q",
				f[0], len(got), len(want), at, around(want, at), around(got, at)))
		}
	}
	return errors.Join(differences...)
}

func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func around(b []byte, at int) []byte { return b[max(0, at-200):min(len(b), at+300)] }

// Chain is a program that is saved and killed at random moments, and restarted each time.
type Chain struct {
	Built  *Built
	Run    *Run
	Argv   []string
	Native time.Duration // how long the program takes by itself
	Most   int           // cycles at most
	Random *rand.Rand
	// Options of ckptrun, such as --trap.
	Options []string
	// Machines are commands that play other machines: each restart is started by the next of them in turn.
	// Without any, all runs on this machine.
	Machines [][]string

	// Late is how many chains of the program came too late before this one; with more, this chain asks sooner.
	// The program can be faster than its native time when that was measured while the machine was busy.
	Late int

	Cycles  int // committed, killed and restarted
	TooLate int // the program had ended before the checkpoint was taken
}

// checkpointLimit is what a checkpoint of a small program may take on a loaded machine.
var checkpointLimit = slowly(3 * time.Minute)

// Go runs the chain to the end of the program. The caller compares the run with the native one.
func (c *Chain) Go() error {
	mark := NewMark()
	defer mark.KillAll()
	argv := append([]string{c.Built.CkptRun()}, c.Options...)
	p, err := c.Run.Start(mark, append(append(argv, "--dir", c.Run.Checkpoints(), "--"), c.Argv...)...)
	if err != nil {
		return err
	}
	limit := patience + 20*c.Native
	left := c.Native / time.Duration(1+c.Late)
	for c.Cycles < c.Most {
		delay := time.Duration(c.Random.Float64() * float64(left) * 0.9)
		committed, err := c.cycle(p, mark, delay)
		if err != nil {
			return fmt.Errorf("cycle %d, asked for %v after the start: %w", c.Cycles+1, delay.Round(time.Millisecond), err)
		}
		if !committed {
			c.TooLate++
			break
		}
		c.Cycles++
		left = max(left-delay, c.Native/10/time.Duration(1+c.Late))
		restart := append(append([]string{c.Built.CkptRun()}, c.Options...), "--restart", c.Run.Checkpoints())
		if len(c.Machines) > 0 {
			restart = append(slices.Clone(c.Machines[(c.Cycles-1)%len(c.Machines)]), restart...)
		}
		if p, err = c.Run.Start(mark, restart...); err != nil {
			return err
		}
	}
	if c.Run.Exit, err = p.Wait(limit); err != nil {
		return fmt.Errorf("after %d cycles: %w\nstderr: %s", c.Cycles, err, c.stderr())
	}
	if err := noneLeft(mark); err != nil {
		return fmt.Errorf("after %d cycles: %w", c.Cycles, err)
	}
	return nil
}

func (c *Chain) stderr() string {
	text, _ := os.ReadFile(c.Run.Stderr)
	return string(text)
}

// cycle waits, saves and kills. It returns false when the program ended first.
func (c *Chain) cycle(p *Process, mark Mark, delay time.Duration) (bool, error) {
	if !Poll(patience, p.Done(), func() bool { return c.jobOf(p) }) {
		if p.Ended() {
			return false, nil
		}
		return false, fmt.Errorf("%s does not tell of process %d\n%s", c.Run.Checkpoints()+"/job.json", p.PID(), Dump(mark.Processes()))
	}
	select { // the random moment
	case <-p.Done():
		return false, nil
	case <-time.After(delay):
	}
	before, err := c.epochs()
	if err != nil {
		return false, err
	}
	control, err := NewRun(filepath.Join(c.Run.Dir, fmt.Sprintf("checkpoint-%d", c.Cycles+1)))
	if err != nil {
		return false, err
	}
	ctl, err := control.Start(mark, c.Built.CkptCtl(), "checkpoint", c.Run.Checkpoints(), "--then", "kill", "--timeout", checkpointLimit.String())
	if err != nil {
		return false, err
	}
	// The command waits for a job that is starting, so where the program has just ended it would wait long.
	select {
	case <-ctl.Done():
	case <-p.Done():
		if !Poll(10*time.Second, ctl.Done(), ctl.Ended) {
			if after, err := c.epochs(); err != nil || after <= before {
				ctl.Kill()
				return false, err
			}
		}
	}
	exit, err := ctl.Wait(checkpointLimit + patience)
	if err != nil {
		return false, err
	}
	said, _ := os.ReadFile(control.Stderr)
	if exit != (Exit{}) {
		// The request was refused or lost: this is normal only if the program has ended meanwhile.
		if Poll(30*time.Second, p.Done(), p.Ended) {
			return false, nil
		}
		return false, fmt.Errorf("ckptctl checkpoint: %v: %s\n%s", exit, said, Dump(mark.Processes()))
	}
	after, err := c.epochs()
	if err != nil {
		return false, err
	}
	if after <= before {
		return false, fmt.Errorf("ckptctl said that it was committed, but there are %d manifests, before %d", after, before)
	}
	killed, err := p.Wait(patience)
	if err != nil {
		return false, fmt.Errorf("after the commit: %w", err)
	}
	if killed != (Exit{Signal: syscall.SIGKILL}) {
		return false, fmt.Errorf("ended with %v after the commit, not killed", killed)
	}
	if err := noneLeft(mark); err != nil {
		return false, fmt.Errorf("after the commit and kill: %w", err)
	}
	return true, nil
}

// jobOf tells whether the job in the folder is this process, so ready to be asked.
func (c *Chain) jobOf(p *Process) bool {
	text, err := os.ReadFile(filepath.Join(c.Run.Checkpoints(), "job.json"))
	if err != nil {
		return false
	}
	var job struct {
		PID int `json:"pid"`
	}
	return json.Unmarshal(text, &job) == nil && job.PID == p.PID()
}

// epochs returns the number of the newest epoch with a manifest, 0 if there is none.
func (c *Chain) epochs() (int, error) {
	manifests, err := filepath.Glob(filepath.Join(c.Run.Checkpoints(), "epoch-*", "manifest.json"))
	if err != nil {
		return 0, err
	}
	newest := 0
	for _, m := range manifests {
		var n int
		name := filepath.Base(filepath.Dir(m))
		if _, err := fmt.Sscanf(strings.TrimPrefix(name, "epoch-"), "%d", &n); err != nil {
			return 0, fmt.Errorf("%s: not an epoch", m)
		}
		newest = max(newest, n)
	}
	return newest, nil
}
