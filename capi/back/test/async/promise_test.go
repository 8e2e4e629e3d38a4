// SPDX-License-Identifier: Apache-2.0

package async

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// TestPromisedCommunicator saves a job twice: when some ranks have called MPI_Comm_idup while the
// checkpoint was pending, and the last one needs what they do next before it comes to it; and when all have
// called it and nobody has waited.
func TestPromisedCommunicator(t *testing.T) {
	programs := map[string]string{}
	for _, mpi := range []string{"mpich", "openmpi"} {
		programs[mpi] = cycle.Compile(t, mpi, "promise.c")
	}
	want := natively(t, "mpich", programs["mpich"], "sooner", "later", "last")
	for _, pair := range cycle.Pairs {
		t.Run(pair[0]+"-"+pair[1], func(t *testing.T) {
			m := &moments{t: t, mpi: pair[0], program: programs[pair[0]], dir: filepath.Join(t.TempDir(), "ckpt"), stages: t.TempDir()}
			owes := func(s status) bool { return s.State == "checkpointing" && s.in(0, "owes 1 collective call") }
			m.start()
			m.await("rank 0 waits for the message", func(s status) bool { return s.in(0, "MPI_Recv") })
			arrived(t, m.job, m.stages, 1)
			arrived(t, m.job, m.stages, 2)
			first := m.ask()
			m.await("rank 0 owes the barrier", owes)
			m.leave("sooner")
			// A rank whose clock has not heard of the request, or hears of it again after a try that took too
			// long, begins its call at once: there is no checkpoint then until rank 0 has called too.
			for end := time.Now().Add(patience / 4); !first.ended() && time.Now().Before(end); {
				time.Sleep(20 * time.Millisecond)
			}
			deferred := first.ended()
			if !deferred {
				t.Log("the call was not deferred")
				m.leave("later")
			}
			m.epoch(first)
			m.mpi = pair[1]
			m.crash()

			if deferred {
				second := m.ask()
				m.await("rank 0 owes the duplicate", owes)
				m.leave("later")
				m.epoch(second)
				m.mpi = pair[0]
				m.crash()
			}
			m.leave("last")
			m.end()
			if got := m.job.Result(); got != want {
				t.Errorf("got %q, want %q\n%s", got, want, m.job.Output())
			}
		})
	}
}
