// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// playedJob stands for the job in the process of rank 0. What is tested here is ckptctl.
type playedJob struct {
	checkpoint func(context.Context, control.Request, func(control.Event)) (control.Result, error)
	status     control.Status
	finished   chan after.Action
}

func (j *playedJob) Checkpoint(ctx context.Context, r control.Request, p func(control.Event)) (control.Result, error) {
	return j.checkpoint(ctx, r, p)
}
func (j *playedJob) Finish(t after.Action)  { j.finished <- t }
func (j *playedJob) Status() control.Status { return j.status }

// play starts a job in a new directory.
func play(t *testing.T) (dir string, s *store.Store, server *control.Server, job *playedJob) {
	t.Helper()
	dir = t.TempDir()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	server, err = control.Listen(control.Config{LoopbackOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	job = &playedJob{finished: make(chan after.Action, 1), status: control.Status{
		State: control.Checkpointing, Phase: "write", Program: "./heat", Started: time.Now().Add(-time.Hour), Epoch: 2, Pending: 3,
		Ranks: []control.RankStatus{
			{Rank: 0, Host: "n1", PID: 7, Phase: "write", Done: 1 << 20, Total: 4 << 20, Rate: 1 << 20},
			{Rank: 1, Host: "n2", PID: 8, Phase: "at the gate", Detail: "waits for rank 0 in MPI_Recv"},
		},
		Last:     &control.Outcome{When: time.Now().Add(-time.Minute), Refused: []string{"a socket is open", "a pending send"}},
		Counters: control.Counters{Committed: 2, Refused: 1},
	}}
	if err := server.Serve(job); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	writeJob(t, s, server.Address())
	return dir, s, server, job
}

func writeJob(t *testing.T, s *store.Store, a control.Address) {
	t.Helper()
	err := s.WriteJob(store.Job{Program: "./heat", Args: []string{"heat.txt"}, Ranks: 2, Host: a.Host, PID: 7,
		MPI: store.MPI{Name: "mpich", Version: "4.0.2"}, Control: a.Control(), Key: a.Token})
	if err != nil {
		t.Fatal(err)
	}
}

// wantText fails when text does not hold all of want.
func wantText(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}

func TestCheckpointPrintsTheEpoch(t *testing.T) {
	dir, _, _, job := play(t)
	result := control.Result{Epoch: 3, Bytes: 1 << 30, Seconds: 2.5, Stopped: 0.02}
	job.checkpoint = func(_ context.Context, r control.Request, p func(control.Event)) (control.Result, error) {
		if r.Then != after.Exit || r.Timeout <= 0 || r.Timeout > time.Minute {
			return control.Result{}, fmt.Errorf("the request is %+v", r)
		}
		p(control.Event{Epoch: 3, Phase: "write"})
		return result, nil
	}
	status, out, errOut := ctl(t, "checkpoint", dir, "--then", "exit", "--timeout", "1m")
	if status != 0 || out != "3\n" || errOut != "" {
		t.Errorf("exit status %d, stdout %q, stderr %q", status, out, errOut)
	}
	if then := <-job.finished; then != after.Exit {
		t.Errorf("the job is told to %s", then)
	}
	dir, _, _, job = play(t)
	job.checkpoint = func(context.Context, control.Request, func(control.Event)) (control.Result, error) {
		return result, nil
	}
	var got control.Result
	ctlJSON(t, &got, 0, "checkpoint", dir)
	if d := cmp.Diff(result, got); d != "" {
		t.Error(d)
	}
}

func TestCheckpointThatGetsNoEpoch(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"refused": {&control.RefusedError{Reasons: []string{"rank 2: a socket", "rank 3: 2 messages"}}, []string{"refused", "- rank 2: a socket\n", "- rank 3: 2 messages\n"}},
		"failed":  {errors.New("disk full"), []string{"disk full"}},
		"timeout": {fmt.Errorf("%w: rank 1 waits in MPI_Recv; the job goes on", control.ErrTimeout), []string{"no epoch within 1s", "the job goes on", "rank 1 waits in MPI_Recv"}},
		"ending":  {control.ErrEnding, []string{"the job is ending"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _, _, job := play(t)
			job.checkpoint = func(context.Context, control.Request, func(control.Event)) (control.Result, error) {
				return control.Result{}, test.err
			}
			status, out, errOut := ctl(t, "checkpoint", dir, "--timeout", "1s")
			if status != exitFailed || out != "" {
				t.Errorf("exit status %d, stdout %q; want %d and nothing", status, out, exitFailed)
			}
			wantText(t, errOut, test.want...)
		})
	}
}

func TestLiveCommandsWithoutAJob(t *testing.T) {
	empty := t.TempDir()
	stale, s, server, _ := play(t)
	makeEpoch(t, s, 1, 1, time.Second)
	server.Close()
	damaged := t.TempDir()
	if err := os.WriteFile(damaged+"/job.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	rotten := testStore(t)
	manifest := filepath.Join(rotten.EpochDir(2), "manifest.json")
	b := mustReadFile(t, manifest)
	b[len(b)/2] ^= 1
	if err := os.WriteFile(manifest, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"checkpoint", "status", "watch"} {
		for name, test := range map[string]struct {
			dir  string
			want []string
		}{
			"no directory":   {empty + "/none", []string{"no such file"}},
			"no job":         {empty, []string{"no job runs in " + empty, "ckptrun --dir " + empty}},
			"stale job.json": {stale, []string{"./heat (process 7 on host ", "not running any more", "ckptrun --restart " + stale, "epoch 1"}},
			"damaged":        {damaged, []string{"job.json"}},
			"damaged epoch":  {rotten.Dir(), []string{"no job runs in ", "its newest epoch cannot be used: ", "epoch-000002/manifest.json: damaged", "the newest epoch before it is " + rotten.Dir() + "@1"}},
		} {
			t.Run(command+" "+name, func(t *testing.T) {
				status, out, errOut := ctl(t, command, test.dir)
				if status != exitFailed || out != "" {
					t.Errorf("exit status %d, stdout %q; want %d and nothing", status, out, exitFailed)
				}
				wantText(t, errOut, test.want...)
			})
		}
	}
}

func TestLiveCommandsUsage(t *testing.T) {
	for _, args := range [][]string{
		{"checkpoint"}, {"checkpoint", "a", "b"}, {"checkpoint", ".", "--then", "dance"}, {"checkpoint", ".", "--timeout", "-1s"},
		{"checkpoint", ".", "--timeout", "soon"}, {"status"}, {"watch", ".", "--period", "0s"},
	} {
		if status, out, errOut := ctl(t, args...); status != exitUsage || out != "" || errOut == "" {
			t.Errorf("%v: exit status %d, stdout %q, stderr %q; want %d", args, status, out, errOut, exitUsage)
		}
	}
}

// cutter passes bytes on to a job until it is cut, as if the job's process were killed.
func cutter(t *testing.T, a control.Address) (through control.Address, cut func()) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to := a.Loopback
	a.Loopback = ln.Addr().String()
	conns := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			conns <- c
			conns <- s
			go func() { _, _ = io.Copy(s, c) }()
			go func() { _, _ = io.Copy(c, s) }()
		}
	}()
	return a, func() {
		_ = ln.Close()
		for len(conns) > 0 {
			_ = (<-conns).Close()
		}
	}
}

// A job that dies right after the commit, as --then kill asks for, may not get to say so.
func TestJobGoneBeforeItAnswers(t *testing.T) {
	for _, committed := range []bool{true, false} {
		t.Run(fmt.Sprint("committed ", committed), func(t *testing.T) {
			dir, s, server, job := play(t)
			makeEpoch(t, s, 1, 1, time.Second)
			through, cut := cutter(t, server.Address())
			writeJob(t, s, through)
			job.checkpoint = func(ctx context.Context, _ control.Request, _ func(control.Event)) (control.Result, error) {
				if committed {
					makeEpoch(t, s, 2, 1, time.Second)
				}
				cut()
				return control.Result{}, errors.New("nobody hears this")
			}
			status, out, errOut := ctl(t, "checkpoint", dir, "--then", "kill")
			if committed {
				if status != 0 || out != "2\n" {
					t.Errorf("exit status %d, stdout %q, stderr %q; want epoch 2", status, out, errOut)
				}
				return
			}
			if status != exitFailed || out != "" {
				t.Errorf("exit status %d, stdout %q; want %d and nothing", status, out, exitFailed)
			}
			wantText(t, errOut, "ended before an epoch was committed", "continue from epoch 1")
		})
	}
}

// A job that dies while a request is under way is not waited for: it is said at once that it has ended, and what is there.
func TestJobGoneMeanwhile(t *testing.T) {
	for _, committed := range []bool{true, false} {
		t.Run(fmt.Sprint("committed ", committed), func(t *testing.T) {
			dir, s, server, job := play(t)
			makeEpoch(t, s, 1, 1, time.Second)
			through, cut := cutter(t, server.Address())
			writeJob(t, s, through)
			job.checkpoint = func(context.Context, control.Request, func(control.Event)) (control.Result, error) {
				if committed {
					makeEpoch(t, s, 2, 1, time.Second)
				}
				cut()
				return control.Result{}, errors.New("nobody hears this")
			}
			status, out, errOut := ctl(t, "checkpoint", dir, "--timeout", "1h")
			if status != exitFailed || out != "" {
				t.Errorf("exit status %d, stdout %q; want %d and nothing", status, out, exitFailed)
			}
			if committed {
				wantText(t, errOut, "ended while this request was under way", "epoch 2 was committed meanwhile", "continue from epoch 2")
				return
			}
			wantText(t, errOut, "ended while this request was under way", "no epoch was committed meanwhile", "continue from epoch 1")
		})
	}
}

// One that ends the connection before it has the request may be starting: it is waited for.
func TestJobThatDoesNotListenYet(t *testing.T) {
	dir, s, server, _ := play(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	a := server.Address()
	a.Loopback = ln.Addr().String()
	writeJob(t, s, a)
	status, out, errOut := ctl(t, "checkpoint", dir, "--timeout", "100ms")
	if status != exitFailed || out != "" {
		t.Errorf("exit status %d, stdout %q; want %d and nothing", status, out, exitFailed)
	}
	wantText(t, errOut, "no job has opened it within the time of --timeout")
}

func TestCheckpointInterrupted(t *testing.T) {
	dir, _, _, job := play(t)
	asked, goOn := make(chan struct{}), make(chan struct{})
	var ended error
	job.checkpoint = func(ctx context.Context, _ control.Request, _ func(control.Event)) (control.Result, error) {
		close(asked)
		<-goOn
		ended = ctx.Err()
		return control.Result{Epoch: 1}, nil
	}
	ctx, interrupt := context.WithCancel(t.Context())
	go func() { <-asked; interrupt() }()
	var out, errOut bytes.Buffer
	status := run(ctx, []string{"checkpoint", dir, "--then", "kill"}, &out, &errOut)
	close(goOn)
	<-job.finished
	if status != exitFailed || out.Len() != 0 || ended != nil {
		t.Errorf("exit status %d, stdout %q, the checkpoint's context: %v", status, out.String(), ended)
	}
	wantText(t, errOut.String(), "interrupted; the checkpoint goes on")
}

// A job that stands still after it has got the request does not keep ckptctl for ever.
func TestCheckpointIsNotAnswered(t *testing.T) {
	defer func(d time.Duration) { answerGrace = d }(answerGrace)
	answerGrace = 10 * time.Millisecond
	dir, _, _, job := play(t)
	goOn := make(chan struct{})
	job.checkpoint = func(context.Context, control.Request, func(control.Event)) (control.Result, error) {
		<-goOn
		return control.Result{Epoch: 1}, nil
	}
	var out, errOut bytes.Buffer
	status := run(t.Context(), []string{"checkpoint", dir, "--timeout", "200ms"}, &out, &errOut)
	close(goOn)
	if status != exitFailed || out.Len() != 0 {
		t.Errorf("exit status %d, stdout %q", status, out.String())
	}
	wantText(t, errOut.String(), "does not answer", "it has the request", "ckptctl status")
}

func TestStatus(t *testing.T) {
	dir, _, _, job := play(t)
	status, out, errOut := ctl(t, "status", dir)
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, errOut)
	}
	wantText(t, out, "./heat heat.txt", "2 ranks", "process 7", "mpich 4.0.2", "checkpointing: write (epoch 3)", "refused 1m",
		"- a socket is open", "- a pending send", "2 committed, 1 refused, 0 failed",
		"1.0 MiB of 4.0 MiB", "1.0 MiB/s, 3s left", "waits for rank 0 in MPI_Recv")
	var got control.Status
	ctlJSON(t, &got, 0, "status", dir)
	if d := cmp.Diff(job.status, got); d != "" {
		t.Error(d)
	}
}

func TestWatchUntilTheJobEnds(t *testing.T) {
	dir, _, server, job := play(t)
	pr, pw := io.Pipe()
	status := make(chan int)
	go func() {
		var errOut bytes.Buffer
		s := run(t.Context(), []string{"watch", dir, "--json", "--period", "20ms"}, pw, &errOut)
		_ = pw.Close()
		status <- s
	}()
	d := json.NewDecoder(pr)
	for i := range 3 {
		var got control.Status
		if err := d.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(job.status, got); diff != "" {
			t.Errorf("%d: %s", i, diff)
		}
	}
	go server.Close()
	if _, err := io.Copy(io.Discard, pr); err != nil {
		t.Fatal(err)
	}
	if s := <-status; s != 0 {
		t.Errorf("exit status %d", s)
	}
}

func TestWatchInLinesPrintsChanges(t *testing.T) {
	var out bytes.Buffer
	v := &lineView{w: &out, now: func() time.Time { return time.Date(2000, 1, 1, 1, 2, 3, 0, time.UTC) }}
	s := control.Status{State: control.Running, Program: "heat", Ranks: []control.RankStatus{{Rank: 0, Phase: "computing"}, {Rank: 1, Phase: "computing"}}}
	for range 2 { // the second time nothing has changed
		if err := v.show(s); err != nil {
			t.Fatal(err)
		}
	}
	s.Ranks[1] = control.RankStatus{Rank: 1, Phase: "write", Detail: "slow disk"}
	if err := v.show(s); err != nil {
		t.Fatal(err)
	}
	s.Epoch, s.Last = 1, &control.Outcome{Error: "disk full"}
	if err := v.show(s); err != nil {
		t.Fatal(err)
	}
	v.end(true)
	want := `01:02:03 heat: running; newest epoch: none yet
01:02:03 rank 0: computing
01:02:03 rank 1: computing
01:02:03 rank 1: write: slow disk
01:02:03 heat: running; newest epoch: 1; last checkpoint failed: disk full
01:02:03 the job has ended
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
}

// openTerminal returns a terminal, and a function that closes it and returns what was shown on it.
func openTerminal(t *testing.T) (tty *os.File, shown func() string) {
	t.Helper()
	t.Setenv("TERM", "xterm")
	needmpi.Terminals(t)
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 120})
	}
	if err == nil {
		tty, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan string)
	go func() {
		var b bytes.Buffer
		_, _ = io.Copy(&b, master) // ends with EIO once the other side is closed
		all <- b.String()
	}()
	return tty, func() string {
		_ = tty.Close()
		defer func() { _ = master.Close() }()
		return <-all
	}
}

func TestCheckpointOnATerminalShowsPhases(t *testing.T) {
	dir, _, _, job := play(t)
	job.checkpoint = func(_ context.Context, _ control.Request, p func(control.Event)) (control.Result, error) {
		for _, e := range []control.Event{
			{Epoch: 3, Phase: "agree"}, {Epoch: 3, Phase: "stop", Ranks: 1, Of: 2, Detail: "rank 1 computes"},
			{Epoch: 3, Phase: "write", Done: 1 << 20, Total: 2 << 20},
		} {
			p(e)
			time.Sleep(200 * time.Millisecond) // a slow reader misses events; these are to be seen
		}
		return control.Result{Epoch: 3, Bytes: 2 << 20, Seconds: 1.5}, nil
	}
	tty, shown := openTerminal(t)
	var out bytes.Buffer
	status := run(t.Context(), []string{"checkpoint", dir}, &out, tty)
	text := shown()
	if status != 0 || out.String() != "3\n" {
		t.Errorf("exit status %d, stdout %q", status, out.String())
	}
	wantText(t, text, "agree", "stop", "1 of 2 ranks rank 1 computes", "write", "1.0 MiB of 2.0 MiB", "===", "epoch 3: 2.0 MiB in 1.5s")
}

func TestWatchOnATerminal(t *testing.T) {
	dir, _, server, _ := play(t)
	tty, shown := openTerminal(t)
	ended := make(chan struct{})
	go func() {
		time.Sleep(500 * time.Millisecond) // for some frames
		server.Close()
		close(ended)
	}()
	var errOut bytes.Buffer
	status := run(t.Context(), []string{"watch", dir, "--period", "20ms"}, tty, &errOut)
	<-ended
	text := shown()
	if status != 0 {
		t.Errorf("exit status %d: %s", status, errOut.String())
	}
	wantText(t, text, "./heat: checkpointing: write (epoch 3); newest epoch: 2; last checkpoint refused: a socket is open; a pending send",
		"rank 0", "n1", "1.0 MiB of 4.0 MiB, 1.0 MiB/s, 3s left", "rank 1", "at the gate", "waits for rank 0 in MPI_Recv", "the job has ended")
}
