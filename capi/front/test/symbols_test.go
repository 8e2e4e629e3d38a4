// SPDX-License-Identifier: Apache-2.0

package test

import (
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

const system = "/usr/lib/x86_64-linux-gnu"

// own are the symbols of real MPIs that no program is meant to use: the libraries' own parts that
// happen to be exported, and the tables that debuggers read.
var own = regexp.MustCompile(`^(MPIR_|MPII_|MPIX_|PMPIX_|MPID|MPIU_|MPIO_|MPIOI_|mpid|mpiext_|mpimsgq_|mpidbg_|MPI_T_PVAR_ALL_HANDLES)`)

// symbols returns an ELF file's dynamic symbols, defined and not.
func symbols(t *testing.T, file string) (defined map[string]elf.Symbol, needed []string) {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	defined = map[string]elf.Symbol{}
	for _, s := range all {
		if s.Section == elf.SHN_UNDEF {
			needed = append(needed, s.Name)
		} else {
			defined[s.Name] = s
		}
	}
	return defined, needed
}

// TestExportedSymbols: a front has each function and each datum of MPI that the real library has,
// data of the same size.
func TestExportedSymbols(t *testing.T) {
	for front, real := range map[string]string{
		"libmpich.so.12": "libmpich.so.12",
		"libmpi.so.40":   "libmpi.so.40",
	} {
		t.Run(front, func(t *testing.T) {
			ours, _ := symbols(t, filepath.Join(buildTree(t), "lib/ckpt/front", front))
			theirs, _ := symbols(t, filepath.Join(system, real))
			mpi := 0
			for name, s := range theirs {
				if !regexp.MustCompile(`^(OMPI_C_|(?i:p?mpi))`).MatchString(name) && ours[name].Name == "" || own.MatchString(name) {
					continue
				}
				mpi++
				o, ok := ours[name]
				if !ok {
					t.Errorf("%s is missing", name)
				} else if elf.ST_TYPE(s.Info) == elf.STT_OBJECT && o.Size != s.Size {
					t.Errorf("%s has %d bytes, want %d", name, o.Size, s.Size)
				}
			}
			if mpi < 700 {
				t.Errorf("only %d symbols of MPI found in %s", mpi, real)
			}
		})
	}
}

// TestCompanions: what the real Fortran and C++ libraries use of the real MPI is in the fronts, so that
// they can be bound at once.
func TestCompanions(t *testing.T) {
	openmpi := []string{"libmpi.so.40", "libopen_mpi.so.40"}
	fronts := filepath.Join(buildTree(t), "lib/ckpt/front")
	// What stands for the library below Open MPI 5 and 6; that of Open MPI 4 is the real one.
	pal, err := filepath.Glob(filepath.Join(fronts, "libopen-pal.so.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pal {
		openmpi = append(openmpi, filepath.Base(p))
	}
	for companion, of := range map[string][]string{
		"libmpichfort.so.12":             {"libmpich.so.12"},
		"libmpi_mpifh.so.40":             openmpi,
		"libmpi_usempif08.so.40":         openmpi,
		"libmpi_usempi_ignore_tkr.so.40": openmpi,
		"libmpichcxx.so.12":              {"libmpich.so.12"},
		"libmpi_cxx.so.40":               openmpi,
	} {
		t.Run(companion, func(t *testing.T) {
			if !isThere(t, companion) {
				return
			}
			_, needed := symbols(t, filepath.Join(system, companion))
			ours, theirs := map[string]bool{}, map[string]bool{}
			for _, library := range of {
				for _, l := range []struct {
					dir string
					has map[string]bool
				}{{fronts, ours}, {system, theirs}} {
					file := filepath.Join(l.dir, library)
					if _, err := os.Stat(file); err != nil && library != of[0] {
						continue // Open MPI 6 has its second library, and others have not
					}
					defined, _ := symbols(t, file)
					for name := range defined {
						l.has[name] = true
					}
				}
			}
			for _, name := range needed {
				if theirs[name] && !ours[name] {
					t.Errorf("%s is missing", name)
				}
			}
		})
	}
}

// isThere tells whether the distribution has a library of its Open MPI: there is no C++ in Open MPI 5.
func isThere(t *testing.T, library string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(system, library))
	if err == nil {
		return true
	}
	if _, four := os.Stat(filepath.Join(system, "libopen-rte.so.40")); library != "libmpi_cxx.so.40" || four == nil {
		t.Error(err)
	}
	t.Logf("this Open MPI has no %s", library)
	return false
}

// TestReplaced: each function of ours in libmpi_mpifh and libmpi_cxx has the names of the real one.
func TestReplaced(t *testing.T) {
	replaced := map[string]int{"libmpi_mpifh.so.40": 25, "libmpi_cxx.so.40": 8}
	if f08, _ := symbols(t, filepath.Join(system, "libmpi_usempif08.so.40")); f08["ompi_gather_wrapper_f08"].Name != "" {
		replaced["libmpi_usempif08.so.40"] = 60
	}
	for library, least := range replaced {
		if !isThere(t, library) {
			continue
		}
		ours, _ := symbols(t, filepath.Join(buildTree(t), "lib/ckpt/front", library))
		theirs, _ := symbols(t, filepath.Join(system, library))
		address := map[uint64]bool{}
		for name := range ours {
			s, ok := theirs[name]
			if !ok {
				t.Errorf("%s is not in the real %s", name, library)
			}
			address[s.Value] = true
		}
		for name, s := range theirs {
			if _, ok := ours[name]; address[s.Value] && !ok {
				t.Errorf("%s: %s is another name of a function that ours replaces", library, name)
			}
		}
		if len(address) < least {
			t.Errorf("%s: %d functions are replaced, want all that look into objects", library, len(address))
		}
	}
}

// headerOnly are functions that a real library has in its header alone.
var headerOnly = map[string]*regexp.Regexp{
	"MPICH 4.0":    regexp.MustCompile(`_(c2f|f2c)$`),
	"Open MPI 4.1": regexp.MustCompile(`^MPI_Aint_(add|diff)$`),
}

// TestCoverageTable: docs/coverage.md has every function of each real library, with one of the fates,
// and says of none that it is there which is not.
func TestCoverageTable(t *testing.T) {
	text, err := os.ReadFile("../../../docs/coverage.md")
	if err != nil {
		t.Fatal(err)
	}
	fates := map[string]bool{"saved and rebuilt": true, "passes through": true,
		"runs but holds back a checkpoint": true, "returns an error": true, "not in this MPI": false}
	for column, implementation := range []string{"MPICH 4.0", "Open MPI 4.1"} {
		library := []string{"libmpich.so.12", "libmpi.so.40"}[column]
		theirs, _ := symbols(t, filepath.Join(system, library))
		newer := []string{"MPI_Status_get_source", "MPI_Alltoallw_init"}[column]
		if theirs[newer].Name != "" {
			t.Logf("the table is about %s, and this distribution has a newer one, with %s", implementation, newer)
			continue
		}
		ours, _ := symbols(t, filepath.Join(buildTree(t), "lib/ckpt/front", library))
		listed := map[string]bool{}
		for _, row := range regexp.MustCompile("(?m)^\\| `(MPI_\\w+)` \\| (.*?) \\| (.*?) \\|").FindAllStringSubmatch(string(text), -1) {
			name, fate := row[1], row[2+column]
			here, known := fates[fate]
			listed[name] = true
			if !known {
				t.Errorf("%s in %s: %q is none of the fates that there are", name, implementation, fate)
			}
			_, is := theirs[name]
			_, extension := theirs["MPIX_"+name[len("MPI_"):]]
			if (is || extension || headerOnly[implementation].MatchString(name)) != here {
				t.Errorf("%s in %s: %q, but whether %s has it: %v", name, implementation, fate, library, is || extension)
			}
			if _, is := ours[name]; here && !is {
				t.Errorf("%s in %s: %q, but it is not in our %s", name, implementation, fate, library)
			}
		}
		function := regexp.MustCompile(`^MPI_([A-Z][a-z]|T_[a-z])\w*$`)
		for name, s := range theirs {
			if function.MatchString(name) && elf.ST_TYPE(s.Info) == elf.STT_FUNC && !listed[name] {
				t.Errorf("%s of %s is not in the table", name, library)
			}
		}
		if len(listed) < 600 {
			t.Errorf("only %d functions found in the table", len(listed))
		}
	}
}
