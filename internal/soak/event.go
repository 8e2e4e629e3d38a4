// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
)

// events are what may happen to a program, each so often.
var events = []struct {
	name   string
	weight int
	happen func(*Life) error
}{
	{"checkpoint and go on", 8, func(l *Life) error { return l.save("continue") }},
	{"checkpoint, exit, restart", 2, func(l *Life) error { return l.save("exit") }},
	{"checkpoint, kill, restart", 2, func(l *Life) error { return l.save("kill") }},
	{"kill -9 of all ranks, restart", 2, func(l *Life) error { return l.crash(false) }},
	{"kill -9 of one rank, restart", 1, func(l *Life) error { return l.crash(true) }},
	{"kill -9 in the middle of a checkpoint, restart", 3, (*Life).crashInside},
	{"two requests at once", 2, (*Life).saveTwice},
	{"requests on the heels of others", 2, (*Life).saveOften},
	{"a request with too little time", 2, (*Life).saveTooFast},
	{"a rank stands still for a while", 1, (*Life).stall},
	{"a rank is paused for longer than a request waits", 1, (*Life).pauseRank},
	{"a second start or restart beside the living job", 2, (*Life).second},
	{"a rank's frozen copy is killed", 2, (*Life).killCopy},
	{"job.json is deleted", 1, (*Life).deleteRecord},
	{fullDisk, 2, (*Life).fillDisk},
}

// fullDisk happens to lives with a disk of their own.
const fullDisk = "the disk is full"

func (l *Life) event() error {
	if ok, err := l.ready(); !ok {
		return err
	}
	// Most moments are spread over the program's time; some come at once, one after the other.
	most := l.native.took / 16
	if l.random.IntN(4) == 0 {
		most = 20 * time.Millisecond
	}
	if l.pause(most) {
		return nil
	}
	total := 0
	for _, e := range events {
		total += e.weight
	}
	at := l.random.IntN(total)
	for _, e := range events {
		if at -= e.weight; at < 0 {
			if e.name == fullDisk && l.disk == nil {
				e = events[0]
			}
			l.tell("%s", e.name)
			l.count(e.name)
			l.Cycles++
			return e.happen(l)
		}
	}
	return nil
}

// answer is what ckptctl said.
type answer struct {
	exit           e2e.Exit
	stdout, stderr string
	then           string
}

func (l *Life) ask(serial int, args ...string) (*e2e.Process, string, error) {
	name := filepath.Join(l.Dir, fmt.Sprintf("request-%02d-%d", l.Cycles, serial))
	p, err := e2e.Start(e2e.Command{Argv: append([]string{l.tree.Tool("ckptctl"), "checkpoint", l.checkpoints(), "--json"}, args...),
		Dir: l.Dir, Mark: l.mark, Stdout: name + ".out", Stderr: name + ".err"})
	return p, name, err
}

// request asks for a checkpoint and waits for the answer.
func (l *Life) request(serial int, then string, timeout time.Duration) (answer, error) {
	p, name, err := l.ask(serial, "--then", then, "--timeout", timeout.String())
	if err != nil {
		return answer{}, err
	}
	exit, err := l.awaitAnswer(p, timeout+time.Minute)
	return answer{exit, read(name + ".out"), read(name + ".err"), then}, err
}

// awaitAnswer waits for an answer, but not for long once the job has ended: ckptctl cannot know that
// nobody is going to start it again.
func (l *Life) awaitAnswer(p *e2e.Process, limit time.Duration) (e2e.Exit, error) {
	select {
	case <-p.Done():
	case <-l.now.process.Done():
		select {
		case <-p.Done():
		case <-time.After(answerLimit):
			l.tell("the job has ended, and ckptctl still asks")
			_ = syscall.Kill(p.PID(), syscall.SIGINT)
		}
	case <-time.After(limit):
	}
	return l.await(p, dieLimit, "ckptctl checkpoint does not answer")
}

func read(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// judge takes the answer to a request that should have worked. It is false when the program has ended
// meanwhile, which excuses it.
func (l *Life) judge(a answer) (bool, error) {
	if a.exit != (e2e.Exit{}) {
		// A program that has come to its end does so within moments.
		if e2e.Poll(30*time.Second, l.now.process.Done(), l.now.process.Ended) {
			l.tell("too late: %s", strings.TrimSpace(a.stderr))
			return false, nil
		}
		return false, fmt.Errorf("no checkpoint: ckptctl: %v: %s\n%s\nstderr of the job: %s", a.exit, a.stderr, l.where(), tail(l.now.stderr))
	}
	var result struct {
		Epoch   int     `json:"epoch"`
		Seconds float64 `json:"seconds"`
		Safe    float64 `json:"safe"`
		Joined  bool    `json:"joined"`
	}
	if err := json.Unmarshal([]byte(a.stdout), &result); err != nil {
		return false, fmt.Errorf("ckptctl answers %q: %w", a.stdout, err)
	}
	if result.Seconds > 0 && !result.Joined {
		l.Commit = append(l.Commit, time.Duration(result.Seconds*float64(time.Second)))
		l.Safe = append(l.Safe, time.Duration(result.Safe*float64(time.Second)))
	}
	l.tell("epoch %d after %.3f s, safe after %.3f s", result.Epoch, result.Seconds, result.Safe)
	return true, nil
}

func (l *Life) save(then string) error {
	a, err := l.request(0, then, requestLimit)
	if err != nil {
		return err
	}
	ok, err := l.judge(a)
	if err != nil || !ok || then == "continue" {
		return err
	}
	return l.ended(then)
}

// ended expects the end that was asked for, and starts the program again.
func (l *Life) ended(then string) error {
	exit, err := l.await(l.now.process, dieLimit, "saved to "+then+", the job does not end")
	if err != nil {
		return err
	}
	if then == "exit" && exit != (e2e.Exit{}) {
		return fmt.Errorf("saved to exit, it ended with %v: %s", exit, tail(l.now.stderr))
	}
	if err := l.dead(); err != nil {
		return err
	}
	return l.start()
}

func (l *Life) crash(one bool) error {
	if err := l.kill(one); err != nil {
		return err
	}
	return l.start()
}

// crashInside kills while a checkpoint is under way, or just over.
func (l *Life) crashInside() error {
	p, _, err := l.ask(0, "--then", []string{"continue", "exit", "kill"}[l.random.IntN(3)], "--timeout", requestLimit.String())
	if err != nil {
		return err
	}
	// Half of the checkpoints need less than that.
	time.Sleep(time.Duration(l.random.Float64() * float64(400*time.Millisecond)))
	if err := l.kill(l.random.IntN(3) == 0); err != nil {
		return err
	}
	if _, err := l.awaitAnswer(p, dieLimit); err != nil {
		return err
	}
	return l.start()
}

// saveTwice asks for the same, or for two things that cannot both be had.
func (l *Life) saveTwice() error {
	second := []string{"continue", "exit"}[l.random.IntN(2)]
	gap := time.Duration(l.random.Float64() * float64(50*time.Millisecond))
	answers := make(chan answer, 2)
	failures := make(chan error, 2)
	for i, then := range []string{"continue", second} {
		go func() {
			time.Sleep(time.Duration(i) * gap)
			a, err := l.request(i, then, requestLimit)
			answers <- a
			failures <- err
		}()
	}
	exit := false
	both := []answer{<-answers, <-answers}
	if err := errors.Join(<-failures, <-failures); err != nil {
		return err
	}
	for _, a := range both {
		// Whoever comes second to "exit" may be told that the job is ending.
		if a.then == "continue" && second == "exit" && a.exit != (e2e.Exit{}) && strings.Contains(a.stderr, "ending") {
			continue
		}
		ok, err := l.judge(a)
		if err != nil {
			return err
		}
		exit = exit || ok && a.then == "exit"
	}
	if exit {
		return l.ended("exit")
	}
	return nil
}

// saveOften asks again as soon as the answer is there.
func (l *Life) saveOften() error {
	for i := range 2 + l.random.IntN(3) {
		a, err := l.request(i, "continue", requestLimit)
		if err != nil {
			return err
		}
		if ok, err := l.judge(a); err != nil || !ok {
			return err
		}
	}
	return nil
}

// saveTooFast asks for a checkpoint in less time than it may need: either it is made, or that is said, and
// the job goes on to be asked again, at once or later.
func (l *Life) saveTooFast() error {
	a, err := l.request(0, "continue", time.Duration(1+l.random.IntN(150))*time.Millisecond)
	if err != nil || a.exit == (e2e.Exit{}) {
		return err
	}
	if ok, err := l.refused(a, tooLate...); err != nil || !ok || l.random.IntN(2) == 0 {
		return err
	}
	return l.save("continue")
}

// tooLate is what is said of a request whose time was over.
var tooLate = []string{"no epoch within", "no safe state in", "no job has opened it within"}

// stall stops one rank as a debugger would, with a request under way.
func (l *Life) stall() error {
	pids := l.mark.Ranks()
	if len(pids) == 0 {
		return nil
	}
	pid := pids[l.random.IntN(len(pids))]
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	go func() {
		time.Sleep(300 * time.Millisecond)
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}()
	return l.save("continue")
}

// where tells what the job says of itself, and what its threads are doing.
func (l *Life) where() string {
	var b bytes.Buffer
	status := exec.Command("timeout", "10", l.tree.Tool("ckptctl"), "status", l.checkpoints())
	status.Stdout, status.Stderr = &b, &b
	if err := status.Run(); err != nil {
		fmt.Fprintf(&b, "ckptctl status: %v\n", err)
	}
	pids := l.mark.Ranks()
	if gdb, err := exec.LookPath("gdb"); err == nil {
		for _, pid := range pids {
			fmt.Fprintf(&b, "stacks of process %d:\n", pid)
			cmd := exec.Command("timeout", "60", gdb, "-batch", "-p", fmt.Sprint(pid), "-ex", "thread apply all bt 24")
			cmd.Stdout, cmd.Stderr = &b, &b
			if err := cmd.Run(); err != nil {
				fmt.Fprintf(&b, "gdb: %v\n", err)
			}
		}
	} else {
		b.WriteString(e2e.Dump(pids))
	}
	return b.String()
}
