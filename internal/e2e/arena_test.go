// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/needmpi"
)

const (
	arena    = 0x100000000000
	arenaEnd = 0x10c000000000
	// A program as small as those of these tests uses nothing from here on.
	arenaUnused = 0x102040000000
)

// preloaded compiles a library for LD_PRELOAD.
func preloaded(t *testing.T, source string) string {
	t.Helper()
	library := filepath.Join(t.TempDir(), "preloaded.so")
	build := exec.Command("gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, "-xc", "-")
	build.Stdin = strings.NewReader(source)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return library
}

// Go's runtime takes the place of its heap from the random number that a process gets from the kernel. This
// decides the number.
const seedSource = `
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
__attribute__((constructor)) static void seed(void) {
    uint64_t n[2] = {strtoull(getenv("SEED"), NULL, 10), 0x9e3779b97f4a7c15ull};
    memcpy((void *)getauxval(AT_RANDOM), n, sizeof n);
}
`

// Whatever address Go's runtime wants for its heap, the arena is the program's. Of so many starts, a few want
// one in the arena (package keepout counts them, with the same numbers).
func TestHeapOutsideArena(t *testing.T) {
	needCommands(t)
	library := preloaded(t, seedSource)
	dir := t.TempDir()
	var group sync.WaitGroup
	next := make(chan int)
	for range 2 {
		group.Go(func() {
			for seed := range next {
				cmd := exec.Command(built.CkptRun(), append(options(), "--dir", filepath.Join(dir, strconv.Itoa(seed)), "--", "cat", "/proc/self/maps")...)
				cmd.Env = append(os.Environ(), "LD_PRELOAD="+library, "SEED="+strconv.Itoa(seed))
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("seed %d: %v: %s", seed, err, out)
					continue
				}
				mine := 0
				for line := range strings.Lines(string(out)) {
					var start, end uint64
					if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil {
						t.Errorf("seed %d: %q: %v", seed, line, err)
						break
					}
					if start >= arena && end <= arenaUnused {
						mine++
					}
					if start < arenaEnd && end > arenaUnused {
						t.Errorf("seed %d: not the program's: %s", seed, line)
					}
				}
				if mine < 10 {
					t.Errorf("seed %d: this is no list of the program's memory: %s", seed, out)
				}
			}
		})
	}
	for seed := range 300 {
		next <- seed
	}
	close(next)
	group.Wait()
}

// A library of the lower half that maps into the arena: at once, or when a file is there. Loaded with the
// program too, it does nothing there, where the gate page is mapped already.
const intruderSource = `
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static void *late(void *file) {
    while (access(file, F_OK)) usleep(1000);
    syscall(SYS_mmap, 0x105000000000, 4096, 3, 0x22, -1, 0);
    unlink(file);
    return NULL;
}
__attribute__((constructor)) static void intrude(void) {
    pthread_t t;
    if (madvise((void *)0x100000000000, 4096, MADV_NORMAL) == 0) return;
    if (getenv("INTRUDE_WHEN"))
        pthread_create(&t, NULL, late, getenv("INTRUDE_WHEN"));
    else
        syscall(SYS_mmap, 0x105000000000, 4096, 3, 0x22, -1, 0);
}
`

// Memory in the arena that is not the program's would be saved, and its addresses be taken at a restart: it is
// noticed at the start, or by the next checkpoint.
func TestIntruderInArena(t *testing.T) {
	needCommands(t)
	library := preloaded(t, intruderSource)
	t.Run("at the start", func(t *testing.T) {
		cmd := exec.Command(built.CkptRun(), append(options(), "--dir", filepath.Join(t.TempDir(), "ckpt"), "--", "true")...)
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+library)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "kept for the program") ||
			!strings.Contains(string(out), "105000000000-105000001000") || !strings.Contains(string(out), "LD_PRELOAD") {
			t.Fatalf("%v: %s", err, out)
		}
	})
	t.Run("later", func(t *testing.T) {
		if !hasFSGSBASE(t) {
			needmpi.Skip(t, "no FSGSBASE", "without FSGSBASE a library of LD_PRELOAD that makes threads is refused at the start")
		}
		run, err := NewRun(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		mark := NewMark()
		defer mark.KillAll()
		when := filepath.Join(run.Dir, "now")
		argv := append([]string{"env", "LD_PRELOAD=" + library, "INTRUDE_WHEN=" + when, built.CkptRun(), "--dir", run.Checkpoints()}, options()...)
		p, err := run.Start(mark, append(argv, "--", "sleep", "300")...)
		if err != nil {
			t.Fatal(err)
		}
		save := func(timeout string) (string, error) {
			out, err := exec.Command(built.CkptCtl(), "checkpoint", run.Checkpoints(), "--timeout", timeout).CombinedOutput()
			return string(out), err
		}
		if out, err := save("1m"); err != nil { // also waits for the job to be there
			t.Fatalf("before: %v: %s%s", err, out, mustRead(t, run.Stderr))
		}
		writeFile(t, when, nil)
		if !Poll(time.Minute, p.Done(), func() bool { _, err := os.Stat(when); return err != nil }) {
			t.Fatal("the library does nothing")
		}
		out, err := save("2s")
		if err == nil || !strings.Contains(out, "0x105000000000-0x105000001000") || !strings.Contains(out, "not its own") {
			t.Fatalf("%v: %s", err, out)
		}
		if p.Ended() {
			t.Fatalf("the program ended: %s", mustRead(t, run.Stderr))
		}
	})
}
