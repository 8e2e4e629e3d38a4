// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// launchers start ranks with the two MPIs of the distribution.
var launchers = map[string][]string{
	"mpich":   {"mpiexec.mpich"},
	"openmpi": {"mpiexec.openmpi", "--oversubscribe"},
}

// Pairs of MPIs: where a program runs first, and where it is continued.
var Pairs = [][2]string{{"mpich", "mpich"}, {"openmpi", "openmpi"}, {"mpich", "openmpi"}, {"openmpi", "mpich"}}

// Limit is what a job of a few seconds may take on a machine that has much else to do.
const Limit = 5 * time.Minute

// launcherLimit is how long a launcher may take to see that its ranks are gone.
const launcherLimit = time.Minute

// Tool finds a program of the tree for tests, whose backs check themselves. It lies in a folder above the test's.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../../../build/obj/faults/bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make faults first", err)
	}
	return path
}

// Compile builds a program of testdata for one MPI.
func Compile(t testing.TB, mpi, source string, flags ...string) string {
	t.Helper()
	needmpi.Test(t, mpi)
	out := filepath.Join(t.TempDir(), strings.TrimSuffix(source, filepath.Ext(source))+"-"+mpi)
	args := append([]string{"-O2", "-o", out, filepath.Join("testdata", source)}, flags...)
	cmd := exec.Command("mpicc."+mpi, args...)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, b)
	}
	return out
}

// Job is one start of the ranks.
type Job struct {
	t      testing.TB
	cmd    *exec.Cmd
	dir    string // of its checkpoints; empty: none
	ranks  int
	mark   e2e.Mark
	own    e2e.RankFiles
	out    output // of the launcher
	exited chan error
}

// output is what a process has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// Start starts a command on all ranks.
func Start(t testing.TB, mpi string, ranks int, command ...string) *Job {
	t.Helper()
	needmpi.Test(t, mpi)
	l := launchers[mpi]
	j := &Job{t: t, ranks: ranks, exited: make(chan error, 1)}
	if i := slices.Index(command, "--dir"); i >= 0 { // a program that goes on has the environment and the files that it began with
		j.dir = command[i+1]
		j.mark, j.own = e2e.Mark(j.dir), e2e.RankFiles(j.dir+".rank")
	} else {
		j.mark, j.own = e2e.NewMark(), e2e.RankFiles(filepath.Join(t.TempDir(), "rank"))
	}
	args := append(append([]string{}, l[1:]...), "-n", fmt.Sprint(ranks))
	j.cmd = exec.Command(l[0], append(args, j.own.Argv(command...)...)...)
	j.cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", j.mark.Variable())
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.out
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { j.exited <- j.cmd.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL) // it may be gone
		j.mark.KillAll()
	})
	return j
}

// killRanks kills all but the launcher. The ranks' command lines are the program's; the mark finds them.
func (j *Job) killRanks() {
	for _, pid := range j.mark.Processes() {
		if pid != j.cmd.Process.Pid {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
		}
	}
}

// Where is what the ranks have written so far, and where each of their threads stands.
func (j *Job) Where() string { return j.Output() + "\n" + e2e.Dump(j.mark.Processes()) }

// Ended tells whether the ranks have ended by themselves, waiting at most so long.
func (j *Job) Ended(wait time.Duration) bool {
	select {
	case err := <-j.exited:
		j.exited <- err
		return true
	case <-time.After(wait):
		return false
	}
}

// Output is what the launcher and the ranks have written so far.
func (j *Job) Output() string {
	j.out.mu.Lock()
	defer j.out.mu.Unlock()
	all := j.out.text.String()
	for _, stream := range []string{"out", "err"} {
		if text, err := j.own.Printed(stream, j.ranks); err == nil { // else not all are there yet
			all += text
		}
	}
	return all
}

// Kill ends the ranks as a crash of their nodes would. Open MPI's mpiexec now and then locks itself up when
// its ranks die, one of its threads waiting for a lock for ever; then it is killed too, as users have to.
func (j *Job) Kill() {
	j.t.Helper()
	j.killRanks()
	if j.Ended(launcherLimit) {
		return
	}
	launcher := j.cmd.Process.Pid
	if left := j.mark.Processes(); len(left) != 1 || left[0] != launcher {
		j.t.Fatalf("ranks are left although all were killed\n%s", j.Where())
	}
	j.t.Logf("the launcher is killed: it did not end in %v although all ranks are gone\n%s", launcherLimit, j.Where())
	_ = syscall.Kill(-launcher, syscall.SIGKILL) // it may end by itself now
	if !j.Ended(Limit) {
		j.t.Fatalf("the launcher does not end although it was killed\n%s", j.Where())
	}
}

// Result is the lines of two words with which a program of ours ends, one line natively; empty when there is
// none. A program that was saved after it had printed does not print again.
func (j *Job) Result() string {
	text, err := j.own.Printed("out", j.ranks)
	if err != nil {
		j.t.Errorf("what the ranks printed: %v", err)
	}
	var found []string
	for line := range strings.Lines(text) {
		if len(strings.Fields(line)) == 2 {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return strings.Join(found, "\n")
}

// Save makes a checkpoint; false when the job has ended meanwhile.
func (j *Job) Save() bool {
	j.t.Helper()
	for end := time.Now().Add(Limit); !j.Ended(10 * time.Millisecond); {
		if _, err := os.Stat(filepath.Join(j.dir, "job.json")); err == nil {
			break
		}
		if time.Now().After(end) {
			j.t.Fatalf("the job does not say where it listens within %v\n%s", Limit, j.Where())
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	go func() { // ckptctl would wait for a job that is started again
		for !j.Ended(50*time.Millisecond) && ctx.Err() == nil {
		}
		select {
		case <-ctx.Done():
		case <-time.After(15 * time.Second):
			cancel()
		}
	}()
	b, err := exec.CommandContext(ctx, Tool(j.t, "ckptctl"), "checkpoint", j.dir, "--timeout", "3m").CombinedOutput()
	if err == nil {
		return true
	}
	if !j.Ended(time.Minute) { // a program that has come to its end does so within moments
		j.t.Fatalf("no checkpoint: %v\n%s\n%s", err, b, j.Where())
	}
	return false
}

// Program is what goes through the cycles.
type Program struct {
	Ranks   int
	Command map[string][]string // by MPI
	Want    string              // its result, natively
	Kills   int                 // at most
	Most    time.Duration       // after which it is saved, at most
}

// Native runs the program as it is and remembers its result.
func (p *Program) Native(t testing.TB, mpi string) {
	t.Helper()
	j := Start(t, mpi, p.Ranks, p.Command[mpi]...)
	if !j.Ended(Limit) {
		t.Fatalf("%v: the native run does not end\n%s", p.Command[mpi], j.Where())
	}
	if p.Want = j.Result(); p.Want == "" {
		t.Fatalf("%v: no result of the native run\n%s", p.Command[mpi], j.Output())
	}
}

// Run saves the program at moments that nobody chose, kills it, continues it under the next of the MPIs,
// and so on around; in the end its result must be the native one.
func (p *Program) Run(t *testing.T, mpis ...string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ckpt")
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	pause := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
	run := Tool(t, "ckptrun")
	j := Start(t, mpis[0], p.Ranks, append([]string{run, "--dir", dir}, p.Command[mpis[0]]...)...)
	kills := 0
	for ; kills < p.Kills; kills++ {
		if j.Ended(pause(p.Most)) || !j.Save() || j.Ended(pause(60*time.Millisecond)) {
			break
		}
		j.Kill()
		if err := os.Remove(filepath.Join(dir, "job.json")); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		j = Start(t, mpis[(kills+1)%len(mpis)], p.Ranks, run, "--dir", dir, "--restart", dir)
	}
	if !j.Ended(Limit) {
		t.Fatalf("seed %d: it does not end after %d restarts\n%s", seed, kills, j.Where())
	}
	if got := j.Result(); got != p.Want || got == "" {
		t.Errorf("seed %d, %d restarts: got %q, want %q\n%s", seed, kills, got, p.Want, j.Output())
	}
	t.Logf("%d restarts", kills)
}
