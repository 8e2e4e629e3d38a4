// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"path/filepath"
	"testing"
)

// TestZoo: more objects, through generations that run under one MPI and the other in turn; for programs
// compiled against either.
func TestZoo(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 48 MPI processes")
	}
	const generations = 4
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for abi := range mpis {
		// gcc takes MPI_STATUSES_IGNORE and MPI_UNWEIGHTED for arrays of length 0.
		program := compile(t, abi, "zoo.c", append(warnings, "-Wno-stringop-overflow", "-Wno-stringop-overread")...)
		t.Run(abi+" program", func(t *testing.T) {
			expect(t, launch(t, abi, program), "zoo: ok, 0 generations")
			dir := t.TempDir()
			argv := []string{ckptrun, "--dir", dir, program, fmt.Sprint(generations)}
			for g := range generations {
				below := []string{"mpich", "openmpi"}[g%2]
				expect(t, launch(t, below, argv...), fmt.Sprintf("zoo: generation %d is saved", g+1))
				argv = []string{ckptrun, "--dir", dir, "--restart", dir}
			}
			expect(t, launch(t, "mpich", argv...), fmt.Sprintf("zoo: ok, %d generations", generations))
		})
	}
}
