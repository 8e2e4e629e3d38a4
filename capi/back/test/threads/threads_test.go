// SPDX-License-Identifier: Apache-2.0

package threads

import (
	"testing"
	"time"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// TestAnyMoment saves, kills and continues each pattern a few times at random moments.
func TestAnyMoment(t *testing.T) {
	programs := map[string]string{}
	for _, mpi := range []string{"mpich", "openmpi"} {
		programs[mpi] = cycle.Compile(t, mpi, "threads.c", "-fopenmp", "-Wno-stringop-overflow")
	}
	for _, p := range []struct{ name, rounds, threads string }{
		{"funneled", "400", "3"},
		{"serial", "60", "4"},
		{"turns", "40", "4"},
		{"multiple", "30", "4"},
		{"churn", "40", "5"},
		{"shared", "20", "4"},
		{"farm", "60", "4"},
		{"makers", "12", "3"},
		{"handover", "80", "4"},
	} {
		program := &cycle.Program{Ranks: 3, Kills: 2, Most: 400 * time.Millisecond, Command: map[string][]string{}}
		for mpi, path := range programs {
			program.Command[mpi] = []string{path, p.name, p.rounds, p.threads}
		}
		program.Native(t, "mpich") // what it computes does not depend on the MPI
		for _, pair := range cycle.Pairs {
			t.Run(pair[0]+"-"+pair[1]+"/"+p.name, func(t *testing.T) { program.Run(t, pair) })
		}
	}
}
