// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// limit is what one run may take: ranks poll, and may be more than processors.
const limit = 5 * time.Minute

var launchers = map[string][]string{
	"mpich":   {"mpiexec.mpich"},
	"openmpi": {"mpiexec.openmpi", "--oversubscribe", "--bind-to", "none"},
}

// TestSameAsNatively: the result of each program under ckptrun is that of the program alone.
func TestSameAsNatively(t *testing.T) {
	if testing.Short() {
		t.Skip("runs some 50 MPI jobs")
	}
	inputs, err := Inputs()
	if err != nil {
		t.Fatal(err)
	}
	ckptrun, err := filepath.Abs("../../build/bin/ckptrun")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ckptrun); err != nil {
		t.Fatalf("%v: run make first", err)
	}
	// Open MPI does not start as root unless it is told twice; and a linear algebra library that starts
	// threads of its own adds in an order of their own.
	for _, name := range []string{"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"} {
		t.Setenv(name, "1")
	}
	for _, p := range Programs() {
		t.Run(p.Name+", "+p.MPI, func(t *testing.T) {
			needmpi.Test(t, p.MPI)
			p := p.In(inputs, t.TempDir())
			if err := p.Compile(t.TempDir()); err != nil {
				t.Fatal(err)
			}
			native := run(t, p)
			here := run(t, p, ckptrun)
			if native.Exit != here.Exit {
				t.Errorf("ended with %v, natively with %v", here.Exit, native.Exit)
			}
			if err := outcome(t, p, native).Same(outcome(t, p, here)); err != nil {
				t.Error(err)
			}
			t.Logf("natively %v, here %v", native.Time.Round(time.Millisecond), here.Time.Round(time.Millisecond))
		})
	}
}

// run runs a program in a fresh folder; before stands before its command.
func run(t *testing.T, p Program, before ...string) *e2e.Run {
	t.Helper()
	r, err := e2e.NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Supply(r.Work()); err != nil {
		t.Fatal(err)
	}
	var argv []string
	argv = append(argv, launchers[p.MPI]...)
	argv = append(argv, "-n", strconv.Itoa(p.Ranks))
	argv = append(argv, before...)
	argv = append(argv, p.Argv...)
	if argv[0], err = exec.LookPath(argv[0]); err != nil {
		t.Fatalf("%v: make setup installs it", err)
	}
	if err := r.Once(limit, argv...); err != nil {
		t.Fatalf("%v\nstdout: %s\nstderr: %s", err, read(t, r.Stdout), read(t, r.Stderr))
	}
	return r
}

func outcome(t *testing.T, p Program, r *e2e.Run) *Outcome {
	t.Helper()
	o, err := p.Outcome(r.Work(), string(read(t, r.Stdout)), string(read(t, r.Stderr)))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: make test installs what Debian packages", err)
	}
	return b
}

// What ckptrun logs meanwhile is not of the program, wherever it gets between.
func TestLogIsNoResult(t *testing.T) {
	p := netpipe("mpich", 3)
	line := "18:49:03.125\tINFO\tckptrun\tepoch 3 is committed\t{\"bytes\": 3}\n"
	clean := " 28:   98304 bytes      3 times -->  Integrity check passed\n 29:   98305 bytes      3 times -->  Integrity check passed\n"
	native, err := p.Outcome(t.TempDir(), "", clean)
	if err != nil {
		t.Fatal(err)
	}
	for at := range len(clean) {
		here, err := p.Outcome(t.TempDir(), "", clean[:at]+line+line+clean[at:])
		if err == nil {
			err = native.Same(here)
		}
		if err != nil {
			t.Errorf("a log line after %q: %v", clean[:at], err)
		}
	}
	wrong, err := p.Outcome(t.TempDir(), "", line+strings.Replace(clean, "passed", "failed", 1))
	if err == nil && native.Same(wrong) == nil {
		t.Error("a difference is not seen")
	}
}

// A result is compared in full, and a run that did nothing is none.
func TestResult(t *testing.T) {
	p := Program{Keep: scalapackLines, Blank: scalapackTimes, Proof: "1 tests completed and passed residual checks."}
	text := "WALL    L    57   8    3     2    2    1     1.13     0.69     0.05 PASSED\nnoise 3.14\n    1 tests completed and passed residual checks.\n"
	fast, err := p.Result(text)
	if err != nil {
		t.Fatal(err)
	}
	slow, err := p.Result(strings.Replace(text, "1.13", "99.99", 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := Same(fast, slow); err != nil {
		t.Errorf("a time makes a difference: %v", err)
	}
	wrong, err := p.Result(strings.Replace(text, "PASSED", "FAILED", 1))
	if err != nil {
		t.Fatal(err)
	}
	if Same(fast, wrong) == nil || Same(fast, fast+"x\n") == nil {
		t.Error("a difference is not seen")
	}
	if _, err := p.Result("noise\n"); err == nil {
		t.Error("a text without its proof passes")
	}
}
