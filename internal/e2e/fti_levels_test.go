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

var shimLaunchers = map[string][]string{
	"mpich":   {"mpiexec.mpich", "-n"},
	"openmpi": {"mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe", "-n"},
}

// buildShim compiles a program with the library of another product's functions that libckpt has (fti, veloc).
func buildShim(t *testing.T, shim, compiler, mpi, source string, flags ...string) string {
	t.Helper()
	needmpi.Test(t, mpi)
	lib := filepath.Join(built.Root, "build", "lib")
	own := filepath.Join(lib, "ckpt", shim, mpi)
	out := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(source), filepath.Ext(source)))
	argv := append([]string{compiler + "." + mpi, "-O1", "-Wall", "-Wextra", "-Werror"}, flags...)
	argv = append(argv, "-I", filepath.Join(built.Root, "build", "include", shim), "-o", out, source, "-L", own, "-lckpt_"+shim, "-Wl,-rpath,"+own, "-Wl,-rpath-link,"+lib)
	if b, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, b)
	}
	return out
}

// tiers is programs/tiers.c on four nodes of one rank each.
type tiers struct {
	*ftiJob
	local string
}

func newTiers(t *testing.T, mpi, keep string) *tiers {
	t.Helper()
	dir := t.TempDir()
	j := &tiers{&ftiJob{config: filepath.Join(dir, "config.fti"), global: filepath.Join(dir, "Global")}, filepath.Join(dir, "Local")}
	j.launcher, j.program = shimLaunchers[mpi], buildShim(t, "fti", "mpicc", mpi, filepath.Join(built.Src, "tiers.c"), "-std=gnu11")
	text := "[Basic]\nHead = 0\nNode_size = 1\nGroup_size = 4\nCkpt_dir = " + j.local + " # of each node\nGlbl_dir = " + j.global +
		"\nCkpt_io = 1\nCkpt_l2 = 2\nkeep_last_ckpt = " + keep + "\n[Restart]\nfailure = 0\nexec_id = NULL\n[Advanced]\nLocal_test = 1\n"
	if err := os.WriteFile(j.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return j
}

// files are those with FTI's names that match a pattern; %id is the execution.
func (j *tiers) files(t *testing.T, pattern string) []string {
	t.Helper()
	list, err := filepath.Glob(strings.NewReplacer("Local", j.local, "Global", j.global).Replace(pattern))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestFTILevels: a checkpoint of a level has FTI's names on its nodes; what is removed or overwritten by these names is
// lost, and is brought back as far as the level promises.
func TestFTILevels(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mpi, keep, level string
		lose             []string // patterns; what begins with "=" is overwritten
		names            map[string]int
		recovers         bool
	}{
		"1":          {"mpich", "0", "1", nil, map[string]int{"Local/node?/*/l1/Ckpt17-Rank?.fti": 4}, true},
		"1 lost":     {"openmpi", "0", "1", []string{"Local/node0/*/l1/Ckpt17-Rank0.fti"}, nil, false},
		"1 damaged":  {"mpich", "0", "1", []string{"=Local/node0/*/l1/Ckpt17-Rank0.fti"}, nil, false},
		"1 kept":     {"mpich", "1", "1", []string{"Local/node?/*/l1"}, map[string]int{"Global/*/l4/Ckpt17-Rank?.fti": 4, "Local/node?/*/l1/*": 0}, true},
		"1 not kept": {"mpich", "1", "1", []string{"Global/*/l4"}, nil, false},
		"2": {"openmpi", "0", "2", []string{"Local/node0/*/l2/*Rank*", "=Local/node2/*/l2/*Rank*"},
			map[string]int{"Local/node?/*/l2/Ckpt17-Rank?.fti": 4, "Local/node?/*/l2/Ckpt17-Pcof?.fti": 4}, true},
		"2 copies":       {"mpich", "0", "2", []string{"=Local/node?/*/l2/*Pcof*"}, nil, true},
		"2 neighbours":   {"mpich", "0", "2", []string{"Local/node0/*/l2", "Local/node1/*/l2"}, nil, false},
		"3":              {"mpich", "0", "3", []string{"Local/node0/*/l3", "Local/node1/*/l3"}, map[string]int{"Local/node?/*/l3/Ckpt17-RSed?.fti": 4}, true},
		"3 three":        {"mpich", "0", "3", []string{"Local/node0/*/l3", "Local/node1/*/l3", "Local/node2/*/l3"}, nil, false},
		"4":              {"openmpi", "0", "4", []string{"Local/node*"}, map[string]int{"Global/*/l4/Ckpt17-Rank?.fti": 4}, true},
		"4 lost":         {"mpich", "0", "4", []string{"Global/*/l4"}, nil, false},
		"4 one damaged":  {"mpich", "0", "4", []string{"Local/node*", "=Global/*/l4/Ckpt17-Rank3.fti"}, nil, false},
		"3 whole nodes":  {"openmpi", "0", "3", []string{"Local/node0", "Local/node3"}, nil, true},
		"2 lost, copied": {"mpich", "0", "2", []string{"Local/node1/*/l2/Ckpt17-Rank1.fti", "Local/node2/*/l2/Ckpt17-Pcof2.fti"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newTiers(t, c.mpi, c.keep)
			end := map[string]string{"0": "die", "1": "end"}[c.keep]
			if out := outputOf(t, j.start("4", c.level, end)...); !strings.Contains(out, "saved 1") {
				t.Fatalf("%s", out)
			}
			for pattern, want := range c.names {
				if list := j.files(t, pattern); len(list) != want {
					t.Errorf("%s: %v, want %d", pattern, list, want)
				}
			}
			for _, pattern := range c.lose {
				list := j.files(t, strings.TrimPrefix(pattern, "="))
				if len(list) == 0 {
					t.Errorf("%s: there is none", pattern)
				}
				for _, path := range list {
					if strings.HasPrefix(pattern, "=") {
						overwrite(t, path)
					} else if err := os.RemoveAll(path); err != nil {
						t.Fatal(err)
					}
				}
			}
			before := string(mustRead(t, j.config))
			exit, out, said := again(t, j.start("4", c.level, "end")...)
			if c.recovers {
				if exit != (Exit{}) || !strings.Contains(out, "recovered") {
					t.Fatalf("%v\n%s%s", exit, out, said)
				}
				return
			}
			// What could not be recovered is as it was: neither the configuration nor a file is touched by FTI_Finalize.
			if exit != (Exit{}) || strings.Count(out, "init -2 finalize -1 status 0") != 4 || !strings.Contains(said, "FTI_Init comes before this") {
				t.Errorf("%v: want a failure that is said\n%s%s", exit, out, said)
			}
			if after := string(mustRead(t, j.config)); after != before {
				t.Errorf("the configuration was changed:\n%s", after)
			}
			if left := j.files(t, "Global/*/epoch-000001/manifest.json"); len(left) != 1 {
				t.Error("the epoch that could not be recovered was removed")
			}
		})
	}
}

// overwrite damages a file in place.
func overwrite(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("not what was here"), 0)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestFTIFortran: a Fortran program with the module FTI is continued after kill -9, bit for bit.
func TestFTIFortran(t *testing.T) {
	t.Parallel()
	needProgram(t, "gfortran")
	for mpi := range shimLaunchers {
		t.Run(mpi, func(t *testing.T) {
			t.Parallel()
			needProgram(t, "mpif90."+mpi)
			j := newFTIJob(t, mpi)
			j.program = buildShim(t, "fti", "mpif90", mpi, filepath.Join(built.Src, "bars.f90"))
			r, err := NewRun(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			undisturbed := outputOf(t, j.start("2", "3000", "0")...)
			continued(t, killedOnce(t, r, j.start("2", "3000", "50")), undisturbed)
		})
	}
}
