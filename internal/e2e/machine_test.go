// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// A time namespace plays a machine that was started long before this one, or just now: there too the
// clocks that count from the start of a machine neither go back nor jump.
func TestOtherMachine(t *testing.T) {
	needCommands(t)
	machines := [][]string{
		{"unshare", "--time", "--monotonic", "500000", "--boottime", "700000", "--"},
		{"unshare", "--time", "--monotonic", "100", "--boottime", "50", "--"},
		{"env"}, // this one
	}
	if out, err := exec.Command("unshare", append(slices.Clone(machines[0][1:]), "true")...).CombinedOutput(); err != nil {
		if os.Getuid() != 0 {
			t.Skipf("time namespaces need root: %v: %s", err, out)
		}
		t.Fatalf("no time namespace: %v: %s", err, out)
	}
	at := slices.IndexFunc(Programs, func(p Program) bool { return p.Name == "clocks" })
	p := Programs[at]
	want := native(t, p)
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	cycles := 0
	for runs := 0; cycles < 4; runs++ { // on other machines and back at least once
		if runs > 20 {
			t.Fatalf("%d cycles in %d runs: the program ends before it can be saved", cycles, runs)
		}
		run, err := NewRun(filepath.Join(t.TempDir(), strconv.Itoa(runs)))
		if err != nil {
			t.Fatal(err)
		}
		argv, err := built.Command(p, work(t, p), run.Work())
		if err != nil {
			t.Fatal(err)
		}
		c := Chain{Built: built, Run: run, Argv: argv, Native: want.Time, Late: runs, Random: random, Options: options(), Machines: machines, Most: 4}
		if err := c.Go(); err != nil {
			t.Fatal(err)
		}
		if err := want.Same(run); err != nil {
			t.Fatalf("after %d cycles: %v", c.Cycles, err)
		}
		cycles += max(0, c.Cycles-1)
	}
	t.Logf("cycles: %d", cycles)
}
