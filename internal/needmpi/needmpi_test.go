// SPDX-License-Identifier: Apache-2.0

package needmpi

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSkips: a test of an MPI without a back is skipped by name, and no other.
func TestSkips(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"libckpt-core.so", "back/libckptback-one.so"} {
		path := filepath.Join(dir, "lib", "ckpt", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gathered := filepath.Join(dir, "skipped")
	t.Setenv("LIBCKPT_BUILD", dir)
	t.Setenv(Until, "")
	t.Setenv(Gather, gathered)
	ran := map[string]bool{}
	for _, mpi := range []string{"one", "two"} {
		t.Run(mpi, func(t *testing.T) {
			Test(t, mpi)
			ran[mpi] = true
		})
	}
	if !ran["one"] || ran["two"] {
		t.Errorf("ran: %v", ran)
	}
	if text, err := os.ReadFile(gathered); err != nil || string(text) != "no back for two: TestSkips/two\n" {
		t.Errorf("gathered %q (%v)", text, err)
	}
	if err := os.Remove(filepath.Join(dir, "lib", "ckpt", "libckpt-core.so")); err != nil {
		t.Fatal(err)
	}
	t.Run("no tree", func(t *testing.T) {
		Test(t, "two")
		ran["no tree"] = true
	})
	if !ran["no tree"] {
		t.Error("a test was skipped although there is no tree: it must fail by itself")
	}
}
