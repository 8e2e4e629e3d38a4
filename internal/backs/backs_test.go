// SPDX-License-Identifier: Apache-2.0

package backs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// fake is a compiler of an MPI that is not there: gcc with an mpi.h of these lines.
func fake(t *testing.T, lines ...string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "mpi.h"), strings.Join(lines, "\n")+"\n")
	path := filepath.Join(dir, "mpicc")
	write(t, path, "#!/bin/sh\nexec /usr/bin/gcc -I"+dir+" \"$@\"\n")
	return path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

var (
	mpich   = []string{"#define MPICH_NAME 4", `#define MPICH_VERSION "4.0.2"`, "#define MPI_VERSION 4", "#define MPI_SUBVERSION 0"}
	intel   = append([]string{`#define I_MPI_VERSION "2021.10"`}, mpich...)
	openMPI = []string{"#define OMPI_MAJOR_VERSION 5", "#define OMPI_MINOR_VERSION 0", "#define OMPI_RELEASE_VERSION 7",
		"#define MPI_VERSION 3", "#define MPI_SUBVERSION 1"}
	old      = []string{`#define MPICH_VERSION "1.2"`, "#define MPI_VERSION 2", "#define MPI_SUBVERSION 2"}
	unknown  = []string{"#define MPI_VERSION 4", "#define MPI_SUBVERSION 0"}
	standard = []string{"#define MPI_ABI_VERSION 1", "#define MPI_ABI_SUBVERSION 0", "#define MPI_VERSION 5", "#define MPI_SUBVERSION 0"}
)

// TestAsk: a compiler says whose it is, and what libckpt has no back for is refused in words. The script that make uses
// answers the same.
func TestAsk(t *testing.T) {
	for name, c := range map[string]struct {
		header []string
		want   MPI
		wrong  string
	}{
		"MPICH":     {mpich, MPI{MPICH, "MPICH", "4.0.2", "4.0"}, ""},
		"Intel MPI": {intel, MPI{MPICH, "Intel MPI", "2021.10", "4.0"}, ""},
		"Open MPI":  {openMPI, MPI{OpenMPI, "Open MPI", "5.0.7", "3.1"}, ""},
		"too old":   {old, MPI{}, "MPICH 1.2 (COMPILER) has MPI 2.2, and libckpt needs MPI 3.1"},
		"unknown":   {unknown, MPI{}, "COMPILER is of an MPI that is neither MPICH nor Open MPI"},
		"standard":  {standard, MPI{}, "COMPILER compiles for the standard ABI"},
		"no header": {[]string{"#error no MPI here"}, MPI{}, "COMPILER does not find its mpi.h"},
	} {
		t.Run(name, func(t *testing.T) {
			compiler := fake(t, c.header...)
			said, scriptErr := exec.Command(root+"/scripts/mpis.sh", compiler).CombinedOutput()
			got, err := Ask(t.Context(), compiler, root)
			if c.wrong == "" {
				if err != nil || got != c.want {
					t.Errorf("%+v, %v", got, err)
				}
				if line := "MPICC_" + c.want.Is + " := " + compiler + "\n"; scriptErr != nil || !strings.Contains(string(said), line) {
					t.Errorf("mpis.sh: %v, %s", scriptErr, said)
				}
				return
			}
			wrong := strings.ReplaceAll(c.wrong, "COMPILER", compiler)
			if err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("%v, want %s", err, wrong)
			}
			if scriptErr == nil || !strings.Contains(string(said), wrong) {
				t.Errorf("mpis.sh: %v, %s", scriptErr, said)
			}
		})
	}
	if _, err := Ask(t.Context(), "/nowhere/mpicc", root); err == nil || !strings.Contains(err.Error(), "there is no such compiler") {
		t.Error(err)
	}
}

// TestMakeFindsMPIs: make takes what is there, or what BACKS names; two MPIs of one ABI need names, and none is status 3.
func TestMakeFindsMPIs(t *testing.T) {
	one, two, other := fake(t, mpich...), fake(t, intel...), fake(t, openMPI...)
	bin := t.TempDir() // all that the script needs
	for _, tool := range []string{"bash", "env", "dirname", "sh", "head", "tail", "grep"} {
		if path, err := exec.LookPath(tool); err == nil {
			if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func(env []string, args ...string) (string, int) {
		cmd := exec.Command(root+"/scripts/mpis.sh", args...)
		cmd.Env = append(os.Environ(), env...)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, status := run([]string{"PATH=" + bin}); status != 3 {
		t.Errorf("no MPI: status %d, %s", status, out)
	}
	if out, status := run([]string{"PATH=" + bin, "MPICC_MPICH=" + one}); status != 0 || !strings.Contains(out, "MPIS := mpich\n") {
		t.Errorf("one MPI: status %d, %s", status, out)
	}
	if out, status := run(nil, one, other); status != 0 || !strings.Contains(out, "MPIS := mpich openmpi\n") || !strings.Contains(out, "MPIEXEC_openmpi := "+filepath.Dir(other)+"/mpiexec\n") {
		t.Errorf("two MPIs: status %d, %s", status, out)
	}
	if out, status := run(nil, one, two); status != 1 || !strings.Contains(out, one+" and "+two+" are both for MPIs of MPICH's ABI") {
		t.Errorf("two MPIs of one ABI: status %d, %s", status, out)
	}
	if out, status := run(nil, one, "intel="+two); status != 0 || !strings.Contains(out, "MPIS := mpich intel\n") || !strings.Contains(out, "MPI_IS_intel := mpich\n") {
		t.Errorf("two MPIs of one ABI with names: status %d, %s", status, out)
	}
	for _, bad := range []string{"A=" + one, "abi=" + one, "/nowhere/mpicc"} {
		if out, status := run(nil, bad); status != 1 || !strings.HasPrefix(out, "backs: ") {
			t.Errorf("%s: status %d, %s", bad, status, out)
		}
	}
}

// library makes a shared library that says of itself what a back says.
func library(t *testing.T, path, says string) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "back.c")
	write(t, source, "__attribute__((section(\".ckptback\"), used)) static const char about[] = \""+strings.ReplaceAll(says, "\n", "\\n")+"\";\n")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func says(is, mpi, version, libckpt string) string {
	return "libckpt-back 1\nis " + is + "\nmpi " + mpi + "\nversion " + version + "\nstandard 4.0\ncompiler mpicc.x\nlibckpt " + libckpt + "\n"
}

// TestChoose: the user's backs come first, and what cannot be used is named with what to do.
func TestChoose(t *testing.T) {
	dir := t.TempDir()
	p := Place{Yours: filepath.Join(dir, "yours"), Installed: filepath.Join(dir, "installed")}
	library(t, file(p.Installed, "mpich"), says(MPICH, "MPICH", "4.0.2", "1.0"))
	library(t, file(p.Installed, "old"), says(MPICH, "MPICH", "3.4", "0.9"))
	library(t, file(p.Installed, "other"), "libckpt-back 7\n")
	write(t, file(p.Installed, "text"), strings.Repeat("no library\n", 20))
	above := []string{filepath.Join(dir, "opt", "bin", "mpiexec")}
	write(t, filepath.Join(dir, "opt", "bin", "mpicc"), "#!/bin/sh\n")
	choose := func(mpi string, chosen bool) (string, string) {
		path, err := p.Choose(mpi, "1.0", chosen, func() []string { return above })
		if err == nil {
			return path, ""
		}
		return path, err.Error()
	}
	if path, wrong := choose("mpich", false); wrong != "" || path != file(p.Installed, "mpich") {
		t.Error(path, wrong)
	}
	if path, wrong := choose("/any/path.so", true); wrong != "" || path != "/any/path.so" {
		t.Error(path, wrong)
	}
	for _, c := range []struct {
		mpi    string
		chosen bool
		wants  []string
	}{
		{"", false, []string{"no MPI launcher was found", "--mpi mpich"}},
		{"openmpi", false, []string{"under the launcher of Open MPI", "there are mpich (MPICH 4.0.2)", "`ckptctl back add " + dir + "/opt/bin/mpicc`"}},
		{"openmpi", true, []string{"--mpi openmpi: libckpt has no back for Open MPI"}},
		{"own", true, []string{"`ckptctl back add --name own "}},
		{"old", true, []string{"is of libckpt 0.9, and this is libckpt 1.0", "`ckptctl back add --replace --name old mpicc.x`"}},
		{"other", true, []string{"it is of another version of libckpt"}},
		{"text", true, []string{"bad magic number"}},
	} {
		path, wrong := choose(c.mpi, c.chosen)
		for _, w := range c.wants {
			if path != "" || !strings.Contains(wrong, w) {
				t.Errorf("%q: %q, %s; want %s", c.mpi, path, wrong, w)
			}
		}
	}
	library(t, file(p.Yours, "mpich"), says(MPICH, "MPICH", "5.0", "1.0"))
	if path, wrong := choose("mpich", false); wrong != "" || path != file(p.Yours, "mpich") {
		t.Error(path, wrong)
	}
	list, err := p.List()
	if len(list) != 2 || list[0].Name != "mpich" || !list[0].Yours || list[0].Version != "5.0" || list[1].Name != "old" || err == nil {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := p.Remove("old"); err == nil || !strings.Contains(err.Error(), "belongs to the installation") {
		t.Error(err)
	}
	if path, err := p.Remove("mpich"); err != nil || path != file(p.Yours, "mpich") {
		t.Error(path, err)
	}
	if path, wrong := choose("mpich", false); wrong != "" || path != file(p.Installed, "mpich") {
		t.Error(path, wrong)
	}
	if _, err := p.Remove("gone"); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
}

// TestFrontOf: programs of MPIs without a front are known by what they are linked with.
func TestFrontOf(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "main.c"), "int MPI_Init(void *, void *);\nint main(void) { return MPI_Init(0, 0); }\n")
	write(t, filepath.Join(dir, "mpi.c"), "int MPI_Init(void *a, void *b) { return a != b; }\n")
	write(t, filepath.Join(dir, "fronts", "libmpi.so.40"), "")
	for soname, want := range map[string]bool{"libmpi.so.40": true, "libmpi.so.20": false, "libmpich.so.10": false, "libmpi_cray.so.12": false} {
		program := filepath.Join(dir, "program")
		for _, argv := range [][]string{
			{"gcc", "-shared", "-fPIC", "-Wl,-soname," + soname, "-o", filepath.Join(dir, soname), filepath.Join(dir, "mpi.c")},
			{"gcc", "-o", program, filepath.Join(dir, "main.c"), filepath.Join(dir, soname)},
		} {
			if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", argv, err, out)
			}
		}
		if library, has := FrontOf(program, filepath.Join(dir, "fronts")); library != soname || has != want {
			t.Errorf("%s: %s, %v", soname, library, has)
		}
	}
	if library, _ := FrontOf("/bin/sh", dir); library != "" {
		t.Errorf("/bin/sh is linked with %q", library)
	}
}
