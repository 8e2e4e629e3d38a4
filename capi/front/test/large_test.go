// SPDX-License-Identifier: Apache-2.0

package test

import (
	"path/filepath"
	"testing"
)

// TestLargeCounts: every function of MPI 4 with large counts, in programs of MPICH, with receives,
// persistent requests and datatypes over a checkpoint, natively, above each MPI, and from each to each.
func TestLargeCounts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 28 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for _, name := range []string{"large", "large_types"} {
		program := compile(t, "mpich", name+".c", warnings...)
		expect(t, launchTwo(t, "mpich", program, "natively", filepath.Join(t.TempDir(), "file")), name+": ok")
		for first := range mpis {
			dir := t.TempDir()
			file := filepath.Join(t.TempDir(), "file")
			expect(t, launchTwo(t, first, ckptrun, "--dir", dir, program, "save", file), name+": ok")
			for second := range mpis {
				t.Run(name+" "+first+" then "+second, func(t *testing.T) {
					expect(t, launchTwo(t, second, ckptrun, "--restart", dir), name+": ok, restarted")
				})
			}
		}
	}
}
