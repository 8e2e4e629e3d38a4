// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// markName is the variable by which processes that a test started are found again.
const markName = "CKPT_E2E_MARK"

// Mark stands for one test's processes.
type Mark string

// NewMark returns a mark that nobody else has.
func NewMark() Mark {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return Mark(hex.EncodeToString(b[:]))
}

// Variable is what processes of the mark have in their environment.
func (m Mark) Variable() string { return markName + "=" + string(m) }

// Processes lists the live processes that carry the mark. ckptrun and what it starts inherit it.
func (m Mark) Processes() []int {
	var pids []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	want := []byte(m.Variable())
	for _, dir := range dirs {
		environ, err := os.ReadFile(dir + "/environ")
		if err != nil || !slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(v []byte) bool { return bytes.Equal(v, want) }) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Ranks lists the processes that run ckptrun. The frozen copy of a rank, from which the image is written, is not
// listed: without the copy a checkpoint fails, and the job goes on.
func (m Mark) Ranks() []int {
	all := map[int]bool{}
	for _, pid := range m.Processes() {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && filepath.Base(exe) == "ckptrun" {
			all[pid] = true
		}
	}
	var pids []int
	for pid := range all {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(status), "\nPPid:\t")
		line, _, _ := strings.Cut(after, "\n")
		if parent, err := strconv.Atoi(line); err == nil && !all[parent] {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// KillAll ends every process that carries the mark.
func (m Mark) KillAll() {
	for range 100 { // new ones may be born meanwhile
		pids := m.Processes()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Command says what to start.
type Command struct {
	Argv []string
	Dir  string
	Env  []string // added to this process's environment
	Mark Mark
	// Stdout and Stderr are files that are appended to, as "PROGRAM >> FILE" does. Stdin is /dev/null.
	Stdout, Stderr string
}

// Process is a program that was started.
type Process struct {
	Argv []string
	cmd  *exec.Cmd
	mark Mark
	done chan struct{} // closed when it has ended
}

// Start starts a command in a process group of its own.
func Start(c Command) (*Process, error) {
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Dir = c.Dir
	cmd.Env = append(append(os.Environ(), c.Env...), c.Mark.Variable())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := appendTo(c.Stdout)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	errs, err := appendTo(c.Stderr)
	if err != nil {
		return nil, err
	}
	defer errs.Close()
	cmd.Stdout, cmd.Stderr = out, errs
	// What this process inherited, and what a library of it opened without O_CLOEXEC (FUSE's opens
	// /dev/null so), must not reach the program: its own numbers would depend on who runs the test.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("close_range: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", strings.Join(c.Argv, " "), err)
	}
	p := &Process{Argv: c.Argv, cmd: cmd, mark: c.Mark, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in ProcessState
		close(p.done)
	}()
	return p, nil
}

func appendTo(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended tells whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit is how a process ended.
type Exit struct {
	Code   int
	Signal syscall.Signal // not 0: this signal killed the process, and Code has no meaning
}

func (e Exit) String() string {
	if e.Signal != 0 {
		return fmt.Sprintf("signal %d (%v)", int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// HangError says that a process did not end in time. It was killed.
type HangError struct {
	Argv  []string
	Limit time.Duration
	Dump  string // what all processes of the mark were doing
}

func (e *HangError) Error() string {
	return fmt.Sprintf("%s did not end within %v\n%s", strings.Join(e.Argv, " "), e.Limit, e.Dump)
}

// Wait waits for the end of the process. When it takes longer than limit, everything with its mark is
// killed and the error is a *HangError.
func (p *Process) Wait(limit time.Duration) (Exit, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		dump := Dump(p.mark.Processes())
		p.Kill()
		return Exit{}, &HangError{Argv: p.Argv, Limit: limit, Dump: dump}
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		return Exit{}, errors.New("no wait status")
	}
	if status.Signaled() {
		return Exit{Signal: status.Signal()}, nil
	}
	return Exit{Code: status.ExitStatus()}, nil
}

// Kill ends the process, its group and everything with its mark, and waits for it.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL) // the group may be gone
	p.mark.KillAll()
	<-p.done
}

// Dump describes what the threads of processes are doing.
func Dump(pids []int) string {
	var b strings.Builder
	for _, pid := range pids {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		fmt.Fprintf(&b, "process %d: %s\n", pid, bytes.ReplaceAll(command, []byte{0}, []byte{' '}))
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", pid))
		for _, task := range tasks {
			fmt.Fprintf(&b, "  thread %s %s: wchan %s, system call %s\n", filepath.Base(task),
				oneLine(task+"/comm"), oneLine(task+"/wchan"), oneLine(task+"/syscall"))
			status, _ := os.ReadFile(task + "/status")
			for line := range strings.Lines(string(status)) {
				if strings.HasPrefix(line, "State") || strings.HasPrefix(line, "Sig") || strings.HasPrefix(line, "ShdPnd") {
					fmt.Fprintf(&b, "    %s", line)
				}
			}
			if stack := oneLine(task + "/stack"); stack != "" {
				fmt.Fprintf(&b, "    stack %s\n", stack)
			}
			// Those that have ended have no environment, and so no mark: whether a launcher was told is seen here.
			for child := range strings.FieldsSeq(oneLine(task + "/children")) {
				if stat := oneLine("/proc/" + child + "/stat"); strings.Contains(stat, ") Z ") {
					fmt.Fprintf(&b, "    has not been waited for: %s\n", stat)
				}
			}
		}
	}
	return b.String()
}

func oneLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

// Poll calls f until it is true, limit has passed, or stop is closed. It tells whether f was true.
func Poll(limit time.Duration, stop <-chan struct{}, f func() bool) bool {
	deadline := time.Now().Add(limit)
	for {
		if f() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		select {
		case <-stop:
			return f()
		case <-time.After(5 * time.Millisecond):
		}
	}
}
