// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestLowerHalfUsesGS: where it is asked for no crossing writes the FS base; the log says which way it is.
func TestLowerHalfUsesGS(t *testing.T) {
	needCommands(t)
	for setting, want := range map[string]string{
		"CKPT_LOWER_TLS=gs": "the lower half uses GS",
		"CKPT_LOWER_TLS=":   `each crossing between the halves writes the FS base`,
	} {
		cmd := exec.Command(built.CkptRun(), "--log", "debug", "--dir", filepath.Join(t.TempDir(), "ckpt"), "--", "true")
		cmd.Env = append(os.Environ(), setting)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, and it does not say that %s:\n%s", setting, err, want, out)
		}
	}
}

// TestEitherSegment: programs with threads, thread-local storage, signals and exceptions are saved where the
// lower half uses GS and continue where FS is switched, and the other way round.
func TestEitherSegment(t *testing.T) {
	needCommands(t)
	ways := [][]string{{"env", "CKPT_LOWER_TLS=gs"}, {"env", "CKPT_LOWER_TLS=fs"}}
	for _, name := range []string{"threadlocal", "signals", "exceptions", "recursion"} {
		t.Run(name, func(t *testing.T) {
			p := Programs[slices.IndexFunc(Programs, func(p Program) bool { return p.Name == name })]
			want := native(t, p)
			random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
			cycles := 0
			for runs := 0; cycles < 2; runs++ { // from each way to the other
				if runs > 12 {
					t.Fatalf("%d cycles in %d runs: the program ends before it can be saved", cycles, runs)
				}
				run, err := NewRun(filepath.Join(t.TempDir(), strconv.Itoa(runs)))
				if err != nil {
					t.Fatal(err)
				}
				argv, err := built.Command(p, work(p), run.Work())
				if err != nil {
					t.Fatal(err)
				}
				c := Chain{Built: built, Run: run, Argv: argv, Native: want.Time, Random: random, Options: options(), Machines: ways, Most: 3}
				if err := c.Go(); err != nil {
					t.Fatal(err)
				}
				if err := want.Same(run); err != nil {
					t.Fatalf("after %d cycles: %v", c.Cycles, err)
				}
				cycles += max(0, c.Cycles-1)
			}
		})
	}
}
