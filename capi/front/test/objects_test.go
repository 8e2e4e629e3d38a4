// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/e2e"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// mpis are the MPIs of the distribution: how to compile for one and how to start ranks with it.
var mpis = map[string]struct {
	compiler, fortran, cxx string
	launcher               []string
}{
	"mpich":   {"mpicc.mpich", "mpif90.mpich", "mpicxx.mpich", []string{"mpiexec.mpich", "-n"}},
	"openmpi": {"mpicc.openmpi", "mpif90.openmpi", "mpicxx.openmpi", []string{"mpiexec.openmpi", "--oversubscribe", "-n"}},
}

const ranks = "4"

var warnings = []string{"-Wall", "-Wextra"}

func buildTree(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../build")
	if err != nil {
		t.Fatal(err)
	}
	// Looking at each part also tells `go test` that its result depends on them.
	for _, pattern := range []string{"bin/ckptrun", "lib/libckpt.so", "lib/ckpt/libckpt-core.so", "lib/ckpt/front/*", "lib/ckpt/back/*"} {
		parts, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(parts) == 0 {
			t.Fatalf("nothing at %s (%v): run make first", pattern, err)
		}
		for _, p := range parts {
			if _, err := os.Stat(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// compile builds a program of testdata for one MPI.
func compile(t *testing.T, mpi, source string, flags ...string) string {
	t.Helper()
	needmpi.Test(t, mpi)
	build := buildTree(t)
	if _, err := os.Stat(filepath.Join("testdata", source)); err != nil {
		t.Fatal(err)
	}
	compiler := mpis[mpi].compiler
	if strings.EqualFold(filepath.Ext(source), ".f90") {
		compiler = mpis[mpi].fortran
	}
	if filepath.Ext(source) == ".cc" {
		compiler = mpis[mpi].cxx
	}
	out := filepath.Join(t.TempDir(), strings.TrimSuffix(source, filepath.Ext(source))+"-"+mpi)
	if compiler == mpis[mpi].fortran {
		flags = append([]string{"-J", t.TempDir()}, flags...) // its modules
	}
	args := append([]string{"-g", "-I../../../include", "-o", out, filepath.Join("testdata", source)}, flags...)
	args = append(args, "-L"+filepath.Join(build, "lib"), "-lckpt", "-Wl,-rpath,"+filepath.Join(build, "lib"))
	run(t, nil, append([]string{compiler}, args...)...)
	return out
}

// launch runs a command on all ranks under one MPI's launcher.
func launch(t *testing.T, mpi string, command ...string) string {
	t.Helper()
	needmpi.Test(t, mpi)
	env := []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
	return run(t, env, append(append(append([]string{}, mpis[mpi].launcher...), ranks), command...)...)
}

// limit is what one job may take on a machine that has much else to do.
const limit = 5 * time.Minute

// run runs a command to its end, and leaves nothing of it behind: ranks whose launcher was killed would
// take the processors from what comes next.
func run(t *testing.T, env []string, argv ...string) string {
	t.Helper()
	mark, said := e2e.NewMark(), filepath.Join(t.TempDir(), "said")
	defer mark.KillAll()
	p, err := e2e.Start(e2e.Command{Argv: argv, Env: env, Mark: mark, Stdout: said, Stderr: said})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait(limit)
	out, readErr := os.ReadFile(said)
	if readErr != nil {
		t.Fatal(readErr)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if exit != (e2e.Exit{}) {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), exit, out)
	}
	return string(out)
}

func expect(t *testing.T, out, line string) {
	t.Helper()
	for l := range strings.Lines(out) {
		if strings.TrimSpace(l) == line {
			return
		}
	}
	t.Fatalf("no line %q in\n%s", line, out)
}

// TestObjects: one of each object, made under one MPI, saved, and checked again under each MPI; for
// programs compiled against either.
func TestObjects(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 80 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for abi := range mpis {
		for pie := range pieFlags {
			program := compile(t, abi, "objects.c", append(warnings, pieFlags[pie]...)...)
			t.Run(abi+" program "+pie, func(t *testing.T) {
				expect(t, launch(t, abi, program), "objects: ok")
				for first := range mpis {
					dir := t.TempDir()
					expect(t, launch(t, first, ckptrun, "--dir", dir, program, "save"), "objects: ok")
					for second := range mpis {
						t.Run(first+" then "+second, func(t *testing.T) {
							expect(t, launch(t, second, ckptrun, "--restart", dir), "objects: ok, restarted")
						})
					}
				}
			})
		}
	}
}

// A program that is not position independent copies Open MPI's handle objects into itself.
var pieFlags = map[string][]string{"pie": {"-fPIE", "-pie"}, "no-pie": {"-fno-pie", "-no-pie"}}

// TestWindowsAndFiles: they work, and leave nothing behind that holds a checkpoint back.
func TestWindowsAndFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 24 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for abi := range mpis {
		program := compile(t, abi, "windows.c", warnings...)
		file := filepath.Join(t.TempDir(), "shared.dat")
		expect(t, launch(t, abi, program, file), "windows: ok")
		for below := range mpis {
			t.Run(abi+" program above "+below, func(t *testing.T) {
				expect(t, launch(t, below, ckptrun, "--dir", t.TempDir(), program, file, "save"), "windows: ok")
			})
		}
	}
}

// TestFortran: what Fortran treats in its own way, natively, saved under one MPI, and checked again
// under each; for programs of each binding compiled against either MPI.
func TestFortran(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 168 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for abi := range mpis {
		for binding, b := range map[string]struct{ source, flag string }{
			"mpif.h":      {"fortran.F90", "-UBINDING_MODULE"},
			"use mpi":     {"fortran.F90", "-DBINDING_MODULE"},
			"use mpi_f08": {"fortran08.f90", "-g"},
		} {
			name := strings.TrimSuffix(b.source, filepath.Ext(b.source))
			program := compile(t, abi, b.source, "-fallow-argument-mismatch", b.flag)
			t.Run(abi+" "+binding, func(t *testing.T) {
				expect(t, launch(t, abi, program), name+": ok")
				for first := range mpis {
					dir := t.TempDir()
					expect(t, launch(t, first, ckptrun, "--dir", dir, program, "save"), name+": ok, saved")
					for second := range mpis {
						t.Run(first+" then "+second, func(t *testing.T) {
							expect(t, launch(t, second, ckptrun, "--restart", dir), name+": ok, restarted")
						})
					}
				}
			})
		}
	}
}

// TestFortranVectors: collective calls with something for each member, of which newer Open MPIs look into the requests, and
// sections of arrays; natively, saved with requests under way, and continued under the other MPI.
func TestFortranVectors(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 36 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for abi, other := range map[string]string{"mpich": "openmpi", "openmpi": "mpich"} {
		for binding, flag := range map[string]string{"use mpi": "-UF08", "use mpi_f08": "-DF08"} {
			program := compile(t, abi, "fortranvectors.F90", "-fallow-argument-mismatch", flag)
			t.Run(abi+" "+binding, func(t *testing.T) {
				dir := t.TempDir()
				expect(t, launch(t, abi, program), "fortranvectors: ok")
				expect(t, launch(t, abi, ckptrun, "--dir", dir, program, "save"), "fortranvectors: ok, saved")
				expect(t, launch(t, other, ckptrun, "--restart", dir), "fortranvectors: ok, restarted")
			})
		}
	}
}

// TestPMIxSegments: PMIx 5 maps segments at addresses that its server has chosen, which may be those of the program's memory:
// under ckptrun it maps none.
func TestPMIxSegments(t *testing.T) {
	if testing.Short() {
		t.Skip("starts MPI processes")
	}
	program := compile(t, "openmpi", "segments.c", warnings...)
	if native := launch(t, "openmpi", program); !strings.Contains(native, "segments: some") {
		t.Skipf("this Open MPI maps none by itself: %s", native)
	}
	expect(t, launch(t, "openmpi", filepath.Join(buildTree(t), "bin/ckptrun"), "--dir", t.TempDir(), program), "segments: none")
}

// TestTypes: datatypes made of each other, freed while others need them, saved in the middle of it.
func TestTypes(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 40 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for abi, other := range map[string]string{"mpich": "openmpi", "openmpi": "mpich"} {
		program := compile(t, abi, "types.c", warnings...)
		t.Run(abi+" program", func(t *testing.T) {
			expect(t, launch(t, abi, program), "types: ok")
			dir := t.TempDir()
			expect(t, launch(t, abi, ckptrun, "--dir", dir, "--keep", "9", program, "save"), "types: ok")
			for _, epoch := range []string{"@1", "@2", "@3"} {
				for _, second := range []string{abi, other} {
					t.Run(epoch+" under "+second, func(t *testing.T) {
						copied := filepath.Join(t.TempDir(), "ckpt")
						run(t, nil, "cp", "-r", dir, copied)
						expect(t, launch(t, second, ckptrun, "--restart", copied+epoch), "types: ok, restarted")
					})
				}
			}
		})
	}
}
