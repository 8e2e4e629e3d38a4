// SPDX-License-Identifier: Apache-2.0

package async

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// TestFinalize: a rank that has come to MPI_Finalize first does not take the processor from the others.
func TestFinalize(t *testing.T) {
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			const ranks = 2
			j := cycle.Start(t, mpi, ranks, cycle.Tool(t, "ckptrun"), "--dir", filepath.Join(t.TempDir(), "ckpt"),
				cycle.Compile(t, mpi, "finalize.c"))
			if !j.Ended(cycle.Limit) {
				t.Fatalf("it does not end\n%s", j.Where())
			}
			if out := j.Output(); strings.Count(out, "finalize: ok\n") != ranks {
				t.Error(out)
			}
		})
	}
}
