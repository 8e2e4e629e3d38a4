// SPDX-License-Identifier: Apache-2.0

package async

import (
	"path/filepath"
	"testing"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// TestRefusedCalls has rank 0 make collective calls that MPI refuses: the others never make them, so they
// count for nobody, neither in a checkpoint, nor after a restart, nor in MPI_Finalize.
func TestRefusedCalls(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			program := cycle.Compile(t, mpi, "refused.c")
			want := natively(t, mpi, program, "done", "pending", "pay")
			m := &moments{t: t, mpi: mpi, program: program, dir: filepath.Join(t.TempDir(), "ckpt"), stages: t.TempDir()}
			m.start()
			m.epoch(m.ask()) // most often in the midst of them
			m.leave("done")
			arrived(t, m.job, m.stages, 1)
			asked := m.ask()
			m.await("rank 2 owes the barrier", func(s status) bool { return s.State == "checkpointing" && s.in(2, "owes 1 collective call") })
			m.leave("pending")
			arrived(t, m.job, m.stages, 0)
			m.leave("pay")
			m.epoch(asked)
			if mpi == "mpich" { // there those that were put off are in the image
				m.crash()
			}
			m.end()
			if got := m.job.Result(); got != want {
				t.Errorf("got %q, want %q\n%s", got, want, m.job.Output())
			}
		})
	}
	t.Run("2pc", func(t *testing.T) { // a barrier was made for each of them
		program := cycle.Compile(t, "mpich", "refused.c")
		want := natively(t, "mpich", program, "done", "pending", "pay")
		m := &moments{t: t, mpi: "mpich", program: program, dir: filepath.Join(t.TempDir(), "ckpt"), stages: t.TempDir()}
		for _, stage := range []string{"done", "pending", "pay"} {
			m.leave(stage)
		}
		m.start("--safe-state", "2pc")
		m.end()
		if got := m.job.Result(); got != want {
			t.Errorf("got %q, want %q\n%s", got, want, m.job.Output())
		}
	})
}
