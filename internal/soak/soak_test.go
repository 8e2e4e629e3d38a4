// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// tree finds what was built. With LIBCKPT_BUILD set it must be there, so that a skip cannot hide a
// broken build.
func tree(t *testing.T) *Tree {
	t.Helper()
	needmpi.Test(t, "mpich", "openmpi") // lives move between both
	dir, told := os.LookupEnv("LIBCKPT_BUILD")
	if !told {
		dir = filepath.Join("..", "..", "build")
	}
	built, err := Open(dir, t.TempDir())
	if err != nil {
		if told {
			t.Fatal(err)
		}
		t.Skipf("not built (`make test` builds first): %v", err)
	}
	return built
}

// TestShortLives is the part of `make soak` that is small enough for every change: random programs,
// drawn from fixed seeds, each saved, killed and continued a few times.
func TestShortLives(t *testing.T) {
	random, err := Find("random")
	if err != nil {
		t.Fatal(err)
	}
	programs := []Program{*random}
	programs[0].Ranks = []int{2, 3}
	for _, seed := range []uint64{0, 2} { // one built with each MPI
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := NewLife(seed, tree(t), programs, t.TempDir())
			l.Most = 4
			if err := l.Go(); err != nil {
				t.Fatalf("%s\n%s", l, l.Story())
			}
			t.Logf("%s: %d cycles", l, l.Cycles)
		})
	}
}

// TestOtherPeoplesPrograms is the part of `make soak` with the programs of the distribution that is small
// enough for every change.
func TestOtherPeoplesPrograms(t *testing.T) {
	built := tree(t)
	for _, test := range []struct {
		name string
		seed uint64
		most int
	}{
		{"LAMMPS, melt", 5, 1}, // each is saved, killed, and continued
		{"mpi4py, messages", 38, 1},
		{"mpi4py, databases", 3, 4},
		{"HDF5", 38, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := Find(test.name)
			if err != nil {
				t.Fatal(err)
			}
			l := NewLife(test.seed, built, []Program{*p}, t.TempDir())
			l.Most = test.most
			if err := l.Go(); err != nil {
				t.Fatalf("%s\n%s", l, l.Story())
			}
			t.Logf("%s: %d cycles\n%s", l, l.Cycles, l.Story())
		})
	}
}

// TestDurations proves that the numbers of the report are what they are called.
func TestDurations(t *testing.T) {
	var d Durations
	for i := range 100 {
		d = append(d, time.Duration(100-i)*time.Millisecond)
	}
	if got, want := d.String(), "median 51ms, 99% within 100ms, worst 100ms (100)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (Durations)(nil).String(); got != "none" {
		t.Errorf("of nothing: %q", got)
	}
}
