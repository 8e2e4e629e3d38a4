// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"path/filepath"
	"strings"
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

// TestFortranZoo: the objects that Fortran makes and the functions that it gives to MPI, through each
// binding, saved under one MPI and used under the other.
func TestFortranZoo(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 36 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for abi, other := range map[string]string{"mpich": "openmpi", "openmpi": "mpich"} {
		for binding, b := range map[string]struct{ source, flag, first, second string }{
			"mpif.h":      {"fortranzoo.F90", "-UBINDING_MODULE", abi, other},
			"use mpi":     {"fortranzoo.F90", "-DBINDING_MODULE", other, abi},
			"use mpi_f08": {"fortran08zoo.f90", "-g", abi, other},
		} {
			name := strings.TrimSuffix(b.source, filepath.Ext(b.source))
			program := compile(t, abi, b.source, "-fallow-argument-mismatch", b.flag)
			t.Run(abi+" "+binding, func(t *testing.T) {
				dir := t.TempDir()
				env := []string{"ZOO_FILE=" + filepath.Join(t.TempDir(), "zoo.dat")}
				expect(t, launchWith(t, abi, env, program), name+": ok")
				expect(t, launchWith(t, b.first, env, ckptrun, "--dir", dir, program, "save"), name+": ok, saved")
				expect(t, launchWith(t, b.second, env, ckptrun, "--restart", dir), name+": ok, restarted")
			})
		}
	}
}
