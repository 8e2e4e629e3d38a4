// SPDX-License-Identifier: Apache-2.0

package async

import (
	"path/filepath"
	"testing"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// TestFreedBefore asks for a checkpoint when one rank has used and freed a communicator that the others have not come to:
// libckpt has not heard of it before it asks, and must know how far each rank is with it. It would be missing on one
// rank of the image, and no restart could make it.
func TestFreedBefore(t *testing.T) {
	programs := map[string]string{}
	for _, mpi := range []string{"mpich", "openmpi"} {
		programs[mpi] = cycle.Compile(t, mpi, "freed.c")
	}
	want := natively(t, "mpich", programs["mpich"], "later", "last")
	for _, pair := range cycle.Pairs {
		t.Run(pair[0]+"-"+pair[1], func(t *testing.T) {
			m := &moments{t: t, mpi: pair[0], program: programs[pair[0]], dir: filepath.Join(t.TempDir(), "ckpt"), stages: t.TempDir()}
			m.start()
			arrived(t, m.job, m.stages, 0)
			first := m.ask()
			m.await("the others owe both calls on it", func(s status) bool {
				return s.State == "checkpointing" && s.in(1, "owes 2 collective calls") && s.in(2, "owes 2 collective calls")
			})
			m.leave("later")
			m.epoch(first)
			m.mpi = pair[1]
			m.crash()
			m.leave("last")
			m.end()
			if got := m.job.Result(); got != want {
				t.Errorf("got %q, want %q\n%s", got, want, m.job.Output())
			}
		})
	}
}
