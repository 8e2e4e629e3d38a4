// SPDX-License-Identifier: Apache-2.0

package threads

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// TestAnyMoment saves, kills and continues each pattern a few times at random moments: built with each
// MPI, it goes on under that one, and from there under the other one.
func TestAnyMoment(t *testing.T) {
	programs := map[string]string{}
	for _, mpi := range []string{"mpich", "openmpi"} {
		// gcc takes MPICH's MPI_STATUSES_IGNORE for an array of length 0.
		programs[mpi] = cycle.Compile(t, mpi, "threads.c", "-fopenmp", "-Wno-stringop-overflow")
	}
	for _, p := range []struct{ name, rounds, threads string }{
		{"funneled", "200", "3"},
		{"serial", "40", "4"},
		{"turns", "30", "4"},
		{"multiple", "28", "4"},
		{"churn", "30", "5"},
		{"shared", "15", "4"},
		{"farm", "50", "4"},
		{"makers", "8", "3"},
		{"handover", "60", "4"},
	} {
		program := &cycle.Program{Ranks: 3, Kills: 2, Most: 400 * time.Millisecond, Command: map[string][]string{}}
		for mpi, path := range programs {
			program.Command[mpi] = []string{path, p.name, p.rounds, p.threads}
		}
		program.Native(t, "mpich") // what it computes does not depend on the MPI
		for _, mpis := range [][]string{{"mpich", "mpich", "openmpi"}, {"openmpi", "openmpi", "mpich"}} {
			t.Run(strings.Join(mpis, "-")+"/"+p.name, func(t *testing.T) { program.Run(t, mpis...) })
		}
	}
}

// TestOutsideMPI saves a program whose ranks wait for each other in a file, between calls of MPI, and
// lets it go on: a collective call that was deferred meanwhile is started without a call of MPI.
func TestOutsideMPI(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			path := cycle.Compile(t, mpi, "threads.c", "-fopenmp", "-Wno-stringop-overflow")
			dir := t.TempDir()
			command := []string{path, "beside", "40", "1", filepath.Join(dir, "says")}
			native := &cycle.Program{Ranks: 3, Command: map[string][]string{mpi: command}}
			native.Native(t, mpi)
			j := cycle.Start(t, mpi, 3, append([]string{cycle.Tool(t, "ckptrun"), "--dir", filepath.Join(dir, "ckpt")}, command...)...)
			saved := 0
			for saved < 5 && j.Save() {
				saved++
			}
			if !j.Ended(cycle.Limit) {
				t.Fatalf("it does not end after %d checkpoints\n%s", saved, j.Where())
			}
			if got := j.Result(); got != native.Want {
				t.Errorf("got %q, want %q\n%s", got, native.Want, j.Output())
			}
			t.Logf("%d checkpoints", saved)
		})
	}
}
