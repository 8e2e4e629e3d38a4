// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"testing"
)

// A signal may ask for a checkpoint before rank 0 has opened the job: that is made, and nobody is hurt.
func TestMPIEarlySignal(t *testing.T) {
	needCommands(t)
	for _, mpi := range []string{"mpich", "openmpi"} {
		program := buildMPI(t, mpi, "early")
		for i := range 5 {
			t.Run(fmt.Sprint(mpi, i), func(t *testing.T) {
				j := startMPI(t, mpi, ranks, func(r *Run) []string {
					return []string{built.CkptRun(), "--signal", "USR1=continue", "--dir", r.Checkpoints(), "--",
						program, filepath.Join(r.Checkpoints(), "epoch-000001", "manifest.json")}
				})
				j.mustEnd(t)
				if said := string(mustRead(t, j.run.Stdout)); said != "done\n" {
					t.Errorf("it says %q", said)
				}
			})
		}
	}
}
