// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCalls: buffered messages under way, many operations, the thread level, and errors of requests;
// saved under one MPI, and used on under each.
func TestCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some 32 MPI processes")
	}
	ckptrun := filepath.Join(buildTree(t), "bin/ckptrun")
	for first := range mpis {
		program := compile(t, first, "calls.c", warnings...)
		expect(t, launch(t, first, program), "calls: ok")
		dir := t.TempDir()
		expect(t, launch(t, first, ckptrun, "--dir", dir, program, "save"), "calls: ok")
		manifest, err := os.ReadFile(filepath.Join(dir, "epoch-000001", "manifest.json"))
		if err != nil || !strings.Contains(string(manifest), `"threads": "funneled"`) {
			t.Errorf("the manifest does not say what threads may do (%v):\n%s", err, manifest)
		}
		for second := range mpis {
			t.Run(first+" then "+second, func(t *testing.T) {
				expect(t, launch(t, second, ckptrun, "--restart", dir), "calls: ok, restarted")
			})
		}
	}
}
