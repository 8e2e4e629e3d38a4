// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// launchTwo is launch with two ranks: programs that only need somebody to talk to.
func launchTwo(t *testing.T, mpi string, command ...string) string {
	t.Helper()
	return launchWith(t, mpi, nil, command...)
}

// launchWith is launchTwo with more in the environment.
func launchWith(t *testing.T, mpi string, env []string, command ...string) string {
	t.Helper()
	return launchRanks(t, mpi, "2", env, command...)
}

func launchRanks(t *testing.T, mpi, ranks string, env []string, command ...string) string {
	t.Helper()
	env = append(env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	return run(t, env, append(append(append([]string{}, mpis[mpi].launcher...), ranks), command...)...)
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
		programs, bad := make(map[string]string), make(map[string]string)
		for abi := range mpis {
			if name == "classes" && abi == "openmpi" && !isThere(t, "libmpi_cxx.so.40") {
				continue
			}
			flags := append([]string{"-pthread"}, warnings...)
			if name == "classes" {
				flags = append(flags, "-Wno-cast-function-type", "-Wno-unused-parameter") // the classes' headers
			}
			programs[abi] = compile(t, abi, source, flags...)
			bad[abi] = failsNatively(t, abi, programs[abi], name+": ok")
		}
		for abi, program := range programs {
			t.Run(name+" of "+abi, func(t *testing.T) {
				for below := range mpis {
					t.Run("above "+below, func(t *testing.T) {
						if bad[below] != "" {
							needmpi.Skip(t, "fails natively", below+" itself: "+bad[below])
						}
						dir := t.TempDir()
						expect(t, launchTwo(t, below, ckptrun, "--dir", dir, program, "save"), name+": ok")
						expect(t, launchTwo(t, below, ckptrun, "--restart", dir), name+": ok, restarted")
					})
				}
			})
		}
	}
}

// failsNatively is what a program says that an MPI of this release does not do as the program wants it (check.h), empty
// when it ends with a line. A job is not waited for after that: Open MPI 5 and 6 leave started processes alone when those
// that started them are gone.
func failsNatively(t *testing.T, mpi, program, line string) string {
	t.Helper()
	mark, said := e2e.NewMark(), filepath.Join(t.TempDir(), "said")
	defer mark.KillAll()
	p, err := e2e.Start(e2e.Command{Argv: append(append([]string{}, mpis[mpi].launcher...), "2", program), Mark: mark,
		Env: []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}, Stdout: said, Stderr: said})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		ended := p.Ended()
		text, err := os.ReadFile(said)
		if err != nil {
			t.Fatal(err)
		}
		if bad := checked.FindString(string(text)); bad != "" {
			p.Kill()
			return bad
		}
		if ended {
			if exit, err := p.Wait(limit); err != nil || exit != (e2e.Exit{}) {
				t.Fatalf("%s ended natively with %v (%v)\n%s", program, exit, err, text)
			}
			expect(t, string(text), line)
			return ""
		}
		if time.Now().After(end) {
			t.Fatalf("%s did not end natively within %v\n%s\n%s", program, limit, text, e2e.Dump(mark.Processes()))
		}
	}
}

var checked = regexp.MustCompile(`rank \d+: testdata/\S+: .*`)

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
