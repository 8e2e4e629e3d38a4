// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/needmpi"
	"github.com/libckpt/libckpt/internal/written"
)

// Huge pages that were noted as not written, and are small ones since the program wrote to them, are huge again some seconds later;
// the epochs after that, and a restart, have what was written before and since.
func TestHugeAgain(t *testing.T) {
	needCommands(t)
	if tracker, err := written.Open(); err != nil {
		needmpi.Skip(t, "writes not noted", "this kernel does not note writes by itself: "+err.Error())
	} else {
		must(t, tracker.Close())
	}
	program := filepath.Join(built.Bin, "huge")
	const all = 12 << 11 // KiB
	step := func(run *Run, p *Process, n int) (before, after, later int) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(run.Dir, fmt.Sprintf("go-%d", n)), nil, 0o600))
		done := filepath.Join(run.Dir, fmt.Sprintf("done-%d", n))
		there := func() bool { _, err := os.Stat(done); return err == nil }
		if !Poll(2*patience+time.Minute, p.Done(), there) && !there() {
			t.Fatalf("step %d is not done\n%s", n, mustRead(t, run.Stderr))
		}
		if _, err := fmt.Sscan(string(mustRead(t, done)), &before, &after, &later); err != nil {
			t.Fatal(err)
		}
		return before, after, later
	}
	native, _ := runOf(t)
	for n := range 4 {
		must(t, os.WriteFile(filepath.Join(native.Dir, fmt.Sprintf("go-%d", n)), nil, 0o600))
	}
	must(t, native.Once(2*time.Minute, program, native.Dir))
	if native.Exit != (Exit{}) {
		t.Fatalf("natively: %v\n%s", native.Exit, mustRead(t, native.Stderr))
	}

	run, mark := runOf(t)
	p, err := run.Start(mark, built.CkptRun(), "--full", "every", "8", "--dir", run.Checkpoints(), "--", program, run.Dir)
	must(t, err)
	if before, _, _ := step(run, p, 0); before != all {
		needmpi.Skip(t, "no huge pages", fmt.Sprintf("%d KiB of %d are in huge pages", before, all))
	}
	for range 3 {
		saveNow(t, run)
	}
	for n := 1; n <= 2; n++ {
		before, after, later := step(run, p, n)
		if before != all || later != all {
			t.Errorf("step %d: %d KiB in huge pages before it, and %d later, want %d", n, before, later, all)
		}
		if n == 1 && after == all {
			t.Error("none was written while it was protected")
		}
		saveNow(t, run)
	}
	saveNow(t, run, "--then", "kill")
	_, err = p.Wait(time.Minute)
	must(t, err)

	again, err := NewRun(t.TempDir())
	must(t, err)
	must(t, os.WriteFile(filepath.Join(run.Dir, "go-3"), nil, 0o600))
	must(t, again.Once(2*time.Minute, built.CkptRun(), "--restart", run.Checkpoints()))
	if got, want := string(mustRead(t, again.Stdout)), string(mustRead(t, native.Stdout)); again.Exit != (Exit{}) || got != want {
		t.Errorf("%v: it printed %q, natively %q\n%s", again.Exit, got, want, mustRead(t, again.Stderr))
	}
}
