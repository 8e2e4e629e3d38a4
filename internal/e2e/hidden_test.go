// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Memory that a program has hidden from forks is in an image that a fork of it is written to, and hidden from its
// children again when it is continued.
func TestHiddenFromForks(t *testing.T) {
	needCommands(t)
	for _, trap := range []string{"seccomp", "sud"} {
		t.Run(trap, func(t *testing.T) {
			dir := t.TempDir()
			letGo := filepath.Join(dir, "go")
			w, err := NewWhole(built, dir, filepath.Join(built.Bin, "hidden"), letGo)
			must(t, err)
			w.Ranks, w.Together = 1, true
			t.Cleanup(w.Mark.KillAll)
			must(t, w.Start("shell", "--trap", trap))
			// The second image is one of a continued program.
			for range 2 {
				if !Poll(mpiLimit, nil, func() bool {
					said, err := w.Printed("out")
					if err != nil || !strings.HasPrefix(said, "ready\n") {
						return w.Ended()
					}
					exit, said, err := w.Ckptctl(t.TempDir(), mpiLimit, "status", w.Run.Checkpoints())
					return err == nil && exit == (Exit{}) && strings.Contains(said, "runs")
				}) || w.Ended() {
					t.Fatalf("it is not ready: %s", w.Said())
				}
				exit, said, err := w.Ckptctl(t.TempDir(), mpiLimit, "checkpoint", w.Run.Checkpoints(), "--then", "continue")
				must(t, err)
				if exit != (Exit{}) {
					t.Fatalf("%v: %s%s", exit, said, w.Said())
				}
				must(t, w.Kill(mpiLimit, true))
				must(t, w.Restart("shell", "--trap", trap))
			}
			must(t, os.WriteFile(letGo, nil, 0o644))
			must(t, w.MustEnd(mpiLimit))
			said, err := w.Printed("out")
			must(t, err)
			if want := "ready\nhere: 1 1\nin a child: 0\n"; said != want {
				t.Errorf("it prints %q, want %q", said, want)
			}
		})
	}
}
