// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A thousand signals that are pending when the program is saved are pending after a restart, and when it goes
// on, in their order.
func TestPendingSignals(t *testing.T) {
	needCommands(t)
	const count = 1000
	for _, then := range []string{"kill", "continue"} {
		t.Run(then, func(t *testing.T) {
			run, err := NewRun(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			mark := NewMark()
			defer mark.KillAll()
			takes := filepath.Join(run.Dir, "takes")
			p, err := run.Start(mark, append(append([]string{built.CkptRun(), "--dir", run.Checkpoints()}, options()...),
				"--", filepath.Join(built.Bin, "flood"), fmt.Sprint(count), takes)...)
			if err != nil {
				t.Fatal(err)
			}
			said := func(text string) bool { return strings.Contains(string(mustRead(t, run.Stdout)), text) }
			if !Poll(time.Minute, p.Done(), func() bool { return said("queued\n") }) {
				t.Fatalf("the program does not come to wait: %s\n%s", mustRead(t, run.Stderr), Dump(mark.Processes()))
			}
			control, err := NewRun(filepath.Join(run.Dir, "checkpoint"))
			if err != nil {
				t.Fatal(err)
			}
			ctl, err := control.Start(mark, built.CkptCtl(), "checkpoint", run.Checkpoints(), "--then", then,
				"--timeout", checkpointLimit.String())
			if err != nil {
				t.Fatal(err)
			}
			if exit, err := ctl.Wait(checkpointLimit + 30*time.Second); err != nil || exit != (Exit{}) {
				t.Fatalf("ckptctl: %v %v: %s", exit, err, mustRead(t, control.Stderr))
			}
			if then == "kill" {
				if _, err := p.Wait(time.Minute); err != nil {
					t.Fatal(err)
				}
				if p, err = run.Start(mark, built.CkptRun(), "--restart", run.Checkpoints()); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(takes, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if exit, err := p.Wait(time.Minute); err != nil || exit != (Exit{}) {
				t.Fatalf("ended with %v %v: %s", exit, err, mustRead(t, run.Stderr))
			}
			sum := 0
			for i := range count {
				sum += i * i
			}
			if want := fmt.Sprintf("signals %d sum %d\n", count, sum); !said(want) {
				t.Errorf("the program says %s, not %s", mustRead(t, run.Stdout), want)
			}
		})
	}
}
