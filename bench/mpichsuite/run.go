// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
)

// way is one of the ways in which a program is run.
type way struct {
	Name  string
	What  string // for the table
	other bool   // above the other MPI, from the start or after the restart
	then  string // what follows the checkpoint, as ckptrun's --signal names it; "": there is none
}

var ways = []way{
	{Name: "native", What: "natively"},
	{Name: "ckptrun", What: "under ckptrun"},
	{Name: "other", What: "under ckptrun above the other MPI", other: true},
	{Name: "continue", What: "saved, goes on", then: "continue"},
	{Name: "exit", What: "saved and ended, goes on in a new job", then: "exit"},
	{Name: "kill", What: "saved and killed, goes on in a new job", then: "kill"},
	{Name: "exit-other", What: "saved and ended, goes on above the other MPI", then: "exit", other: true},
	{Name: "kill-other", What: "saved and killed, goes on above the other MPI", then: "kill", other: true},
}

// result is the result of a program in one way.
type result struct {
	program
	Env     string  `json:"env,omitempty"`
	Way     string  `json:"way"`
	Outcome string  `json:"outcome"`         // "passes", "fails", "hangs"
	Saved   bool    `json:"saved,omitempty"` // an epoch was committed
	Call    int64   `json:"call,omitempty"`  // of MPI's, at which it was asked for, on Rank
	Rank    int     `json:"rank,omitempty"`
	Calls   int64   `json:"calls,omitempty"` // there were on rank 0
	Said    string  `json:"said,omitempty"`  // what a program that does not pass said; why none was saved
	Seconds float64 `json:"seconds,omitempty"`
	// The commit of libckpt that it is a result of.
	Revision string `json:"revision,omitempty"`
}

// differs tells whether a program that passes natively does not pass in this way.
func (res result) differs() bool { return res.Way != "native" && res.Outcome != passes }

const (
	passes = "passes"
	fails  = "fails"
	hangs  = "hangs"
)

// exitCode is that of ranks that were saved and end.
const exitCode = 77

type runner struct {
	build string            // the tree of `make`
	suite map[string]string // the built suite, by ABI
	work  string
	each  time.Duration
	// What a native job may take.
	natively time.Duration
	revision string
	// Done when the run was interrupted: the job that runs is ended, and has no result.
	ctx context.Context
}

func launcher(mpi string, ranks int) []string {
	if mpi == "openmpi" {
		return []string{"mpiexec.openmpi", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "-n", strconv.Itoa(ranks)}
	}
	return []string{"mpiexec.mpich", "-n", strconv.Itoa(ranks)}
}

func otherMPI(mpi string) string {
	if mpi == "mpich" {
		return "openmpi"
	}
	return "mpich"
}

// job is one mpiexec: what it printed is added to the two files.
type job struct {
	argv        []string
	dir         string
	env         []string
	out, errors string
}

func (r *runner) job(j job, bound time.Duration) (exit e2e.Exit, hung bool, err error) {
	mark := e2e.NewMark()
	defer mark.KillAll()
	env := append([]string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}, j.env...)
	p, err := e2e.Start(e2e.Command{Argv: j.argv, Dir: j.dir, Env: env, Mark: mark, Stdout: j.out, Stderr: j.errors})
	if err != nil {
		return exit, false, err
	}
	defer context.AfterFunc(r.ctx, mark.KillAll)()
	exit, err = p.Wait(bound)
	if r.ctx.Err() != nil {
		return exit, false, r.ctx.Err()
	}
	var hang *e2e.HangError
	if errors.As(err, &hang) {
		return exit, true, nil
	}
	return exit, false, err
}

// run runs a program in one way. calls are those of rank 0, as counted before.
func (r *runner) run(p *program, w way, calls int64) (res result, err error) {
	res = result{program: *p, Way: w.Name, Env: strings.Join(p.env, " "), Revision: r.revision}
	began := time.Now()
	defer func() { res.Seconds = time.Since(began).Seconds() }()
	tmp, err := os.MkdirTemp(r.work, "run-")
	if err != nil {
		return res, err
	}
	defer os.RemoveAll(tmp)
	dir := filepath.Join(tmp, "ckpt")
	j := job{dir: filepath.Join(r.suite[p.ABI], p.Folder), env: append([]string{}, p.env...),
		out: filepath.Join(tmp, "out"), errors: filepath.Join(tmp, "err")}
	below, after := p.ABI, p.ABI
	if w.other {
		after = otherMPI(p.ABI)
	}
	if w.then == "" {
		below = after
	}
	ckptrun := filepath.Join(r.build, "bin", "ckptrun")
	j.argv = launcher(below, p.Ranks)
	manifest := filepath.Join(dir, "epoch-000001", "manifest.json")
	if w.Name != "native" {
		j.argv = append(j.argv, ckptrun, "--dir", dir, "--exit-code", strconv.Itoa(exitCode))
	}
	if w.then != "" {
		n := p.number()
		res.Rank = int(n>>8) % p.Ranks
		res.Call = max(3, calls*int64(10+n%80)/100)
		j.argv = append(j.argv, "--signal", "USR1="+w.then)
		j.env = append(j.env, fmt.Sprintf("CKPT_MOMENT=%d:%d:%d", res.Rank, res.Call, syscall.SIGUSR1), "CKPT_MOMENT_EPOCH="+manifest)
	} else {
		j.env = append(j.env, "CKPT_MOMENT_CALLS="+filepath.Join(tmp, "calls"))
	}
	j.argv = append(append(j.argv, "./"+p.Name), strings.Fields(p.Args)...)
	bound := r.each
	if w.Name == "native" {
		bound = r.natively
	}
	exit, hung, err := r.job(j, bound)
	if err != nil {
		return res, err
	}
	if w.then != "" {
		_, err := os.Stat(manifest)
		res.Saved = err == nil
	}
	if res.Saved && w.then != "continue" && !hung {
		j.argv = append(launcher(after, p.Ranks), ckptrun, "--restart", dir)
		if exit, hung, err = r.job(j, bound); err != nil {
			return res, err
		}
	}
	if n, err := os.ReadFile(filepath.Join(tmp, "calls.0")); err == nil {
		res.Calls, _ = strconv.ParseInt(strings.TrimSpace(string(n)), 10, 64)
	}
	out, _ := os.ReadFile(j.out)
	said, _ := os.ReadFile(j.errors)
	res.judge(r.shared(p.ABI, out), r.shared(p.ABI, said), exit, hung)
	return res, nil
}

// shared is a text without the place where the suite's sources are on this machine.
func (r *runner) shared(abi string, text []byte) string {
	source, err := filepath.EvalSymlinks(filepath.Join(r.suite[abi], "source"))
	if err != nil {
		return string(text)
	}
	return strings.ReplaceAll(string(text), source+"/", "test/mpi/")
}

var (
	noErrors  = regexp.MustCompile(`(?im)^\s*(no errors|test passed)\s*$`)
	someWrong = regexp.MustCompile(`(?im)^\s*found\s+[1-9]\d* errors`)
	// What ckptrun says when it makes no checkpoint.
	refusal = regexp.MustCompile(`(?m)^.*ckptrun: .*(checkpoint|epoch).*$`)
)

func (res *result) judge(out, said string, exit e2e.Exit, hung bool) {
	switch {
	case hung:
		res.Outcome = hangs
	case exit.Signal == 0 && exit.Code == 0 && noErrors.MatchString(out) && !someWrong.MatchString(out):
		res.Outcome = passes
	default:
		res.Outcome = fails
	}
	if res.Outcome != passes {
		res.Said = short(fmt.Sprintf("%v; %s | %s", exit, out, said))
	} else if why := refusal.FindString(said); why != "" && !res.Saved {
		res.Said = short(why)
	}
}

// short is the beginning of a job's messages, in one line, without those of launchers about ranks that end.
func short(text string) string {
	var lines []string
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "=") || strings.HasPrefix(l, "----") || strings.HasPrefix(l, "Primary job") {
			continue
		}
		lines = append(lines, l)
	}
	s := strings.Join(lines, " / ")
	if len(s) > 400 {
		s = s[:400] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}
