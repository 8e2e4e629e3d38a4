// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// TestWrongMPI: a launcher, an MPI, a back and a program that do not belong together are refused at the start, in words
// that say what to do.
func TestWrongMPI(t *testing.T) {
	needCommands(t)
	for _, name := range []string{"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"} {
		t.Setenv(name, "1")
	}
	lib := filepath.Join(built.Root, "build", "lib")
	heat := []string{filepath.Join(built.Root, "build/examples/heat.mpich"), filepath.Join(built.Root, "examples/heat/small.par"), "steps=1"}
	refused := func(t *testing.T, argv []string, words ...string) {
		t.Helper()
		run, err := NewRun(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Once(mpiLimit, append(argv, heat...)...); err != nil {
			t.Fatal(err)
		}
		said := string(mustRead(t, run.Stderr)) + string(mustRead(t, run.Stdout))
		for _, w := range words {
			if run.Exit == (Exit{}) || !strings.Contains(said, w) {
				t.Errorf("%v: %v, %s; want %q", argv, run.Exit, said, w)
			}
		}
	}
	under := func(mpi string, options ...string) []string {
		argv := append(append([]string{}, launchers[mpi]...), "-n", "2", built.CkptRun(), "--dir", filepath.Join(t.TempDir(), "ckpt"))
		return append(append(argv, options...), "--")
	}

	t.Run("launcher of another MPI", func(t *testing.T) {
		needmpi.Test(t, "mpich", "openmpi")
		refused(t, under("openmpi", "--mpi", "mpich"), "the launcher started 2 ranks, and the MPI below, mpich", "--mpi")
	})
	t.Run("no back of this name", func(t *testing.T) {
		needmpi.Test(t, "mpich")
		refused(t, under("mpich", "--mpi", "own"), "libckpt has no back for own", "`ckptctl back add --name own ")
	})
	t.Run("back for another version", func(t *testing.T) {
		needmpi.Test(t, "mpich")
		data := mustRead(t, filepath.Join(lib, "ckpt/back/libckptback-mpich.so"))
		at := bytes.Index(data, []byte("\nversion "))
		if at < 0 {
			t.Fatal("the back does not say its version")
		}
		at += len("\nversion ")
		data[at] = '1' // MPICH 4.0.2 becomes 1.0.2
		path := filepath.Join(t.TempDir(), "libckptback-other.so")
		if err := os.WriteFile(path, data, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("LD_LIBRARY_PATH", filepath.Join(lib, "ckpt")) // the core, which the back finds beside itself
		refused(t, under("mpich", "--mpi", path), "this back was compiled for MPICH 1.", "`ckptctl back add --replace MPICC`")
	})
	t.Run("program without a front", func(t *testing.T) {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"mpi.c":  "int MPI_Init(void *a, void *b) { return a != b; }\n",
			"main.c": "int MPI_Init(void *, void *);\nint main(void) { return MPI_Init(0, 0); }\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		program := filepath.Join(dir, "program")
		for _, argv := range [][]string{
			{"gcc", "-shared", "-fPIC", "-Wl,-soname,libmpi.so.20", "-o", filepath.Join(dir, "libmpi.so.20"), filepath.Join(dir, "mpi.c")},
			{"gcc", "-o", program, filepath.Join(dir, "main.c"), filepath.Join(dir, "libmpi.so.20")},
		} {
			if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", argv, err, out)
			}
		}
		t.Setenv("LD_LIBRARY_PATH", dir)
		refused(t, []string{built.CkptRun(), "--dir", filepath.Join(dir, "ckpt"), program}, "is linked with libmpi.so.20, an MPI of an ABI for which libckpt has no front")
	})
}

// TestBackAdd: a back is compiled from what is installed, in the user's folder, used by its name, and removed.
func TestBackAdd(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a back: half a minute of one processor")
	}
	needCommands(t)
	needmpi.Test(t, "mpich")
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CKPT_BACKS", filepath.Join(run.Dir, "backs"))
	back := func(args ...string) (string, error) {
		out, err := exec.Command(built.CkptCtl(), append([]string{"back"}, args...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := back("add", "mpicc.mpich"); err == nil || !strings.Contains(out, "there is a back mpich already") || !strings.Contains(out, "--name OTHER") {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := back("add", "--name", "own", "mpicc.mpich"); err != nil || !strings.Contains(out, "ckptrun --mpi own takes it") {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := back("list"); err != nil || !strings.Contains(out, "\nown ") || !strings.Contains(out, filepath.Join(run.Dir, "backs")) {
		t.Fatalf("%v: %s", err, out)
	}
	argv := append(append([]string{}, launchers["mpich"]...), "-n", "2", built.CkptRun(), "--mpi", "own", "--dir", run.Checkpoints(), "--",
		filepath.Join(built.Root, "build/examples/heat.mpich"), filepath.Join(built.Root, "examples/heat/small.par"), "steps=4", "checkpoint_every=2")
	if err := run.Once(mpiLimit, argv...); err != nil || run.Exit != (Exit{}) {
		t.Fatalf("%v, %v: %s", err, run.Exit, mustRead(t, run.Stderr))
	}
	if out, err := back("remove", "own"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := back("remove", "mpich"); err == nil || !strings.Contains(out, "belongs to the installation") {
		t.Fatalf("%v: %s", err, out)
	}
}
