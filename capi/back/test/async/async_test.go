// SPDX-License-Identifier: Apache-2.0

package async

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// TestAnyMoment saves, kills and continues each pattern a few times at random moments.
func TestAnyMoment(t *testing.T) {
	programs := map[string]string{}
	for _, mpi := range []string{"mpich", "openmpi"} {
		programs[mpi] = cycle.Compile(t, mpi, "patterns.c")
	}
	for _, p := range []struct{ name, rounds string }{
		{"ring", "80"}, {"farm", "600"}, {"polling", "250"}, {"colls", "80"}, {"halo", "300"}, {"stuck", "25"},
		{"leaving", "16"}, {"meeting", "40"}, {"freeing", "40"}, {"plenty", "25"},
	} {
		program := &cycle.Program{Ranks: 3, Kills: 2, Most: 300 * time.Millisecond, Command: map[string][]string{}}
		for mpi, path := range programs {
			program.Command[mpi] = []string{path, p.name, p.rounds}
		}
		var native sync.Once
		for _, pair := range cycle.Pairs[:3] {
			t.Run(pair[0]+"-"+pair[1]+"/"+p.name, func(t *testing.T) {
				native.Do(func() { program.Native(t, "mpich") }) // what it computes does not depend on the MPI
				program.Run(t, pair[:]...)
			})
		}
	}
}

// TestSynchronous does so with synchronous sends that nobody has matched, in all four pairs: none may be
// complete before its message is received, also after a restart.
func TestSynchronous(t *testing.T) {
	program := &cycle.Program{Ranks: 3, Kills: 3, Most: 400 * time.Millisecond, Command: map[string][]string{}}
	for _, mpi := range []string{"mpich", "openmpi"} {
		program.Command[mpi] = []string{cycle.Compile(t, mpi, "syncs.c"), "40"}
	}
	program.Native(t, "mpich")
	for _, pair := range cycle.Pairs {
		t.Run(pair[0]+"-"+pair[1], func(t *testing.T) { program.Run(t, pair[:]...) })
	}
	for mpi, command := range program.Command {
		t.Run(mpi+"-goes-on", func(t *testing.T) { // the same messages are asked about again and again
			dir := filepath.Join(t.TempDir(), "ckpt")
			j := cycle.Start(t, mpi, program.Ranks, append([]string{cycle.Tool(t, "ckptrun"), "--dir", dir}, command...)...)
			for saves := 0; saves < 8 && j.Save(); saves++ {
			}
			if !j.Ended(cycle.Limit) {
				t.Fatalf("it does not end\n%s", j.Output())
			}
			if got := j.Result(); got != program.Want {
				t.Errorf("got %q, want %q\n%s", got, program.Want, j.Output())
			}
		})
	}
}

// TestPersistent does so with persistent collectives, which each rank starts and frees in an order of its own: an
// image has some started, and some requests on some ranks only.
func TestPersistent(t *testing.T) {
	program := &cycle.Program{Ranks: 3, Kills: 2, Most: 300 * time.Millisecond, Command: map[string][]string{}}
	for _, mpi := range []string{"mpich", "openmpi"} {
		program.Command[mpi] = []string{cycle.Compile(t, mpi, "orders.c"), "6"}
	}
	program.Native(t, "mpich") // Open MPI starts none of a communicator that was freed
	for _, pair := range cycle.Pairs[2:] {
		t.Run(pair[0]+"-"+pair[1], func(t *testing.T) { program.Run(t, pair[:]...) })
	}
}

// TestTwoPhase does so with the baseline, a barrier in front of every blocking collective call: a rank
// may be saved inside the barrier, and makes it again.
func TestTwoPhase(t *testing.T) {
	t.Setenv("CKPT_SAFE_STATE", "2pc")
	programs := map[string]string{}
	for _, mpi := range []string{"mpich", "openmpi"} {
		programs[mpi] = cycle.Compile(t, mpi, "patterns.c")
	}
	for i, p := range []struct{ name, rounds string }{{"colls", "60"}, {"stuck", "25"}} {
		program := &cycle.Program{Ranks: 3, Kills: 2, Most: 300 * time.Millisecond, Command: map[string][]string{}}
		for mpi, path := range programs {
			program.Command[mpi] = []string{path, p.name, p.rounds}
		}
		program.Native(t, "mpich")
		pair := cycle.Pairs[1+i] // within Open MPI, and between the two
		t.Run(pair[0]+"-"+pair[1]+"/"+p.name, func(t *testing.T) { program.Run(t, pair[:]...) })
	}
}
