// SPDX-License-Identifier: Apache-2.0

package async

import (
	"testing"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// TestStatuses saves ranks that wait in all sorts of calls, and lets what they wait for come when they are
// above the other MPI; then once more, back to the first. A status must be that of the program's own MPI,
// whichever wrote it.
func TestStatuses(t *testing.T) {
	calls := []string{"MPI_Recv", "MPI_Sendrecv", "MPI_Wait", "MPI_Waitany", "MPI_Waitsome", "MPI_Waitall", "MPI_Waitall"}
	for first, second := range map[string]string{"mpich": "openmpi", "openmpi": "mpich"} {
		t.Run(first, func(t *testing.T) {
			m := &moments{t: t, mpi: first, dir: t.TempDir(), stages: t.TempDir(), ranks: len(calls) + 2}
			m.program = cycle.Compile(t, first, "statuses.c")
			wait := func(last string) {
				t.Helper()
				m.await("all wait", func(s status) bool {
					for i, call := range append(calls, last) {
						if !s.in(i+1, call) {
							return false
						}
					}
					return true
				})
			}
			m.start()
			for _, round := range []struct{ stage, last, next string }{{"first", "MPI_Probe", second}, {"second", "MPI_Mprobe", first}} {
				wait(round.last)
				m.epoch(m.ask("--then", "exit"))
				m.end()
				m.mpi = round.next
				m.restart()
				wait(round.last)
				m.leave(round.stage)
			}
			m.end()
			if got := m.job.Result(); got != "statuses right" {
				t.Errorf("%q\n%s", got, m.job.Output())
			}
		})
	}
}
