// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"testing"

	"github.com/libckpt/libckpt/internal/needmpi"
)

// TestDescriptors: the program's descriptors are as they are without ckptrun, wherever they come from. The shell gives
// ckptrun two that nobody asked for, as launchers and batch systems do.
func TestDescriptors(t *testing.T) {
	needmpi.Terminals(t)
	program := filepath.Join(built.Src, "descriptors.py")
	const inherited = `ulimit -Sn 128; exec "$@" <(echo from the shell) 3</dev/null 9</dev/null`
	for _, trap := range []string{"seccomp", "sud"} {
		t.Run(trap, func(t *testing.T) {
			out := outputOf(t, "bash", "-c", inherited, "bash", built.CkptRun(), "--trap", trap, "--dir", filepath.Join(t.TempDir(), "ckpt"),
				"--", "/usr/bin/python3", program, "128")
			if out != "descriptors: good\n" {
				t.Error(out)
			}
		})
	}
}
