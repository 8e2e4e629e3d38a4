// SPDX-License-Identifier: Apache-2.0

package test

import (
	"path/filepath"
	"testing"
)

func manyPrograms(t *testing.T) map[string]string {
	t.Helper()
	programs := map[string]string{}
	for abi := range mpis {
		// gcc takes MPI_STATUSES_IGNORE for an array of length 0.
		programs[abi] = compile(t, abi, "many.c", append(warnings, "-pthread", "-Wno-stringop-overflow")...)
	}
	return programs
}

// TestMany: tens of thousands of live datatypes, requests, and messages that nobody has asked for yet,
// saved under one MPI and used under the other.
func TestMany(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 12 MPI processes with many objects")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	other := map[string]string{"mpich": "openmpi", "openmpi": "mpich"}
	for abi, program := range manyPrograms(t) {
		t.Run(abi+" program", func(t *testing.T) {
			dir := t.TempDir()
			expect(t, launchTwo(t, abi, ckptrun, "--dir", dir, program, "20000", "save"), "many: ok")
			expect(t, launchTwo(t, other[abi], ckptrun, "--restart", dir), "many: ok, restarted")
		})
	}
}

// TestMillion: a million live datatypes, then as many requests. Only Open MPI has so many itself.
func TestMillion(t *testing.T) {
	if testing.Short() {
		t.Skip("makes two million objects, in some 2.5 GB of memory")
	}
	program := compile(t, "openmpi", "many.c", append(warnings, "-pthread")...)
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	env := []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
	expect(t, run(t, env, "mpiexec.openmpi", "-n", "1", ckptrun, "--dir", t.TempDir(), program, "1000000"), "many: ok")
}

// TestMakeAndFree: making and freeing each sort of object, in one thread and in several at a time, takes
// no more memory however often it is done.
func TestMakeAndFree(t *testing.T) {
	if testing.Short() {
		t.Skip("makes and frees millions of objects")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for abi, program := range manyPrograms(t) {
		t.Run(abi+" program", func(t *testing.T) {
			expect(t, launchTwo(t, abi, program, "100", "loops"), "many: ok")
			expect(t, launchTwo(t, abi, ckptrun, "--dir", t.TempDir(), program, "100", "loops"), "many: ok")
		})
	}
}
