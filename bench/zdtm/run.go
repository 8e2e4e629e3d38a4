// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
)

// A way is how a program is run.
type way string

const (
	native    way = "native"   // not under ckptrun
	unsaved   way = "ckptrun"  // under it, without a checkpoint
	resumed   way = "continue" // saved, goes on
	restarted way = "kill"     // saved and killed, goes on as a new process
)

// An outcome is what became of a program in one way.
type outcome string

const (
	passes  outcome = "passes"
	fails   outcome = "fails"
	hangs   outcome = "hangs"
	refused outcome = "refused" // ckptrun or ckptctl said why it is not saved, or not continued; nothing was lost
	unready outcome = "unready" // it ended before it was ready
)

// result is what became of a program.
type result struct {
	Program string  `json:"program"`
	Way     way     `json:"way"`
	Outcome outcome `json:"outcome"`
	Said    string  `json:"said,omitempty"` // of one that does not pass
}

type runner struct {
	static  string // the programs
	build   string // the tree of make
	work    string
	options map[string][]string // of each program
	limit   time.Duration
}

// commandOf takes a program and its options from what make would start.
var commandOf = regexp.MustCompile(`(?m)^\./(\S+) --pidfile=\S+ --outfile=\S+(.*)$`)

// list finds the programs that are built, and their options.
func list(static string) (map[string][]string, error) {
	all := map[string][]string{}
	text, err := exec.Command("make", "-C", static, "-n", "-k", "--no-print-directory", "start").Output()
	if err != nil && len(text) == 0 {
		return nil, fmt.Errorf("make -n start in %s: %w", static, err)
	}
	for _, m := range commandOf.FindAllStringSubmatch(string(text), -1) {
		if info, err := os.Stat(filepath.Join(static, m[1])); err == nil && info.Mode()&0o111 != 0 {
			all[m[1]] = strings.Fields(m[2])
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no program of %s is built", static)
	}
	return all, nil
}

// trial is one run.
type trial struct {
	r           *runner
	dir         string
	name        string
	mark        e2e.Mark
	process     *e2e.Process
	out, errors string
}

func (t *trial) start(argv ...string) error {
	if t.process != nil { // what the one before wrote is kept apart from what a refused restart says
		if err := os.Rename(t.errors, t.errors+".before"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	p, err := e2e.Start(e2e.Command{Argv: argv, Dir: t.dir, Mark: t.mark, Stdout: t.out, Stderr: t.errors,
		Env: []string{"ZDTM_READY=" + filepath.Join(t.dir, "ready"), "ENV_00_TEST="}})
	t.process = p
	return err
}

// said is the end of what it printed, in one line.
func (t *trial) said() string {
	text := ""
	for _, f := range []string{t.errors, filepath.Join(t.dir, "log"), filepath.Join(t.dir, "log.inprogress")} {
		b, err := os.ReadFile(f)
		if err == nil {
			text += string(b)
		}
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	lines = lines[max(0, len(lines)-6):]
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	text = strings.ReplaceAll(strings.Join(lines, " / "), t.dir, ".")
	if len(text) > 500 {
		text = text[:500] + "..."
	}
	return text
}

func (t *trial) ready() bool {
	ok := e2e.Poll(t.r.limit, t.process.Done(), func() bool {
		_, err := os.Stat(filepath.Join(t.dir, "ready"))
		return err == nil
	})
	return ok && !t.process.Ended()
}

// end lets it look at what became of it.
func (t *trial) end() (outcome, string) {
	if err := syscall.Kill(t.process.PID(), syscall.SIGTERM); err != nil {
		return fails, err.Error()
	}
	exit, err := t.process.Wait(t.r.limit)
	if hang := (*e2e.HangError)(nil); errors.As(err, &hang) {
		return hangs, t.said()
	}
	b, _ := os.ReadFile(filepath.Join(t.dir, "log"))
	if exit != (e2e.Exit{}) || !strings.Contains(string(b), "PASS") {
		return fails, fmt.Sprintf("%v: %s", exit, t.said())
	}
	return passes, ""
}

// ctl runs ckptctl; what it said is a refusal unless it succeeds.
func (t *trial) save(then string) (bool, string) {
	cmd := exec.Command(filepath.Join(t.r.build, "bin/ckptctl"), "checkpoint", filepath.Join(t.dir, "ckpt"), "--then", then, "--timeout", "20s")
	said, err := cmd.CombinedOutput()
	if err == nil {
		return true, ""
	}
	return false, strings.ReplaceAll(strings.Join(strings.Fields(string(said)), " "), t.dir, ".")
}

// run runs a program in one way.
func (r *runner) run(name string, w way) (res result, err error) {
	res = result{Program: name, Way: w}
	dir, err := os.MkdirTemp(r.work, "run-")
	if err != nil {
		return res, err
	}
	defer os.RemoveAll(dir)
	t := &trial{r: r, dir: dir, name: name, mark: e2e.NewMark(), out: filepath.Join(dir, "out"), errors: filepath.Join(dir, "err")}
	defer t.mark.KillAll()
	program := filepath.Join(dir, name)
	if b, err := os.ReadFile(filepath.Join(r.static, name)); err != nil {
		return res, err
	} else if err := os.WriteFile(program, b, 0o755); err != nil {
		return res, err
	}
	argv := append([]string{"./" + name, "--pidfile=pid", "--outfile=log"}, r.options[name]...)
	ckptrun := filepath.Join(r.build, "bin/ckptrun")
	if w != native {
		argv = append([]string{ckptrun, "--dir", "ckpt", "--"}, argv...)
	}
	if err := t.start(argv...); err != nil {
		return res, err
	}
	if !t.ready() {
		res.Outcome, res.Said = unready, t.said()
		return res, nil
	}
	if w == resumed || w == restarted {
		ok, said := t.save(map[way]string{resumed: "continue", restarted: "kill"}[w])
		if !ok {
			res.Outcome, res.Said = refused, said
			// It goes on as if nobody had asked.
			if o, said := t.end(); o != passes {
				res.Outcome, res.Said = fails, "refused ("+res.Said+"), and then "+string(o)+": "+said
			}
			return res, nil
		}
	}
	if w == restarted {
		if _, err := t.process.Wait(r.limit); err != nil {
			res.Outcome, res.Said = hangs, "it is not killed: "+err.Error()
			return res, nil
		}
		if err := t.start(ckptrun, "--restart", "ckpt"); err != nil {
			return res, err
		}
		running := e2e.Poll(r.limit, t.process.Done(), func() bool {
			said, err := exec.Command(filepath.Join(r.build, "bin/ckptctl"), "status", filepath.Join(dir, "ckpt")).Output()
			return err == nil && strings.Contains(string(said), "runs")
		})
		if !running || t.process.Ended() {
			res.Outcome, res.Said = refused, t.said()
			return res, nil
		}
	}
	res.Outcome, res.Said = t.end()
	return res, nil
}
