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
// some calls, or never.
const momentProgram = `
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int MPI_Barrier(int), MPI_Finalize(void);
static int calls, asked;
static const char *when, *epoch;
static void commit(void) { close(open(epoch, O_CREAT | O_WRONLY, 0600)); }
static void ask(int number) {
    (void)number;
    asked = calls;
    if (strcmp(when, "later") != 0 || fork() != 0) return;
    sleep(1);
    commit();
    _exit(0);
}
int PMPI_Barrier(int seven) {
    if (seven != 7) abort(); // an argument is lost
    if (++calls == asked + 4 && strcmp(when, "on its way") == 0) commit();
    return 0;
}
int PMPI_Finalize(void) {
    printf("%s after %d calls\n", access(epoch, F_OK) == 0 ? "saved" : "not saved", calls);
    return 0;
}
int main(int argc, char **argv) {
    when = argv[argc - 1];
    epoch = getenv("CKPT_MOMENT_EPOCH");
    signal(SIGUSR1, ask);
    for (int i = 0; i < 9; i++) MPI_Barrier(7);
    return MPI_Finalize();
}
`

// TestMomentWaits: a program does not end before its epoch is there, however long that takes within a bound,
// and goes on with its calls where the others need them.
func TestMomentWaits(t *testing.T) {
	tmp := t.TempDir()
	source, program := filepath.Join(tmp, "program.c"), filepath.Join(tmp, "program")
	if err := os.WriteFile(source, []byte(momentProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("gcc", "-O2", "-Wall", "-Werror", "-DMOMENT_MS=4000", "-I../../include", "-o", program,
		source, "../programs/moment.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for when, want := range map[string]struct {
		text  string
		bound time.Duration
	}{
		"later":      {"saved after 9 calls", 30 * time.Second},
		"on its way": {"saved after 9 calls", 3 * time.Second}, // and not when all waits are over
		"never":      {"not saved after 9 calls", 30 * time.Second},
	} {
		t.Run(when, func(t *testing.T) {
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
