// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// older is a command that plays an older machine: there a processor's features are those that each x86-64 has.
func older(t *testing.T) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		needmpi.Skip(t, "no root", "playing another processor needs root, to mount something on /proc/cpuinfo")
	}
	features := filepath.Join(t.TempDir(), "cpuinfo")
	must(t, os.WriteFile(features, []byte("processor\t: 0\nflags\t\t: fpu tsc cx8 cmov mmx fxsr sse sse2 syscall lm xsave\n"), 0o644))
	machine := []string{"unshare", "-m", "sh", "-c", `mount --bind "$0" /proc/cpuinfo && exec "$@"`, features}
	if out, err := exec.Command(machine[0], slices.Concat(machine[1:], []string{"true"})...).CombinedOutput(); err != nil {
		t.Fatalf("no such machine can be played: %v: %s", err, out)
	}
	return machine
}

// A job goes on where processors have more registers than those on which it was started, and from then on forgets what
// MPI leaves in them (capi/host/forget.S); from there to the first machine and back.
func TestMoreRegisters(t *testing.T) {
	machine := older(t)
	h := newHeat(t, 600, 20)
	want := h.natively(t)
	p := h.mpiexec(t, slices.Concat(machine, []string{built.CkptRun(), "--dir", h.run.Checkpoints(), "--"}, h.argv)...)
	for _, next := range [][]string{nil, machine, nil} {
		h.awaitEpoch(t, p, h.newest(t))
		if p.Ended() {
			t.Fatal("the job ended before it could be moved")
		}
		h.kill(t, p)
		p = h.mpiexec(t, slices.Concat(next, []string{built.CkptRun(), "--restart", h.run.Checkpoints()})...)
	}
	if exit := h.wait(t, p); exit != (Exit{}) {
		t.Fatalf("%v: %s", exit, mustRead(t, h.run.Stderr))
	}
	h.mustEqual(t, want)
}

// Where they have fewer it does not: the refusal names some, and what to do. Nothing is lost by having tried.
func TestFewerRegisters(t *testing.T) {
	machine := older(t)
	h := newHeat(t, 400, 20)
	want := h.natively(t)
	p := h.start(t)
	h.awaitEpoch(t, p, 0)
	h.kill(t, p)
	p = h.mpiexec(t, slices.Concat(machine, []string{built.CkptRun(), "--restart", h.run.Checkpoints()})...)
	if exit := h.wait(t, p); exit == (Exit{}) {
		t.Error("it went on where instructions are missing")
	}
	said := string(mustRead(t, h.run.Stderr))
	for _, what := range []string{"this processor lacks features that the program may use", " rdtscp", "restart on a machine like"} {
		if !strings.Contains(said, what) {
			t.Errorf("it does not say %q: %s", what, said)
		}
	}
	if exit := h.wait(t, h.restart(t, h.run.Checkpoints())); exit != (Exit{}) {
		t.Fatalf("%v: %s", exit, mustRead(t, h.run.Stderr))
	}
	h.mustEqual(t, want)
}
