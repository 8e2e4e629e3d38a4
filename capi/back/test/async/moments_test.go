// SPDX-License-Identifier: Apache-2.0

package async

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// patience is how long anything may take on a machine that is busy with other things.
const patience = 4 * time.Minute

// ranks is what moments.c needs.
const ranks = 3

// moments is a run of moments.c, which stays in each of its stages until it is told to go on.
type moments struct {
	t            *testing.T
	mpi, program string
	dir, stages  string
	ranks        int // 0: as many as moments.c needs
	job          *cycle.Job
}

func newMoments(t *testing.T, mpi string) *moments {
	t.Helper()
	m := &moments{t: t, mpi: mpi, dir: filepath.Join(t.TempDir(), "ckpt"), stages: t.TempDir()}
	m.program = cycle.Compile(t, mpi, "moments.c")
	return m
}

func (m *moments) start(options ...string) {
	m.t.Helper()
	args := append([]string{cycle.Tool(m.t, "ckptrun"), "--dir", m.dir}, options...)
	m.job = cycle.Start(m.t, m.mpi, cmp.Or(m.ranks, ranks), append(args, m.program, m.stages)...)
}

func (m *moments) restart(options ...string) {
	m.t.Helper()
	m.job = cycle.Start(m.t, m.mpi, cmp.Or(m.ranks, ranks), append([]string{cycle.Tool(m.t, "ckptrun"), "--dir", m.dir, "--restart", m.dir}, options...)...)
}

// crash kills the ranks, and starts them again from the newest epoch.
func (m *moments) crash() {
	m.t.Helper()
	m.job.Kill()
	if err := os.Remove(filepath.Join(m.dir, "job.json")); err != nil && !os.IsNotExist(err) {
		m.t.Fatal(err)
	}
	m.restart()
}

// leave lets the program go on from a stage.
func (m *moments) leave(stage string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.stages, stage), nil, 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// command is a ckptctl that runs.
type command struct {
	out, err bytes.Buffer
	done     chan error
}

// ended tells whether it has; its answer can still be asked for.
func (c *command) ended() bool { return len(c.done) > 0 }

func (m *moments) ctl(args ...string) *command {
	m.t.Helper()
	c := &command{done: make(chan error, 1)}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	cmd := exec.CommandContext(ctx, cycle.Tool(m.t, "ckptctl"), args...)
	cmd.Stdout, cmd.Stderr = &c.out, &c.err
	if err := cmd.Start(); err != nil {
		cancel()
		m.t.Fatal(err)
	}
	go func() { defer cancel(); c.done <- cmd.Wait() }()
	return c
}

// ask asks for a checkpoint.
func (m *moments) ask(args ...string) *command {
	m.t.Helper()
	return m.ctl(append([]string{"checkpoint", m.dir, "--timeout", "3m", "--json"}, args...)...)
}

// epoch is what a request is answered.
func (m *moments) epoch(c *command) int {
	m.t.Helper()
	if err := <-c.done; err != nil {
		m.t.Fatalf("no checkpoint: %v\n%s\n%s", err, c.err.String(), m.job.Where())
	}
	var r struct{ Epoch int }
	if err := json.Unmarshal(c.out.Bytes(), &r); err != nil || r.Epoch == 0 {
		m.t.Fatalf("%v: %s", err, c.out.String())
	}
	return r.Epoch
}

// refusal is why there is none.
func (m *moments) refusal(c *command) string {
	m.t.Helper()
	if err := <-c.done; err == nil {
		m.t.Fatalf("a checkpoint that cannot be made: %s", c.out.String())
	}
	return c.err.String()
}

// refusals asks with little time until the refusal says what it should: on a slow machine the time may be
// over before the ranks have told where they are.
func (m *moments) refusals(part string) string {
	m.t.Helper()
	for end := time.Now().Add(patience); ; {
		why := m.refusal(m.ctl("checkpoint", m.dir, "--timeout", "2s"))
		if strings.Contains(why, part) || time.Now().After(end) {
			return why
		}
	}
}

// status is what ckptctl status says.
type status struct {
	State    string
	Epoch    int
	Requests int
	Ranks    []struct {
		PID           int
		Phase, Detail string
		WaitsFor      []int `json:"waits_for"`
	}
}

// await waits until the job is in a state.
func (m *moments) await(what string, is func(status) bool) status {
	m.t.Helper()
	var s status
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		c := m.ctl("status", m.dir, "--json")
		if <-c.done != nil {
			continue
		}
		s = status{}
		if err := json.Unmarshal(c.out.Bytes(), &s); err != nil {
			m.t.Fatalf("%v: %s", err, c.out.String())
		}
		if is(s) {
			return s
		}
	}
	m.t.Fatalf("not in %v: %s: %+v\n%s", patience, what, s, m.job.Where())
	return s
}

// in tells whether a rank is in a call.
func (s status) in(rank int, call string) bool {
	return rank < len(s.Ranks) && strings.Contains(s.Ranks[rank].Detail, call)
}

func (m *moments) end() {
	m.t.Helper()
	if !m.job.Ended(patience) {
		m.t.Fatalf("it does not end\n%s", m.job.Where())
	}
}

func (m *moments) mustContain(what, text string, parts ...string) {
	m.t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			m.t.Errorf("%s does not say %q:\n%s", what, p, text)
		}
	}
}

// natively is the result of a run that nobody disturbs.
func (m *moments) natively() string {
	m.t.Helper()
	return natively(m.t, m.mpi, m.program, "start", "begin", "create", "never", "early", "twice", "finalize")
}

// natively is the result of a program that waits for nobody: it may leave these stages at once.
func natively(t *testing.T, mpi, program string, stages ...string) string {
	t.Helper()
	m := &moments{t: t, stages: t.TempDir()}
	for _, stage := range stages {
		m.leave(stage)
	}
	j := cycle.Start(t, mpi, ranks, program, m.stages)
	if !j.Ended(patience) || j.Result() == "" {
		t.Fatalf("the native run has no result\n%s", j.Where())
	}
	return j.Result()
}

// TestAwkwardMoments asks a job for checkpoints before MPI_Init, while a communicator is made, when there
// can be none, twice at once, and in MPI_Finalize.
func TestAwkwardMoments(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			m := newMoments(t, mpi)
			want := m.natively()

			// No job has opened the directory yet.
			m.mustContain("ckptctl", m.refusal(m.ctl("checkpoint", m.dir)), "--timeout 60s would wait")
			before := m.ask()
			m.start()
			m.leave("start")
			first := m.epoch(before)
			m.leave("begin")

			// The others are inside MPI_Comm_dup, and must come out before the state is safe.
			m.await("ranks 1 and 2 are in MPI_Comm_dup", func(s status) bool { return s.in(1, "MPI_Comm_dup") && s.in(2, "MPI_Comm_dup") })
			during := m.ask()
			m.await("rank 0 owes the call", func(s status) bool { return s.State == "checkpointing" && s.in(0, "owes 1 collective call") })
			m.leave("create")
			if second := m.epoch(during); second <= first {
				t.Errorf("epoch %d after %d", second, first)
			}
			m.crash()

			// Rank 1 does not call what the others are in: given up with who waits where for whom.
			m.await("ranks 0 and 2 are in MPI_Barrier", func(s status) bool { return s.in(0, "MPI_Barrier") && s.in(2, "MPI_Barrier") })
			m.mustContain("the refusal", m.refusals(`rank 1: owes 1 collective call on communicator "grid"`),
				`rank 0: in MPI_Barrier on communicator "grid", waits for rank 1`,
				`rank 1: owes 1 collective call on communicator "grid", for which ranks 0, 2 wait in MPI_Barrier`,
				`rank 2: in MPI_Barrier on communicator "grid", waits for rank 1`)
			m.leave("never")

			// A broadcast that is held at the gate while a debt depends on what follows it.
			m.await("rank 2 is in MPI_Barrier, rank 1 in MPI_Recv", func(s status) bool { return s.in(2, `"pair"`) && s.in(1, "MPI_Recv") })
			// Rank 0 must not come to it before its clock has heard of the request. The time is less than that
			// after which a try is given up and the job goes on: the next one would succeed.
			var stuck *command
			m.await("the request is being served, and rank 1 owes a call", func(s status) bool {
				if stuck == nil || stuck.ended() {
					stuck = m.ctl("checkpoint", m.dir, "--timeout", "12s")
				}
				return s.State == "checkpointing" && s.in(1, `owes 1 collective call on communicator "pair"`)
			})
			m.leave("early")
			m.mustContain("the refusal", m.refusal(stuck), "at the gate of MPI_Bcast", `rank 1: in MPI_Recv on communicator "MPI_COMM_WORLD", waits for a message from rank 0 with tag 3`)

			// The job went on. Three ask while it cannot be saved: two are joined, one wants its end.
			m.await("ranks 1 and 2 are in MPI_Barrier", func(s status) bool { return s.in(1, `"grid"`) && s.in(2, `"grid"`) })
			var asked []*command
			for i, then := range []string{"continue", "continue", "exit"} {
				asked = append(asked, m.ask("--then", then))
				m.await("the requests are there", func(s status) bool { return s.Requests == i+1 })
			}
			m.leave("twice")
			a, b := m.epoch(asked[0]), m.epoch(asked[1])
			if last := m.epoch(asked[2]); a != b || last != a+1 {
				t.Errorf("epochs %d and %d of joined requests, then %d", a, b, last)
			}
			m.end()
			m.restart()

			// All but rank 0 are in MPI_Finalize.
			m.await("ranks 1 and 2 are in MPI_Finalize", func(s status) bool { return s.in(1, "MPI_Finalize") && s.in(2, "MPI_Finalize") })
			m.epoch(m.ask())
			m.crash()
			m.await("it is back there", func(s status) bool { return s.in(1, "MPI_Finalize") && s.in(2, "MPI_Finalize") })
			m.leave("finalize")
			m.end()
			if got := m.job.Result(); got != want || got == "" {
				t.Errorf("got %q, want %q\n%s", got, want, m.job.Output())
			}
		})
	}
}

// TestTriggers has the interval, the overhead and two signals ask for checkpoints.
func TestTriggers(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			m := newMoments(t, mpi)
			want := m.natively()
			m.leave("start")
			m.start("--interval", "500ms")
			at := m.await("the interval has made three epochs", func(s status) bool { return s.Epoch >= 3 }).Epoch
			m.job.Kill()

			m.restart("--signal", "USR1=continue,USR2=exit")
			s := m.await("all ranks are there", func(s status) bool { return s.Ranks[2].PID != 0 })
			signal := func(rank int, n syscall.Signal) {
				if err := syscall.Kill(s.Ranks[rank].PID, n); err != nil {
					t.Fatal(err)
				}
			}
			signal(1, syscall.SIGUSR1)
			m.await("the signal has made an epoch", func(s status) bool { return s.Epoch > at })
			signal(2, syscall.SIGUSR2)
			m.end()

			for _, stage := range []string{"begin", "create", "never", "early", "twice"} {
				m.leave(stage)
			}
			at = m.newest()
			m.restart("--overhead", "50%")
			m.await("the overhead has made two epochs", func(s status) bool { return s.Epoch >= at+2 })
			m.leave("finalize")
			m.end()
			if got := m.job.Result(); got != want || got == "" {
				t.Errorf("got %q, want %q\n%s", got, want, m.job.Output())
			}
		})
	}
}

// newest is the newest epoch that is committed.
func (m *moments) newest() int {
	m.t.Helper()
	all, err := filepath.Glob(filepath.Join(m.dir, "epoch-*", "manifest.json"))
	if err != nil || len(all) == 0 {
		m.t.Fatalf("no epoch in %s: %v", m.dir, err)
	}
	n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(all[len(all)-1])), "epoch-"))
	if err != nil {
		m.t.Fatal(fmt.Errorf("a strange name: %w", err))
	}
	return n
}
