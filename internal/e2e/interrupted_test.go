// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sleeps tells whether the main thread of a process waits in the kernel.
func sleeps(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", pid, pid))
	after := bytes.LastIndexByte(stat, ')')
	return err == nil && after >= 0 && bytes.HasPrefix(stat[after:], []byte(") S"))
}

// A signal that comes while the program is stopped ends the call in which it waits, as it would at any
// other time. The signal is sent once an epoch is begun, so the program stands still, or has just gone on.
func TestSignalEndsStoppedCall(t *testing.T) {
	needCommands(t)
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mark := NewMark()
	defer mark.KillAll()
	argv := append([]string{built.CkptRun(), "--snapshot", "stop", "--dir", run.Checkpoints()}, options()...)
	p, err := run.Start(mark, append(argv, "--", filepath.Join(built.Bin, "interrupted"))...)
	if err != nil {
		t.Fatal(err)
	}
	says := func(text string) {
		t.Helper()
		if !Poll(time.Minute, p.Done(), func() bool { return strings.Contains(string(mustRead(t, run.Stdout)), text) }) {
			t.Fatalf("the program does not say %q, but\n%s\n%s", text, mustRead(t, run.Stdout), Dump(mark.Processes()))
		}
	}
	c := Chain{Built: built, Run: run}
	if !Poll(time.Minute, p.Done(), func() bool { return c.jobOf(p) }) {
		t.Fatalf("no job: %s", mustRead(t, run.Stderr))
	}
	for i, name := range []string{"pause", "nanosleep", "poll", "select", "sigsuspend", "epoll_wait", "read", "sem_wait",
		"sigtimedwait", "sem_timedwait"} {
		says(fmt.Sprintf("wait %d\n", i))
		// Before the call the signal would do nothing but run its handler.
		if !Poll(time.Minute, p.Done(), func() bool { return sleeps(p.PID()) }) {
			t.Fatalf("the program does not wait in %s\n%s", name, Dump(mark.Processes()))
		}
		control, err := NewRun(filepath.Join(run.Dir, fmt.Sprintf("checkpoint-%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		ctl, err := control.Start(mark, built.CkptCtl(), "checkpoint", run.Checkpoints(), "--timeout", checkpointLimit.String())
		if err != nil {
			t.Fatal(err)
		}
		begun := filepath.Join(run.Checkpoints(), fmt.Sprintf("epoch-*%d", i+1))
		Poll(checkpointLimit, ctl.Done(), func() bool {
			found, err := filepath.Glob(begun)
			return err == nil && len(found) > 0
		})
		if err := syscall.Kill(p.PID(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		if exit, err := ctl.Wait(checkpointLimit + 30*time.Second); err != nil || exit != (Exit{}) {
			t.Fatalf("ckptctl: %v %v: %s", exit, err, mustRead(t, control.Stderr))
		}
		says(fmt.Sprintf("done %d %s -1 EINTR signals %d\n", i, name, i+1))
	}
	if exit, err := p.Wait(time.Minute); err != nil || exit != (Exit{}) {
		t.Fatalf("ended with %v %v: %s", exit, err, mustRead(t, run.Stderr))
	}
}

// TestCallsThatNoSignalEnds: programs do not expect EINTR from fcntl or from open of a file, and bash loses a
// descriptor by it. Each call is made thousands of times under a hail of signals.
func TestCallsThatNoSignalEnds(t *testing.T) {
	for _, trap := range []string{"seccomp", "sud"} {
		t.Run(trap, func(t *testing.T) {
			out := outputOf(t, built.CkptRun(), "--trap", trap, "--dir", filepath.Join(t.TempDir(), "ckpt"), "--", filepath.Join(built.Bin, "nowait"), "3")
			if out != "nowait: good\n" {
				t.Error(out)
			}
		})
	}
}

// runOf is a fresh run whose processes end with the test.
func runOf(t *testing.T) (*Run, Mark) {
	t.Helper()
	run, err := NewRun(t.TempDir())
	must(t, err)
	mark := NewMark()
	t.Cleanup(mark.KillAll)
	return run, mark
}

// A program that waits on a socket with a timeout does not notice that it was stopped, and waits on when it is continued from
// an image.
func TestStoppedOnTimeouts(t *testing.T) {
	needCommands(t)
	for _, trap := range []string{"seccomp", "sud"} {
		t.Run(trap, func(t *testing.T) {
			run, mark := runOf(t)
			p, err := run.Start(mark, built.CkptRun(), "--trap", trap, "--dir", run.Checkpoints(), "--", filepath.Join(built.Bin, "timeouts"), run.Dir)
			must(t, err)
			c := Chain{Built: built, Run: run}
			if !Poll(time.Minute, p.Done(), func() bool { return c.jobOf(p) }) {
				t.Fatalf("no job: %s", mustRead(t, run.Stderr))
			}
			says := func(text string) {
				t.Helper()
				if !Poll(time.Minute, p.Done(), func() bool { return strings.Contains(string(mustRead(t, run.Stdout)), text) }) {
					t.Fatalf("the program does not say %q, but\n%s\n%s", text, mustRead(t, run.Stdout), Dump(mark.Processes()))
				}
			}
			for i, name := range []string{"read", "recv", "recvfrom", "readv", "write", "send"} {
				says(fmt.Sprintf("wait %d\n", i))
				if !Poll(time.Minute, p.Done(), func() bool { return sleeps(p.PID()) }) {
					t.Fatalf("the program does not wait in %s\n%s", name, Dump(mark.Processes()))
				}
				then := []string{"continue", "kill"}[i%2]
				control, err := NewRun(filepath.Join(run.Dir, fmt.Sprint("checkpoint-", i)))
				must(t, err)
				must(t, control.Once(checkpointLimit, built.CkptCtl(), "checkpoint", run.Checkpoints(), "--then", then))
				if control.Exit != (Exit{}) {
					t.Fatalf("ckptctl: %v: %s", control.Exit, mustRead(t, control.Stderr))
				}
				if then == "kill" {
					_, err := p.Wait(time.Minute)
					must(t, err)
					p, err = run.Start(mark, built.CkptRun(), "--restart", run.Checkpoints(), "--trap", trap)
					must(t, err)
					if !Poll(time.Minute, p.Done(), func() bool { return c.jobOf(p) }) {
						t.Fatalf("no job: %s", mustRead(t, run.Stderr))
					}
				}
				must(t, os.WriteFile(filepath.Join(run.Dir, fmt.Sprint("go-", i)), nil, 0o644))
				says(fmt.Sprintf("done %d %s 1 \n", i, name))
			}
			if exit, err := p.Wait(time.Minute); err != nil || exit != (Exit{}) {
				t.Fatalf("ended with %v %v: %s", exit, err, mustRead(t, run.Stderr))
			}
		})
	}
}

// TestSleepOnProcessorTime: a relative sleep on processor time ends though checkpoints come faster than it is long, and goes on
// with what was left of it when it is continued from an image.
func TestSleepOnProcessorTime(t *testing.T) {
	needCommands(t)
	for _, trap := range []string{"seccomp", "sud"} {
		t.Run(trap, func(t *testing.T) {
			run, mark := runOf(t)
			p, err := run.Start(mark, built.CkptRun(), "--trap", trap, "--dir", run.Checkpoints(), "--", filepath.Join(built.Bin, "naps"), "3")
			must(t, err)
			c := Chain{Built: built, Run: run}
			made, end := 0, time.Now().Add(2*time.Minute)
			for !p.Ended() {
				if time.Now().After(end) {
					t.Fatalf("the program sleeps, after %d checkpoints\n%s\n%s", made, mustRead(t, run.Stdout), Dump(mark.Processes()))
				}
				if !Poll(time.Minute, p.Done(), func() bool { return c.jobOf(p) }) {
					break
				}
				then := "continue"
				if made%8 == 7 {
					then = "kill"
				}
				control, err := NewRun(filepath.Join(run.Dir, fmt.Sprint("checkpoint-", made)))
				must(t, err)
				must(t, control.Once(checkpointLimit, built.CkptCtl(), "checkpoint", run.Checkpoints(), "--then", then))
				if control.Exit != (Exit{}) {
					break // it has ended
				}
				if made++; then == "kill" {
					_, err := p.Wait(time.Minute)
					must(t, err)
					p, err = run.Start(mark, built.CkptRun(), "--restart", run.Checkpoints(), "--trap", trap)
					must(t, err)
				}
			}
			if exit, err := p.Wait(time.Minute); err != nil || exit != (Exit{}) || !strings.HasSuffix(string(mustRead(t, run.Stdout)), "naps: good\n") {
				t.Errorf("ended with %v %v: %s%s", exit, err, mustRead(t, run.Stdout), mustRead(t, run.Stderr))
			}
			if made < 9 {
				t.Errorf("%d checkpoints", made)
			}
		})
	}
}
