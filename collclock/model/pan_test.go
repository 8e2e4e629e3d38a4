// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/libckpt/libckpt/collclock/scenario"
)

//go:embed *.pml
var models embed.FS

// Result is what Spin's verifier said.
type Result struct {
	States   int
	Errors   int
	Complete bool   // the whole state space was searched (or an error ended the search)
	Kind     string // of the error: "assertion violated (...)", "invalid end state", ...
	Output   string
}

// Verdict is "ok", "unfinished", or the error.
func (r Result) Verdict() string {
	switch {
	case r.Errors > 0:
		return r.Kind
	case !r.Complete:
		return "unfinished"
	}
	return "ok"
}

// Job is one verification.
type Job struct {
	Model    string            // file name, such as "rcc.pml"
	Defines  []string          // for the model, such as "ABORT"
	Program  *scenario.Program // nil for models that stand alone
	Trace    *Trace            // what the model must be able to do; nil: no restriction
	Liveness bool              // look for acceptance cycles under weak fairness, not for end states
	Depth    int               // longest run; 0: 20000
	MemoryMB int               // 0: 3000
}

// Check runs spin, the C compiler and the verifier in dir, which must be empty and writable.
func (j Job) Check(ctx context.Context, dir string) (Result, error) {
	text, err := models.ReadFile(j.Model)
	if err != nil {
		return Result{}, fmt.Errorf("model %s: %w", j.Model, err)
	}
	trace, fill := j.Trace.header()
	files := map[string]string{j.Model: string(text), "trace.h": trace}
	if j.Program != nil {
		if files["program.h"], files["threads.h"], err = Headers(j.Program); err != nil {
			return Result{}, err
		}
		files["threads.h"] = strings.Replace(files["threads.h"], "TRACE_EVENTS", fill, 1)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return Result{}, err
		}
	}
	args := []string{"-a"}
	for _, d := range j.Defines {
		args = append(args, "-D"+d)
	}
	if out, err := run(ctx, dir, "spin", append(args, j.Model)...); err != nil {
		return Result{}, fmt.Errorf("spin -a %s: %w\n%s", j.Model, err, out)
	}
	// Most models are searched faster than they are compiled.
	optimize := "-O0"
	if j.Model == "rcc.pml" && j.Trace == nil {
		optimize = "-O2"
	}
	cc := []string{optimize, "-w", "-DCOLLAPSE", "-DNOBOUNDCHECK", "-DMEMLIM=" + strconv.Itoa(or(j.MemoryMB, 3000)), "-o", "pan", "pan.c"}
	pan := []string{"-m" + strconv.Itoa(or(j.Depth, 20000)), "-w22"}
	if j.Liveness {
		pan = append(pan, "-a", "-f")
		cc = append(cc, "-DNOREDUCE", "-DNFAIR=3")
	} else {
		cc = append(cc, "-DSAFETY")
	}
	if j.Trace != nil {
		pan = append(pan, "-E") // a schedule that leaves the trace is no error
	}
	if out, err := run(ctx, dir, "cc", cc...); err != nil {
		return Result{}, fmt.Errorf("cc pan.c (%s): %w\n%s", j.Model, err, out)
	}
	out, err := run(ctx, dir, "./pan", pan...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Result{}, fmt.Errorf("pan (%s): %w", j.Model, err)
	}
	return parse(out)
}

func or(v, otherwise int) int {
	if v == 0 {
		return otherwise
	}
	return v
}

func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return string(out), ctx.Err()
	}
	return string(out), err
}

var (
	statesLine = regexp.MustCompile(`(?m)^\s*(\d+) states, stored`)
	errorsLine = regexp.MustCompile(`errors: (\d+)`)
	kindLine   = regexp.MustCompile(`(?m)^pan:\d+: (.*) \(at depth \d+\)`)
)

// parse reads the verifier's report. A search that was cut short (memory, depth) is not complete.
func parse(out string) (Result, error) {
	r := Result{Output: out}
	states, errs := statesLine.FindStringSubmatch(out), errorsLine.FindStringSubmatch(out)
	if states == nil || errs == nil {
		return r, fmt.Errorf("the verifier's report is not understood:\n%s", out)
	}
	r.States, _ = strconv.Atoi(states[1])
	r.Errors, _ = strconv.Atoi(errs[1])
	if k := kindLine.FindStringSubmatch(out); k != nil {
		r.Kind = k[1]
		if strings.HasPrefix(r.Kind, "assertion violated") {
			r.Kind = "assertion violated"
		}
	}
	cut := strings.Contains(out, "Search not completed") || strings.Contains(out, "max search depth too small") ||
		strings.Contains(out, "out of memory") || strings.Contains(out, "memory limit")
	r.Complete = r.Errors > 0 || !cut
	return r, nil
}
