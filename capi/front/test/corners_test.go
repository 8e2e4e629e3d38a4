// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCorners: what a program sees where few look is what it sees natively, above each MPI. Words differ by release:
// above another MPI it sees those of the first release with its ABI, which are kept in testdata and compared
// with a native run wherever that release is installed.
func TestCorners(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 12 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	programs, native, first := map[string]string{}, map[string][]string{}, map[string][]string{}
	for abi := range mpis {
		programs[abi] = compile(t, abi, "corners.c", append([]string{"-Wno-deprecated-declarations"}, warnings...)...)
		said := launchTwo(t, abi, programs[abi], "of", "each")
		native[abi] = corners(said)
		if last := native[abi][len(native[abi])-1]; last != "= corners: done" {
			t.Fatalf("natively it ends with %q", last)
		}
		kept, err := os.ReadFile(filepath.Join("testdata", "corners."+abi+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		first[abi] = corners(string(kept))
		if strings.Contains(said, "compiled for "+firstRelease[abi]+"\n") {
			compare(t, "testdata has", first[abi], "natively", native[abi])
		}
	}
	for abi := range mpis {
		for below := range mpis {
			t.Run(abi+" above "+below, func(t *testing.T) {
				here := corners(launchTwo(t, below, ckptrun, programs[abi], "of", "each"))
				if below == abi {
					compare(t, "natively", native[abi], "under ckptrun", here)
					return
				}
				want := withFailed(t, withMore(first[abi], native[abi]), native[below])
				compare(t, "in the first release", want, "under ckptrun", here)
			})
		}
	}
}

// firstRelease is the one whose words testdata/corners.*.txt has.
var firstRelease = map[string]string{"mpich": "mpich 4.0", "openmpi": "openmpi 4.1"}

// compare takes the order of hints for nothing: no MPI promises one.
func compare(t *testing.T, a string, of []string, b string, with []string) {
	t.Helper()
	of, with = sorted(of), sorted(with)
	for i := range max(len(of), len(with)) {
		if line(of, i) != line(with, i) {
			t.Errorf("%s:\n%s\n%s:\n%s", a, line(of, i), b, line(with, i))
		}
	}
}

// topic is what a line of corners.c is about.
func topic(line string) string {
	before, _, _ := strings.Cut(line, ": ")
	return before
}

// sorted puts the hints of one object into one order.
func sorted(lines []string) []string {
	lines = slices.Clone(lines)
	for i := 0; i < len(lines); {
		n := i + 1
		for n < len(lines) && topic(lines[n]) == topic(lines[i]) {
			n++
		}
		if strings.Contains(strings.TrimPrefix(lines[i], "= "), "=") {
			slices.Sort(lines[i:n])
		}
		i = n
	}
	return lines
}

// withMore is what the first release says, and what only a program of a later one asks.
func withMore(first, native []string) []string {
	known := make(map[string]bool)
	for _, l := range first {
		known[topic(l)] = true
	}
	end := len(first) - 1
	all := slices.Clone(first[:end])
	for _, l := range native {
		if !known[topic(l)] {
			all = append(all, l)
		}
	}
	return append(all, first[end])
}

// withFailed is what an MPI says above another one that itself cannot share memory here.
func withFailed(t *testing.T, want, below []string) []string {
	const shared = "= MPI_Win_allocate_shared"
	of := func(l string) bool { return topic(l) == shared }
	at := slices.IndexFunc(want, of)
	if at < 0 || !slices.Contains(below, shared+": an error") {
		return want
	}
	t.Log("MPI_Win_allocate_shared fails natively in the MPI below")
	return slices.Insert(slices.DeleteFunc(slices.Clone(want), of), at, shared+": an error")
}

// corners are the lines of corners.c in what a job said.
func corners(said string) []string {
	lines := []string{""} // so that there is a last one
	for l := range strings.Lines(said) {
		if strings.HasPrefix(l, "= ") {
			lines = append(lines, strings.TrimSpace(l))
		}
	}
	return lines
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "nothing"
}
