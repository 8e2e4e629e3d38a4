// SPDX-License-Identifier: Apache-2.0

package async

import (
	"path/filepath"
	"testing"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// TestBufferedSends saves a job while a rank waits in MPI_Buffer_detach, and then in MPI_Comm_disconnect,
// for messages that nobody receives before the checkpoint is made.
func TestBufferedSends(t *testing.T) {
	programs := map[string]string{}
	for _, mpi := range []string{"mpich", "openmpi"} {
		programs[mpi] = cycle.Compile(t, mpi, "buffered.c")
	}
	// The sum of 100 and each rank, whatever the real MPIs do: Open MPI never gives a buffer back once it has refused a
	// send, and in MPICH 4.2 a send of 3 MiB may never end.
	const want = "buffered 303"
	for _, pair := range cycle.Pairs {
		t.Run(pair[0]+"-"+pair[1], func(t *testing.T) {
			m := &moments{t: t, mpi: pair[0], program: programs[pair[0]], dir: filepath.Join(t.TempDir(), "ckpt"), stages: t.TempDir()}
			m.start()
			m.await("rank 0 takes its buffer away", func(s status) bool { return s.in(0, "MPI_Buffer_detach") })
			m.epoch(m.ask())
			m.mpi = pair[1]
			m.crash()

			m.leave("first")
			m.await("rank 0 disconnects", func(s status) bool { return s.in(0, "MPI_Comm_disconnect") })
			m.epoch(m.ask())
			m.mpi = pair[0]
			m.crash()
			m.leave("second")
			m.end()
			if got := m.job.Result(); got != want {
				t.Errorf("got %q, want %q\n%s", got, want, m.job.Output())
			}
		})
	}
}
