// SPDX-License-Identifier: Apache-2.0

package async

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// TestWindowsAtAnyMoment saves a program of one-sided communication and shared memory at random
// moments, kills it and continues it: a checkpoint asked for in an epoch that holds it back is made
// when that is over.
func TestWindowsAtAnyMoment(t *testing.T) {
	program := &cycle.Program{Ranks: 3, Kills: 2, Most: 300 * time.Millisecond, Command: map[string][]string{}}
	for _, mpi := range []string{"mpich", "openmpi"} {
		program.Command[mpi] = []string{cycle.Compile(t, mpi, "windows.c"), "30"}
	}
	program.Native(t, "mpich")             // what it computes does not depend on the MPI
	for _, pair := range cycle.Pairs[2:] { // to the other MPI and back
		t.Run(pair[0]+"-"+pair[1], func(t *testing.T) { program.Run(t, pair[:]...) })
	}
}

// TestEpochsOfWindows: while one of a single rank is open, a request says which, and one that waits is
// served when it is over.  One of MPI_Win_lock_all without locks has none after a restart either.
func TestEpochsOfWindows(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			m := &moments{t: t, mpi: mpi, dir: filepath.Join(t.TempDir(), "ckpt"), stages: t.TempDir()}
			m.program = cycle.Compile(t, mpi, "epochs.c")
			m.start()
			for _, stage := range []struct{ name, holds string }{
				{"locked", `rank 1: window "board": MPI_Win_lock of rank 1 waits for its MPI_Win_unlock`},
				{"posted", `rank 1: window "board": MPI_Win_start waits for its MPI_Win_complete`},
			} {
				m.await("the epoch is open", func(status) bool {
					_, err := os.Stat(filepath.Join(m.stages, "at."+stage.name))
					return err == nil
				})
				if why := m.refusals(stage.holds); !strings.Contains(why, stage.holds) {
					t.Fatalf("the request says %q, not %q\n%s", why, stage.holds, m.job.Where())
				}
				waits := m.ask()
				m.await("the request is there", func(s status) bool { return s.Requests == 1 })
				m.leave(stage.name)
				m.epoch(waits)
				m.crash()
				m.leave("after " + stage.name)
			}
			m.await("the epoch without locks is open", func(status) bool {
				_, err := os.Stat(filepath.Join(m.stages, "at.unchecked"))
				return err == nil
			})
			m.epoch(m.ask())
			m.crash()
			m.leave("unchecked")
			m.end()
			if got := m.job.Result(); got != "epochs 33" {
				t.Errorf("got %q\n%s", got, m.job.Output())
			}
		})
	}
}
