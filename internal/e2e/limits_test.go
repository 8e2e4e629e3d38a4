// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

// A rank's limits of memory and files are its own: what libckpt and the MPI need for its calls and its end does not count.
func TestMPILimits(t *testing.T) {
	needCommands(t)
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			program := buildMPI(t, mpi, "narrow")
			j := startMPI(t, mpi, ranks, func(r *Run) []string {
				return []string{built.CkptRun(), "--dir", r.Checkpoints(), "--", program}
			})
			j.mustEnd(t)
		})
	}
}
