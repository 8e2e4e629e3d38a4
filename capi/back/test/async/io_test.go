// SPDX-License-Identifier: Apache-2.0

package async

import (
	"testing"
	"time"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// TestFilesAtAnyMoment saves a program that writes MPI files in several ways at random moments, kills
// it when it has written on, and continues it: in the end the files hold what they hold natively.
func TestFilesAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	program := &cycle.Program{Ranks: 2, Kills: 2, Most: 300 * time.Millisecond, Command: map[string][]string{}}
	for _, mpi := range []string{"mpich", "openmpi"} {
		program.Command[mpi] = []string{cycle.Compile(t, mpi, "io.c"), dir, "30"}
	}
	program.Native(t, "mpich")
	for _, pair := range cycle.Pairs[1:3] {
		t.Run(pair[0]+"-"+pair[1], func(t *testing.T) { program.Run(t, pair[:]...) })
	}
}

// TestScratchFiles does so with files that the program overwrites, deletes, renames and makes again after
// every checkpoint, one of them shared by all ranks.
func TestScratchFiles(t *testing.T) {
	dir := t.TempDir()
	program := &cycle.Program{Ranks: 2, Kills: 2, Most: 300 * time.Millisecond, Command: map[string][]string{}}
	for _, mpi := range []string{"mpich", "openmpi"} {
		program.Command[mpi] = []string{cycle.Compile(t, mpi, "scratch.c"), dir, "300"}
	}
	program.Native(t, "mpich")
	for _, pair := range cycle.Pairs[1:3] {
		t.Run(pair[0]+"-"+pair[1], func(t *testing.T) { program.Run(t, pair[:]...) })
	}
}
