// SPDX-License-Identifier: Apache-2.0

package async

import (
	"path/filepath"
	"testing"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// TestRefusedHalf: a send and a receive in one call, of which MPI refuses the send. The receive takes no message.
func TestRefusedHalf(t *testing.T) {
	program := cycle.Compile(t, "mpich", "halves.c") // Open MPI 4.1 has no such calls itself
	const want = "halves 4-1234"
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			j := cycle.Start(t, mpi, 2, cycle.Tool(t, "ckptrun"), "--dir", t.TempDir(), program)
			if !j.Ended(patience) {
				t.Fatalf("it does not end\n%s", j.Where())
			}
			if got := j.Result(); got != want {
				t.Errorf("got %q, want %q\n%s", got, want, j.Output())
			}
		})
	}
}

// TestDoublingShortOfMemory: allocations fail in MPI_Comm_idup. A call that fails for it has done nothing: the others'
// calls wait for its repetition, and a checkpoint is made after that, on whose restart all ranks agree.
func TestDoublingShortOfMemory(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			m := &moments{t: t, mpi: mpi, dir: filepath.Join(t.TempDir(), "ckpt"), stages: t.TempDir()}
			m.program = cycle.Compile(t, mpi, "doubling.c")
			s := newShortfall(t)
			m.job = cycle.Start(t, mpi, ranks, cycle.Tool(t, "ckptrun"), "--dir", m.dir, m.program, m.stages, s.path)
			for rank := range ranks {
				arrived(t, m.job, m.stages, rank)
			}
			m.epoch(m.ask())
			m.crash()
			m.leave("go")
			m.end()
			if got, want := m.job.Result(), "doubling 3-3"; got != want {
				t.Errorf("got %q, want %q\n%s", got, want, m.job.Output())
			}
		})
	}
}
