// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// hasFSGSBASE tells whether a process may write its FS base. Where it may not, all tests run without, and those of the
// other ways cannot.
func hasFSGSBASE(t *testing.T) bool {
	t.Helper()
	aux, err := unix.Auxv()
	must(t, err)
	return slices.ContainsFunc(aux, func(a [2]uintptr) bool { return a[0] == 26 /* AT_HWCAP2 */ && a[1]&2 != 0 })
}

// lacksFSGSBASE is what ckptrun says where there is no other way.
const lacksFSGSBASE = "lacks FSGSBASE, without which there is no other way"

// TestLowerHalfUsesGS: no crossing writes the FS base, unless that is asked for; the log says which way it is.
func TestLowerHalfUsesGS(t *testing.T) {
	needCommands(t)
	has := hasFSGSBASE(t)
	switching := "each crossing between the halves writes the FS base"
	if !has {
		switching = "CKPT_LOWER_TLS is fs, and this kernel or processor " + lacksFSGSBASE
	}
	for setting, want := range map[string]string{
		"CKPT_LOWER_TLS=":       "the lower half uses GS",
		"CKPT_LOWER_TLS=gs":     "the lower half uses GS",
		"CKPT_LOWER_TLS=kernel": "the lower half uses GS",
		"CKPT_LOWER_TLS=fs":     switching,
	} {
		cmd := exec.Command(built.CkptRun(), "--log", "debug", "--dir", filepath.Join(t.TempDir(), "ckpt"), "--", "true")
		cmd.Env = append(os.Environ(), setting)
		out, err := cmd.CombinedOutput()
		if (err == nil) != (has || want != switching) || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, and it does not say that %s:\n%s", setting, err, want, out)
		}
	}
}

// TestFSGSBASEIsHidden: a program is not told that it may write the bases itself: it would write over the lower half's GS, and go on
// to do so on a machine that does not let it. What asks the kernel instead is emulated or refused.
func TestFSGSBASEIsHidden(t *testing.T) {
	needCommands(t)
	out, err := exec.Command(built.CkptRun(), "--dir", filepath.Join(t.TempDir(), "ckpt"), "--", "/usr/bin/python3", "-c", "import ctypes; print(ctypes.CDLL(None).getauxval(26) & 2)").CombinedOutput()
	if err != nil || string(out) != "0\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// TestEitherSegment: programs with threads, thread-local storage, signals and exceptions are saved where the
// lower half uses GS and continue where FS is switched, and where the kernel alone can write it, in turn.
func TestEitherSegment(t *testing.T) {
	needCommands(t)
	if !hasFSGSBASE(t) {
		needmpi.Skip(t, "no FSGSBASE", "this machine lacks FSGSBASE, so there is one way alone")
	}
	ways := [][]string{{"env", "CKPT_LOWER_TLS=gs"}, {"env", "CKPT_LOWER_TLS=fs"}, {"env", "CKPT_LOWER_TLS=kernel"}}
	for _, name := range []string{"threadlocal", "signals", "exceptions", "recursion"} {
		t.Run(name, func(t *testing.T) {
			p := Programs[slices.IndexFunc(Programs, func(p Program) bool { return p.Name == name })]
			want := native(t, p)
			random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
			cycles := 0
			for runs := 0; cycles < len(ways); runs++ { // from each way to the next
				if runs > 20 {
					t.Fatalf("%d cycles in %d runs: the program ends before it can be saved", cycles, runs)
				}
				run, err := NewRun(filepath.Join(t.TempDir(), strconv.Itoa(runs)))
				if err != nil {
					t.Fatal(err)
				}
				argv, err := built.Command(p, work(t, p), run.Work())
				if err != nil {
					t.Fatal(err)
				}
				c := Chain{Built: built, Run: run, Argv: argv, Native: want.Time, Late: runs, Random: random, Options: options(), Machines: ways, Most: 4}
				if err := c.Go(); err != nil {
					t.Fatal(err)
				}
				if err := want.Same(run); err != nil {
					t.Fatalf("after %d cycles: %v", c.Cycles, err)
				}
				cycles += max(0, c.Cycles-1)
			}
		})
	}
}

// besideComponent compiles a component for Open MPI and a program, and returns what runs two ranks of the program.
func besideComponent(t *testing.T, component, program string) func(args ...string) (string, error) {
	t.Helper()
	needCommands(t)
	needmpi.Test(t, "openmpi")
	dir := t.TempDir()
	components := filepath.Join(dir, "components")
	must(t, os.Mkdir(components, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "odd.c"), []byte(component), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "late.c"), []byte(program), 0o644))
	for _, argv := range [][]string{
		{"gcc", "-shared", "-fPIC", "-O2", "-o", filepath.Join(components, "mca_btl_odd.so"), filepath.Join(dir, "odd.c")},
		{"mpicc.openmpi", "-o", filepath.Join(dir, "late"), filepath.Join(dir, "late.c"), "-lpthread"},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", argv, err, out)
		}
	}
	// Its own components: openmpi3 in Open MPI 4, openmpi40 in Open MPI 5.
	paths, _ := filepath.Glob("/usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi[0-9]*")
	if len(paths) != 1 {
		t.Fatalf("where Open MPI has its components: %v", paths)
	}
	return func(args ...string) (string, error) {
		argv := append([]string{"--allow-run-as-root", "--oversubscribe", "--mca", "mca_base_component_path", paths[0] + ":" + components, "-n", "2",
			built.CkptRun(), "--dir", filepath.Join(t.TempDir(), "ckpt"), filepath.Join(dir, "late")}, args...)
		out, err := exec.Command("mpiexec.openmpi", argv...).CombinedOutput()
		return string(out), err
	}
}

// spawner is a component of Open MPI that starts a program which there is not: the child, which has its maker's memory,
// writes errno.
const spawner = `
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
__attribute__((constructor)) static void start(void) {
    pid_t pid;
    char *argv[] = {"none", NULL}, *env[] = {NULL};
    int r = posix_spawn(&pid, "/none/such", NULL, NULL, argv, env);
    printf("started: %s\n", r == ENOENT ? "no such file" : "wrong");
    fflush(stdout);
}`

// TestSpawnedBelow: a child of the lower half's posix_spawn has the lower half's thread-local storage, not the program's.
func TestSpawnedBelow(t *testing.T) {
	run := besideComponent(t, spawner, `
#include <mpi.h>
#include <stdio.h>
#include <string.h>
static __thread unsigned char mine[1 << 14];
int main(int argc, char **argv) {
    memset(mine, 0xa5, sizeof mine);
    MPI_Init(&argc, &argv);
    unsigned changed = 0;
    for (unsigned i = 0; i < sizeof mine; i++) changed += mine[i] != 0xa5;
    printf("changed: %u\n", changed);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}`)
	out, err := run()
	if err != nil || strings.Count(out, "changed: 0\n") != 2 || strings.Count(out, "started: no such file") < 2 {
		t.Errorf("%v\n%s", err, out)
	}
}

// odd is a component of Open MPI that is none. One of its functions reads thread-local storage and has an
// instruction that there is not, so ckptrun cannot change the library. Its constructor looks whether FS is that of
// the C library which it has been loaded beside.
const odd = `
#include <pthread.h>
#include <stdio.h>
void odd(void) { __asm__ volatile("mov %fs:0, %rax; .byte 0x06"); }
__attribute__((constructor)) static void look(void) {
    void *fs;
    __asm__("mov %%fs:0, %0" : "=r"(fs));
    printf("FS is %s\n", fs == (void *)pthread_self() ? "right" : "wrong");
    fflush(stdout);
}`

// TestLateLibrary: a library that the MPI loads and whose code is not understood makes the gate write the FS base from
// then on; with several threads, or without FSGSBASE, it ends the program, and says what to do.
func TestLateLibrary(t *testing.T) {
	run := besideComponent(t, odd, `
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *rest(void *a) { pause(); return a; }
static __thread int mine = 42;
int main(int argc, char **argv) {
    pthread_t other;
    if (argc > 1) pthread_create(&other, NULL, rest, NULL);
    MPI_Init(&argc, &argv);
    int sum = 0;
    for (int i = 0; i < 1000; i++) MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("sum %d\n", sum);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}`)
	t.Run("without FSGSBASE", func(t *testing.T) {
		t.Setenv("CKPT_LOWER_TLS", "kernel")
		if out, err := run(); err == nil || !strings.Contains(out, "mca_btl_odd.so has code that libckpt does not understand, and this kernel or processor "+lacksFSGSBASE) {
			t.Errorf("%v\n%s", err, out)
		}
	})
	if !hasFSGSBASE(t) {
		return
	}
	out, err := run()
	if err != nil || strings.Count(out, "sum 84") != 2 || strings.Count(out, "FS is right") < 2 || strings.Contains(out, "FS is wrong") {
		t.Errorf("one thread: %v\n%s", err, out)
	}
	out, err = run("threads")
	if err == nil || !strings.Contains(out, "mca_btl_odd.so has code that libckpt does not understand") || !strings.Contains(out, "CKPT_LOWER_TLS=fs") {
		t.Errorf("two threads: %v\n%s", err, out)
	}
	t.Setenv("CKPT_LOWER_TLS", "fs")
	if out, err = run("threads"); err != nil || strings.Count(out, "sum 84") != 2 {
		t.Errorf("as it says: %v\n%s", err, out)
	}
}

// TestCodeIsKept: ranks that find nothing in the folder where it is kept what ckptrun finds in code, and those that find
// it there, compute the same under both MPIs; a rank is started from the folder and leaves it as it is.
func TestCodeIsKept(t *testing.T) {
	needCommands(t)
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			needmpi.Test(t, mpi)
			dir := t.TempDir()
			source := filepath.Join(dir, "sum.c")
			if err := os.WriteFile(source, []byte(`
#include <mpi.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>
static __thread int mine = 3;
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int sum = 0;
    for (int i = 0; i < 100; i++) MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    int closed = close(-1);
    printf("sum %d, closed %d errno %d\n", sum, closed, errno);
    MPI_Finalize();
    return 0;
}`), 0o600); err != nil {
				t.Fatal(err)
			}
			program := filepath.Join(dir, "sum")
			if out, err := exec.Command("mpicc."+mpi, "-o", program, source).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			run := func(folder string) {
				t.Helper()
				argv := []string{"-n", "12", built.CkptRun(), "--dir", filepath.Join(t.TempDir(), "ckpt"), "--", program}
				if mpi == "openmpi" {
					argv = slices.Concat([]string{"--allow-run-as-root", "--oversubscribe", "-x", "CKPT_CODE_CACHE"}, argv)
				}
				cmd := exec.Command("mpiexec."+mpi, argv...)
				cmd.Env = append(os.Environ(), "CKPT_CODE_CACHE="+folder)
				out, err := cmd.CombinedOutput()
				if err != nil || strings.Count(string(out), "sum 36, closed -1 errno 9\n") != 12 {
					t.Fatalf("%s: %v\n%s", folder, err, out)
				}
			}
			folder := filepath.Join(dir, "kept")
			times := func() map[string]int64 {
				t.Helper()
				entries, err := os.ReadDir(folder)
				if err != nil {
					t.Fatal(err)
				}
				times := map[string]int64{}
				for _, e := range entries {
					info, err := e.Info()
					if err != nil {
						t.Fatal(err)
					}
					times[e.Name()] = info.ModTime().UnixNano()
				}
				return times
			}
			run(folder)
			first := times()
			if len(first) < 10 {
				t.Fatalf("%d objects", len(first))
			}
			run(folder)
			if again := times(); !maps.Equal(first, again) {
				t.Errorf("a second start kept something:\n%v\n%v", first, again)
			}
			for name := range first { // none of them is whole any more
				if err := os.Truncate(filepath.Join(folder, name), 100); err != nil {
					t.Fatal(err)
				}
			}
			run(folder)
			if err := os.Chmod(folder, 0o777); err != nil {
				t.Fatal(err)
			}
			run(folder)
			run("none")
			run("/proc/nowhere")
		})
	}
}
