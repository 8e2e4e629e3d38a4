// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// standard compiles a program of testdata for the standard ABI, with the header that mpigen writes; the front is what it
// is linked with.
func standard(t *testing.T, source string) string {
	t.Helper()
	build := buildTree(t)
	out := filepath.Join(t.TempDir(), strings.TrimSuffix(source, filepath.Ext(source))+"-abi")
	// gcc takes small numbers for addresses of arrays of length 0.
	argv := append([]string{"gcc", "-g", "-Wno-stringop-overflow", "-Wno-stringop-overread"}, warnings...)
	argv = append(argv, "-I../../std/gen", "-I../../../include", "-o", out, filepath.Join("testdata", source),
		filepath.Join(build, "lib/ckpt/front/libmpi_abi.so.1"), "-L"+filepath.Join(build, "lib"), "-lckpt", "-Wl,-rpath,"+filepath.Join(build, "lib"))
	run(t, nil, argv...)
	return out
}

// TestStandardABI: programs of the standard ABI above MPIs that do not have it, continued above each.
func TestStandardABI(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 80 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	objects, zoo := standard(t, "objects.c"), standard(t, "zoo.c")
	for first, second := range map[string]string{"mpich": "openmpi", "openmpi": "mpich"} {
		t.Run("objects, "+first+" then "+second, func(t *testing.T) {
			dir := t.TempDir()
			expect(t, launch(t, first, ckptrun, "--dir", dir, objects, "save"), "objects: ok")
			expect(t, launch(t, second, ckptrun, "--restart", dir), "objects: ok, restarted")
		})
		t.Run("zoo, from "+first, func(t *testing.T) {
			const generations = 2
			dir := t.TempDir()
			argv := []string{ckptrun, "--dir", dir, zoo, fmt.Sprint(generations)}
			for g := range generations {
				expect(t, launch(t, []string{first, second}[g%2], argv...), fmt.Sprintf("zoo: generation %d is saved", g+1))
				argv = []string{ckptrun, "--dir", dir, "--restart", dir}
			}
			expect(t, launch(t, first, argv...), fmt.Sprintf("zoo: ok, %d generations", generations))
		})
	}
	for _, below := range []string{"mpich", "openmpi"} {
		for _, name := range []string{"mpi4", "large_types", "rma", "tools", "standard"} {
			t.Run(name+" above "+below, func(t *testing.T) {
				needmpi.Test(t, below)
				expect(t, launch(t, below, ckptrun, "--dir", t.TempDir(), standard(t, name+".c")), name+": ok")
			})
		}
	}
}

// TestStandardBack: the back for any MPI that has the standard ABI, above Debian's: windows, also of programs of that MPI's
// own ABI.
func TestStandardBack(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 40 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for below := range mpis {
		t.Run(below, func(t *testing.T) {
			found, err := filepath.Glob(filepath.Join(system, "libmpi_abi_"+below+".so.1*"))
			if err != nil || len(found) == 0 {
				t.Skipf("%s of this distribution has no libmpi_abi (%v)", below, err)
			}
			dir := t.TempDir()
			if err := os.Symlink(found[0], filepath.Join(dir, "libmpi_abi.so.1")); err != nil {
				t.Fatal(err)
			}
			env := []string{"LD_LIBRARY_PATH=" + dir}
			for _, abi := range []string{"standard", below} {
				with := func(source string) string {
					if abi == "standard" {
						return standard(t, source)
					}
					return compile(t, abi, source, append([]string{"-Wno-deprecated-declarations"}, warnings...)...)
				}
				t.Run(abi, func(t *testing.T) {
					shared := filepath.Join(t.TempDir(), "shared.dat")
					expect(t, launchWith(t, below, env, ckptrun, "--mpi", "abi", "--dir", t.TempDir(), with("windows.c"), shared, "save"), "windows: ok")
					saved := t.TempDir()
					expect(t, launchRanks(t, below, ranks, env, ckptrun, "--mpi", "abi", "--dir", saved, with("rma.c"), "save"), "rma: ok")
					expect(t, launchRanks(t, below, ranks, env, ckptrun, "--mpi", "abi", "--restart", saved), "rma: ok, restarted")
				})
			}
		})
	}
}
