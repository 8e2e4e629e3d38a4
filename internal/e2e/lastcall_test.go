// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestLauncherIsSlow: where hundreds of ranks share a processor with mpiexec, it comes to read what they send in
// MPI_Finalize only seconds later, and longer than PMIx waits. Open MPI's then takes most jobs without libckpt for failed.
func TestLauncherIsSlow(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			program := buildMPI(t, mpi, "lastcall")
			dir := t.TempDir()
			last, slow := filepath.Join(dir, "last"), filepath.Join(dir, "slow")
			j := startMPI(t, mpi, 4, func(run *Run) []string {
				return []string{built.CkptRun(), "--dir", run.Checkpoints(), "--", program, last, slow}
			})
			for deadline := time.Now().Add(mpiLimit); ; time.Sleep(time.Millisecond) {
				if _, err := os.Stat(last); err == nil {
					break
				}
				if j.Ended() || time.Now().After(deadline) {
					t.Fatalf("no rank came to MPI_Finalize\n%s", mustRead(t, j.run.Stderr))
				}
			}
			// It runs for so short a time that one of the steps of MPI_Finalize fits, and then not for longer than PMIx waits.
			for range 6 {
				_ = syscall.Kill(j.PID(), syscall.SIGSTOP) // it may have ended
				writeFile(t, slow, nil)
				time.Sleep(2600 * time.Millisecond)
				_ = syscall.Kill(j.PID(), syscall.SIGCONT)
				if time.Sleep(time.Millisecond); j.Ended() {
					break
				}
			}
			j.mustEnd(t)
		})
	}
}
