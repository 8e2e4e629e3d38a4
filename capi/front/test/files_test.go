// SPDX-License-Identifier: Apache-2.0

package test

import (
	"path/filepath"
	"testing"
)

// TestFiles: MPI files of every sort, saved under one MPI while they are open, written on, closed and
// deleted, and then used on from the checkpoint under each MPI; for programs compiled against either.
func TestFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 48 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for abi := range mpis {
		program := compile(t, abi, "files.c", warnings...)
		expect(t, launch(t, abi, program, t.TempDir()), "files: ok")
		for first := range mpis {
			t.Run(abi+" program above "+first, func(t *testing.T) {
				dir, work := t.TempDir(), t.TempDir()
				expect(t, launch(t, first, ckptrun, "--dir", dir, program, work, "save"), "files: ok")
				for second := range mpis {
					t.Run("then "+second, func(t *testing.T) {
						expect(t, launch(t, second, ckptrun, "--restart", dir), "files: ok, restarted")
					})
				}
			})
		}
	}
}

// TestFileRequests: several requests of files, with messages among them, completed by each function that
// takes several, and pending at checkpoints; and hints, which are there after a restart under either MPI.
// Not natively: MPICH completes such requests twice in MPI_Testall, and ends the program.
func TestFileRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 12 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for abi := range mpis {
		program := compile(t, abi, "file_requests.c", warnings...)
		dir, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
		expect(t, launchTwo(t, abi, ckptrun, "--dir", dir, program, file, "save"), "file_requests: ok")
		other := map[string]string{"mpich": "openmpi", "openmpi": "mpich"}[abi]
		t.Run(abi+" then "+other, func(t *testing.T) { // and saved there
			expect(t, launchTwo(t, other, ckptrun, "--restart", dir+"@1"), "file_requests: ok, restarted")
		})
		t.Run("then "+abi, func(t *testing.T) {
			expect(t, launchTwo(t, abi, ckptrun, "--restart", dir), "file_requests: ok, restarted")
		})
	}
}
