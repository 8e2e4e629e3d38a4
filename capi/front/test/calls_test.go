// SPDX-License-Identifier: Apache-2.0

package test

import (
	"path/filepath"
	"testing"
)

// launchTwo is launch with two ranks: programs that only need somebody to talk to.
func launchTwo(t *testing.T, mpi string, command ...string) string {
	t.Helper()
	env := []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
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
	for _, name := range []string{"grequest", "jobs", "tools"} {
		for abi := range mpis {
			program := compile(t, abi, name+".c", append(warnings, "-pthread")...)
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
