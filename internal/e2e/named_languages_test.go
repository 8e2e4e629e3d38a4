// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// killedOnce starts a program that prints "saved" and "end", kills it by SIGKILL when it has saved twice, and starts it
// again. It returns what both have printed.
func killedOnce(t *testing.T, r *Run, argv []string) string {
	t.Helper()
	mark := NewMark()
	t.Cleanup(mark.KillAll)
	p, err := r.Start(mark, argv...)
	if err != nil {
		t.Fatal(err)
	}
	if !Poll(patience, p.Done(), func() bool { return strings.Count(string(mustRead(t, r.Stdout)), "saved ") > 1 }) {
		t.Fatalf("%s%s", mustRead(t, r.Stdout), mustRead(t, r.Stderr))
	}
	p.Kill()
	if err := r.Once(2*patience, argv...); err != nil || r.Exit != (Exit{}) {
		t.Fatalf("%v, %v\n%s%s", err, r.Exit, mustRead(t, r.Stdout), mustRead(t, r.Stderr))
	}
	return string(mustRead(t, r.Stdout))
}

// continued checks what killedOnce returns.
func continued(t *testing.T, out, undisturbed string) {
	t.Helper()
	if strings.Count(out, "restart at ") != 1 || endOf(out) != endOf(undisturbed) {
		t.Errorf("%s\nundisturbed: %s", out, undisturbed)
	}
}

// TestNamedFortran: a Fortran program with the module mpix_checkpoint is continued after kill -9, bit for bit.
func TestNamedFortran(t *testing.T) {
	t.Parallel()
	needProgram(t, "gfortran")
	lib := filepath.Join(built.Root, "build", "lib")
	for mpi, launcher := range map[string][]string{
		"mpich":   {"mpiexec.mpich", "-n", "2"},
		"openmpi": {"mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"},
	} {
		t.Run(mpi, func(t *testing.T) {
			t.Parallel()
			needProgram(t, "mpif90."+mpi)
			r, err := NewRun(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			program := filepath.Join(r.Dir, "rods")
			build := exec.Command("mpif90."+mpi, "-O1", "-Wall", "-Werror", "-J", r.Dir, "-o", program,
				filepath.Join(built.Root, "build", "include", "mpix_checkpoint.f90"), filepath.Join(built.Src, "rods.f90"), "-L", lib, "-lckpt", "-Wl,-rpath,"+lib)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", build.Args, err, out)
			}
			argv := func(every string) []string {
				return append(append([]string{}, launcher...), "env", "CKPT_DIR="+r.Checkpoints()+every, program, "3000", every)
			}
			undisturbed := outputOf(t, argv("0")...)
			continued(t, killedOnce(t, r, argv("50")), undisturbed)
		})
	}
}

func needProgram(t *testing.T, name string) {
	t.Helper()
	if _, mpi, ok := strings.Cut(name, "mpif90."); ok {
		needmpi.Test(t, mpi)
	}
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("no %s here: make setup installs it", name)
	}
}

// TestNamedPython: examples/python/heat.py on mpi4py and numpy, whose MPI nobody but the interpreter's module knows, is
// continued after kill -9, in the same number of ranks and in another.
func TestNamedPython(t *testing.T) {
	t.Parallel()
	needProgram(t, "/usr/bin/python3")
	config, err := exec.Command("/usr/bin/python3", "-c", "import mpi4py, numpy, os; print(mpi4py.get_config().get('mpicc', '')); print(os.path.dirname(mpi4py.__file__))").Output()
	if err != nil {
		t.Skip("no python3-mpi4py or no python3-numpy here")
	}
	launcher := []string{"mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe", "-n"}
	if strings.Contains(string(config), "mpich") {
		launcher = []string{"mpiexec.mpich", "-n"}
		needmpi.Test(t, "mpich")
	} else {
		needmpi.Test(t, "openmpi")
	}
	r, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	argv := func(ranks, steps, every string) []string {
		return append(append([]string{}, launcher...), ranks, "env", "CKPT_DIR="+r.Checkpoints(), "/usr/bin/python3",
			filepath.Join(built.Root, "examples", "python", "heat.py"), steps, every, filepath.Join(built.Root, "build", "lib", "libckpt.so.1"))
	}
	undisturbed := outputOf(t, append([]string{"env", "CKPT_KEEP=2"}, argv("2", "600", "0")...)...)
	continued(t, killedOnce(t, r, argv("2", "600", "100")), undisturbed)
	out := outputOf(t, argv("3", "600", "0")...)
	if !strings.Contains(out, "restart at 600\n") || endOf(out) != endOf(undisturbed) {
		t.Errorf("3 ranks: %s\nundisturbed: %s", out, undisturbed)
	}
	_ = os.RemoveAll(r.Checkpoints())
}
