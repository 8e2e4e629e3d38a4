// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// longEnough runs a script of examples/ on the heat job, with more and more steps until the job was
// saved at least once before it ended, and compares the result with the native one.
func longEnough(t *testing.T, script func(t *testing.T, h *heat) (jobs int)) {
	for steps := 150; steps <= 200000; steps *= 4 {
		h := newHeat(t, steps, 100*steps) // it asks for no checkpoint itself
		jobs := script(t, h)
		if jobs < 2 {
			continue // this machine was done before it could be saved
		}
		h.mustEqual(t, h.natively(t))
		t.Logf("%d steps, %d jobs", steps, jobs)
		return
	}
	t.Fatal("the program always ended before it was saved")
}

// shell starts a script of examples/ with our commands in its path.
func (h *heat) shell(t *testing.T, script string, env []string, argv ...string) *Process {
	t.Helper()
	p, err := Start(Command{
		Argv: append([]string{"bash", filepath.Join(built.Root, "examples", script)}, argv...),
		Dir:  h.run.Work(), Mark: h.mark, Stdout: h.run.Stdout, Stderr: h.run.Stderr,
		Env: append([]string{"LC_ALL=C", "TMPDIR=" + h.run.Work()}, env...),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The chain script: each job is saved as soon as it can be, and the next one goes on.
func TestChainScript(t *testing.T) {
	longEnough(t, func(t *testing.T, h *heat) int {
		env := []string{"PATH=" + filepath.Dir(built.CkptRun()) + ":" + os.Getenv("PATH"), "MPIEXEC=" + mpiexec(t)}
		argv := append([]string{"-n", fmt.Sprint(ranks), "-s", "3", "-d", h.run.Checkpoints(), "--"}, h.argv...)
		if exit := h.wait(t, h.shell(t, "batch/chain.sh", env, argv...)); exit != (Exit{}) {
			t.Fatalf("%v: %s", exit, mustRead(t, h.run.Stderr))
		}
		return 1 + strings.Count(string(mustRead(t, h.run.Stderr)), "the next job goes on")
	})
}
