// SPDX-License-Identifier: Apache-2.0

package test

import (
	"path/filepath"
	"testing"
)

// TestWindows: windows of each sort, saved between epochs and in one of MPI_Win_fence, and checked
// again under each MPI; and what is refused meanwhile.
func TestWindows(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 56 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for abi := range mpis {
		program := compile(t, abi, "rma.c", warnings...)
		t.Run(abi+" program", func(t *testing.T) {
			expect(t, launch(t, abi, program), "rma: ok")
			for first := range mpis {
				dir := t.TempDir()
				expect(t, launch(t, first, ckptrun, "--dir", dir, program, "save"), "rma: ok")
				for second := range mpis {
					t.Run(first+" then "+second, func(t *testing.T) {
						expect(t, launch(t, second, ckptrun, "--restart", dir), "rma: ok, restarted")
					})
				}
			}
		})
	}
}
