// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"path/filepath"
	"testing"

	"github.com/libckpt/libckpt/internal/e2e"
)

// wantCases compares what a run of cases.c printed with what an adapter must say.
func wantCases(t *testing.T, argv ...string) {
	t.Helper()
	run, err := e2e.NewRun(t.TempDir())
	must(t, err)
	must(t, run.Once(patience, append(argv, filepath.Join(built.Bin, "cases"))...))
	want, got := mustRead(t, "testdata/cases.txt"), mustRead(t, run.Stdout)
	if run.Exit != (e2e.Exit{}) || got != want {
		t.Errorf("%v: %s\nprinted:\n%swanted:\n%s", run.Exit, mustRead(t, run.Stderr), got, want)
	}
}

// Mistakes have the statuses, events and states that the specification of InfiniBand gives them.
func TestCasesNatively(t *testing.T) {
	needBed(t)
	wantCases(t)
}

func TestCasesOverTCP(t *testing.T) {
	needBed(t)
	wantCases(t, append([]string{"env"}, overTCP()...)...)
}
