// SPDX-License-Identifier: Apache-2.0

package test

import (
	"path/filepath"
	"strings"
	"testing"
)

// launchTwo is launch with two ranks: programs that only need somebody to talk to.
func launchTwo(t *testing.T, mpi string, command ...string) string {
	t.Helper()
	return launchWith(t, mpi, nil, command...)
}

// launchWith is launchTwo with more in the environment.
func launchWith(t *testing.T, mpi string, env []string, command ...string) string {
	t.Helper()
	env = append(env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	return run(t, env, append(append(append([]string{}, mpis[mpi].launcher...), "2"), command...)...)
}

// TestHeldBack: what cannot survive a checkpoint runs as natively; a checkpoint asked for meanwhile
// is refused with the call and the rank, and one asked for afterwards is made and can be continued
// from, under each MPI.
func TestHeldBack(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 70 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for _, source := range []string{"grequest.c", "jobs.c", "tools.c", "mpi4.c", "ops.c", "classes.cc"} {
		name := strings.TrimSuffix(source, filepath.Ext(source))
		for abi := range mpis {
			if name == "classes" && abi == "openmpi" && !isThere(t, "libmpi_cxx.so.40") {
				continue
			}
			flags := append([]string{"-pthread"}, warnings...)
			if name == "classes" {
				flags = append(flags, "-Wno-cast-function-type", "-Wno-unused-parameter") // the classes' headers
			}
			program := compile(t, abi, source, flags...)
			t.Run(name+" of "+abi, func(t *testing.T) {
				expect(t, launchTwo(t, abi, program), name+": ok")
				for below := range mpis {
					t.Run("above "+below, func(t *testing.T) {
						dir := t.TempDir()
						expect(t, launchTwo(t, below, ckptrun, "--dir", dir, program, "save"), name+": ok")
						expect(t, launchTwo(t, below, ckptrun, "--restart", dir), name+": ok, restarted")
					})
				}
			})
		}
	}
}

// TestBindNow: programs run when the loader looks for every function at the start, those included that
// only the companions name.
func TestBindNow(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 24 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for abi := range mpis {
		for _, source := range []string{"fortran.F90", "fortran08.f90", "classes.cc"} {
			if source == "classes.cc" && abi == "openmpi" && !isThere(t, "libmpi_cxx.so.40") {
				continue
			}
			name := strings.TrimSuffix(source, filepath.Ext(source))
			flags := []string{"-g"}
			if source == "fortran.F90" {
				flags = []string{"-fallow-argument-mismatch", "-DBINDING_MODULE"}
			}
			program := compile(t, abi, source, flags...)
			t.Run(name+" of "+abi, func(t *testing.T) {
				out := launchWith(t, abi, []string{"LD_BIND_NOW=1"}, ckptrun, "--dir", t.TempDir(), program)
				expect(t, out, name+": ok")
			})
		}
	}
}
