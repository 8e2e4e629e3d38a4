// SPDX-License-Identifier: Apache-2.0

package test

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestCorners: what a program sees where few look is what it sees natively, above each MPI.
func TestCorners(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 12 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for abi := range mpis {
		program := compile(t, abi, "corners.c", warnings...)
		native := corners(launchTwo(t, abi, program))
		if last := native[len(native)-1]; last != "= corners: done" {
			t.Fatalf("natively it ends with %q", last)
		}
		for below := range mpis {
			t.Run(abi+" above "+below, func(t *testing.T) {
				here := corners(launchTwo(t, below, ckptrun, program))
				for i := range max(len(native), len(here)) {
					if line(native, i) != line(here, i) {
						t.Errorf("natively:\n%s\nunder ckptrun:\n%s", line(native, i), line(here, i))
					}
				}
			})
		}
	}
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
