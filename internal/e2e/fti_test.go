// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// ftiJob is examples/fti/heat.c with libckpt_fti.so of an MPI.
type ftiJob struct {
	namedJob
	config string // a file
	global string // the folder of its executions
}

func newFTIJob(t *testing.T, mpi string, replace ...string) *ftiJob {
	t.Helper()
	needmpi.Test(t, mpi)
	dir, lib := t.TempDir(), filepath.Join(built.Root, "build", "lib")
	j := &ftiJob{config: filepath.Join(dir, "config.fti"), global: filepath.Join(dir, "global")}
	j.program = filepath.Join(dir, "heat")
	j.launcher = map[string][]string{"mpich": {"mpiexec.mpich", "-n"}, "openmpi": {"mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe", "-n"}}[mpi]
	fti := filepath.Join(lib, "ckpt", "fti", mpi)
	build := exec.Command("mpicc."+mpi, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I", filepath.Join(built.Root, "build", "include", "fti"),
		"-o", j.program, filepath.Join(built.Root, "examples", "fti", "heat.c"), "-L", fti, "-lckpt_fti", "-Wl,-rpath,"+fti, "-Wl,-rpath-link,"+lib)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	text := string(mustRead(t, filepath.Join(built.Root, "examples", "fti", "config.fti")))
	text = strings.NewReplacer(append([]string{"./global", j.global}, replace...)...).Replace(text)
	if err := os.WriteFile(j.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return j
}

// start is the command of a start.
func (j *ftiJob) start(ranks string, argv ...string) []string {
	return append(append(append([]string{}, j.launcher...), ranks, j.program, j.config), argv...)
}

// failure is what the configuration says of the last execution.
func (j *ftiJob) failure(t *testing.T) string {
	t.Helper()
	for line := range strings.Lines(string(mustRead(t, j.config))) {
		if value, ok := strings.CutPrefix(line, "failure = "); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("%s", mustRead(t, j.config))
	return ""
}

// TestFTI: a program with FTI's calls is continued after kill -9, bit for bit, and its configuration says what the next
// start is to do; a clean end leaves nothing, unless keep_last_ckpt.
func TestFTI(t *testing.T) {
	for name, c := range map[string]struct {
		mpi   string
		words []string
	}{
		"mpich":        {"mpich", nil},
		"openmpi-grow": {"openmpi", []string{"grow"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newFTIJob(t, c.mpi)
			r, err := NewRun(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			undisturbed := outputOf(t, j.start("2", append([]string{"2000", "0"}, c.words...)...)...)
			argv := j.start("2", append([]string{"2000", "40"}, c.words...)...)
			mark := NewMark()
			t.Cleanup(mark.KillAll)
			p, err := r.Start(mark, argv...)
			if err != nil {
				t.Fatal(err)
			}
			if !Poll(patience, p.Done(), func() bool { return strings.Count(string(mustRead(t, r.Stdout)), "saved ") > 5 }) {
				t.Fatalf("%s%s", mustRead(t, r.Stdout), mustRead(t, r.Stderr))
			}
			p.Kill()
			if left, _ := os.ReadDir(j.global); j.failure(t) != "1" || len(left) != 1 {
				t.Errorf("killed, and the configuration says failure = %s, with %v in %s", j.failure(t), left, j.global)
			}
			if err := r.Once(2*patience, argv...); err != nil || r.Exit != (Exit{}) {
				t.Fatalf("%v, %v\n%s%s", err, r.Exit, mustRead(t, r.Stdout), mustRead(t, r.Stderr))
			}
			continued(t, string(mustRead(t, r.Stdout)), undisturbed)
			if left, _ := os.ReadDir(j.global); j.failure(t) != "0" || len(left) != 0 {
				t.Errorf("after a clean end: failure = %s, %v in %s", j.failure(t), left, j.global)
			}
		})
	}
	t.Run("keep_last_ckpt", func(t *testing.T) {
		t.Parallel()
		j := newFTIJob(t, "mpich", "keep_last_ckpt = 0", "keep_last_ckpt = 1")
		undisturbed := outputOf(t, j.start("2", "120", "0")...)
		outputOf(t, j.start("2", "60", "20")...)
		if f := j.failure(t); f != "2" {
			t.Errorf("kept, and the configuration says failure = %s", f)
		}
		continued(t, outputOf(t, j.start("2", "120", "20")...), undisturbed)
	})
}

// TestFTIErrors: what FTI_Init refuses, and in which words.
func TestFTIErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ replace, words []string }{
		"head":      {[]string{"head = 0", "HEAD=1 # one a node"}, []string{": head is not 0: no rank is kept for FTI here"}},
		"no dir":    {[]string{"glbl_dir", "other_dir"}, []string{"does not say glbl_dir"}},
		"no id":     {[]string{"failure = 0", "failure = 1", "exec_id = none", ""}, []string{"says failure = 1, and no exec_id"}},
		"gone":      {[]string{"failure = 0", "failure = 1"}, []string{"global/none cannot be continued: nothing is saved here"}},
		"no number": {[]string{"failure = 0", "failure = 9"}, []string{"says failure = 9: want 0 to 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newFTIJob(t, "mpich", c.replace...)
			exit, out, said := again(t, j.start("2", "20", "10")...)
			for _, want := range c.words {
				if exit == (Exit{}) || !strings.Contains(said, want) {
					t.Errorf("%v: want %q: %s%s", exit, want, out, said)
				}
			}
		})
	}
}
