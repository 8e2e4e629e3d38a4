// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Memory that a program maps by address where nothing is saved holds a checkpoint back, by name, until it is
// unmapped: no restart lacks it.
func TestMemoryOutside(t *testing.T) {
	needCommands(t)
	program := filepath.Join(built.Bin, "outside")
	if out, err := exec.Command("gcc", "-Wall", "-Wextra", "-Werror", "-O1", "-o", program, filepath.Join(built.Src, "outside.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mark := NewMark()
	defer mark.KillAll()
	unmap, stop := filepath.Join(run.Dir, "unmap"), filepath.Join(run.Dir, "stop")
	p, err := run.Start(mark, built.CkptRun(), "--dir", run.Checkpoints(), "--", program, unmap, stop)
	if err != nil {
		t.Fatal(err)
	}
	await := func(line string) {
		t.Helper()
		if !Poll(patience, p.Done(), func() bool { return strings.Contains(string(mustRead(t, run.Stdout)), line) }) {
			t.Fatalf("%q is never said: %s", line, mustRead(t, run.Stderr))
		}
	}
	ask := func(name, then, timeout string) (Exit, string) {
		t.Helper()
		r, err := NewRun(filepath.Join(run.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Once(mpiLimit, built.CkptCtl(), "checkpoint", run.Checkpoints(), "--then", then, "--timeout", timeout); err != nil {
			t.Fatal(err)
		}
		return r.Exit, string(mustRead(t, r.Stderr))
	}
	await("mapped")
	if exit, said := ask("mapped", "kill", "2s"); exit != (Exit{Code: 1}) || !strings.Contains(said, "0x200000000000-0x200000100000") {
		t.Errorf("with the memory: %v: %s", exit, said)
	}
	if err := os.WriteFile(unmap, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	await("unmapped")
	if exit, said := ask("unmapped", "kill", checkpointLimit.String()); exit != (Exit{}) {
		t.Fatalf("without it: %v: %s", exit, said)
	}
	if exit, err := p.Wait(patience); err != nil || exit != (Exit{Signal: syscall.SIGKILL}) {
		t.Fatalf("%v, %v", exit, err)
	}
	if err := os.WriteFile(stop, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run.Once(patience, built.CkptRun(), "--restart", run.Checkpoints()); err != nil || run.Exit != (Exit{}) {
		t.Fatalf("%v, %v: %s", run.Exit, err, mustRead(t, run.Stderr))
	}
	if said := string(mustRead(t, run.Stdout)); said != "mapped\nunmapped\n7\n" {
		t.Errorf("it says %q", said)
	}
}
