// SPDX-License-Identifier: Apache-2.0

package async

import (
	"path/filepath"
	"testing"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// TestWrites saves a job while several non-blocking collective writes to one file are under way, which
// ROMIO can only do one after the other, and lets its ranks test them in different orders.
func TestWrites(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			m := &moments{t: t, mpi: mpi, program: cycle.Compile(t, mpi, "writes.c"),
				dir: filepath.Join(t.TempDir(), "ckpt"), stages: t.TempDir()}
			m.start()
			for rank := range ranks {
				arrived(t, m.job, m.stages, rank)
			}
			m.epoch(m.ask())
			m.crash()
			m.leave("go")
			m.end()
			if got := m.job.Result(); got != "writes 0" {
				t.Errorf("got %q\n%s", got, m.job.Output())
			}
		})
	}
}
