// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A program of 9 calls and MPI_Finalize, without an MPI. The epoch is there some time after the signal, or
// some calls, or never. The program may be one in Fortran: the calls are those of a library, with a P, and what
// they call is in the library, too.
const momentProgram = `
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef IN_LIBRARY
extern int calls, asked;
extern const char *when, *epoch;
#else
int calls, asked;
const char *when, *epoch;
#endif
#ifdef IN_FORTRAN
int mpi_barrier_(int), mpi_finalize_(void);
#define MPI_Barrier mpi_barrier_
#define MPI_Finalize mpi_finalize_
#else
int MPI_Barrier(int), MPI_Finalize(void);
#endif
static __attribute__((unused)) void commit(void) { close(open(epoch, O_CREAT | O_WRONLY, 0600)); }
#ifndef IN_LIBRARY
static void ask(int number) {
    (void)number;
    asked = calls;
    if (strcmp(when, "later") != 0 || fork() != 0) return;
    sleep(1);
    commit();
    _exit(0);
}
#endif
#if defined IN_LIBRARY || !defined IN_FORTRAN
int PMPI_Barrier(int seven) {
    if (seven != 7) abort(); // an argument is lost
    if (++calls == asked + 4 && strcmp(when, "on its way") == 0) commit();
    return 0;
}
int PMPI_Finalize(void) {
    printf("%s after %d calls\n", access(epoch, F_OK) == 0 ? "saved" : "not saved", calls);
    return 0;
}
#endif
#ifdef IN_LIBRARY
int mpi_barrier_(int seven) { return PMPI_Barrier(seven); }
int mpi_finalize_(void) { return PMPI_Finalize(); }
#else
int main(int argc, char **argv) {
    when = argv[argc - 1];
    epoch = getenv("CKPT_MOMENT_EPOCH");
    signal(SIGUSR1, ask);
    for (int i = 0; i < 9; i++) MPI_Barrier(7);
    return MPI_Finalize();
}
#endif
`

// TestMomentWaits: a program does not end before its epoch is there, however long that takes within a bound,
// and goes on with its calls where the others need them.
func TestMomentWaits(t *testing.T) {
	tmp := t.TempDir()
	source, library := filepath.Join(tmp, "program.c"), filepath.Join(tmp, "libfortran.so")
	if err := os.WriteFile(source, []byte(momentProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	compile := func(args ...string) {
		t.Helper()
		args = append([]string{"-O2", "-Wall", "-Werror", "-DMOMENT_MS=4000", "-I../../include"}, args...)
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	c, fortran := filepath.Join(tmp, "c"), filepath.Join(tmp, "fortran")
	compile("-o", c, source, "../programs/moment.c")
	compile("-DIN_FORTRAN", "-DIN_LIBRARY", "-fPIC", "-shared", "-o", library, source)
	compile("-DIN_FORTRAN", "-DMOMENT_BELOW_P", "-o", fortran, source, "../programs/moment.c", library, "-Wl,-rpath,"+tmp)
	for when, want := range map[string]struct {
		text  string
		bound time.Duration
	}{
		"later":      {"saved after 9 calls", 30 * time.Second},
		"on its way": {"saved after 9 calls", 3 * time.Second}, // and not when all waits are over
		"never":      {"not saved after 9 calls", 30 * time.Second},
	} {
		for _, program := range []string{c, fortran} {
			t.Run(when+" "+filepath.Base(program), func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command(program, when)
				cmd.Env = append(os.Environ(), "CKPT_MOMENT=0:2:10", "CKPT_MOMENT_EPOCH="+filepath.Join(t.TempDir(), "epoch"),
					"PMI_RANK=0")
				begun := time.Now()
				out, err := cmd.Output()
				if err != nil || strings.TrimSpace(string(out)) != want.text {
					t.Errorf("%v: %q, want %q", err, out, want.text)
				}
				if d := time.Since(begun); d > want.bound {
					t.Errorf("it took %v, want at most %v", d, want.bound)
				}
			})
		}
	}
}
