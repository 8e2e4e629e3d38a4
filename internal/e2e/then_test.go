// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"syscall"
	"testing"
)

// An operator saves the job and ends it, properly or by SIGKILL; it is continued later.
func TestMPIThen(t *testing.T) {
	for _, then := range []string{"exit", "kill"} {
		t.Run(then, func(t *testing.T) {
			h := newHeat(t, 1000, 20)
			want := h.natively(t)
			p := h.start(t)
			h.awaitEpoch(t, p, 0)
			ctl, err := NewRun(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if err := ctl.Once(mpiLimit, built.CkptCtl(), "checkpoint", h.run.Checkpoints(), "--then", then); err != nil {
				t.Fatal(err)
			}
			if ctl.Exit != (Exit{}) {
				t.Fatalf("ckptctl: %v: %s", ctl.Exit, mustRead(t, ctl.Stderr))
			}
			exit := h.wait(t, p)
			if then == "exit" && exit != (Exit{}) {
				t.Errorf("mpiexec ended with %v: %s", exit, mustRead(t, h.run.Stderr))
			}
			if then == "kill" && exit == (Exit{}) {
				t.Error("mpiexec did not notice that its ranks were killed")
			}
			if p = h.restart(t, h.run.Checkpoints()); h.wait(t, p) != (Exit{}) {
				t.Fatalf("after the restart: %s", mustRead(t, h.run.Stderr))
			}
			h.mustEqual(t, want)
		})
	}
}

// A batch system's signal asks any rank for a checkpoint; mpiexec itself does not pass it on.
func TestMPISignal(t *testing.T) {
	h := newHeat(t, 1000, 200)
	want := h.natively(t)
	p := h.mpiexec(t, append([]string{built.CkptRun(), "--signal", "USR2=exit", "--dir", h.run.Checkpoints(), "--"}, h.argv...)...)
	h.awaitEpoch(t, p, 0)
	pids := h.mark.Ranks()
	if len(pids) != ranks {
		t.Fatalf("%d ranks, expected %d", len(pids), ranks)
	}
	if err := syscall.Kill(pids[len(pids)-1], syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	if exit := h.wait(t, p); exit != (Exit{}) {
		t.Fatalf("mpiexec ended with %v: %s", exit, mustRead(t, h.run.Stderr))
	}
	if p = h.restart(t, h.run.Checkpoints()); h.wait(t, p) != (Exit{}) {
		t.Fatalf("after the restart: %s", mustRead(t, h.run.Stderr))
	}
	h.mustEqual(t, want)
}
