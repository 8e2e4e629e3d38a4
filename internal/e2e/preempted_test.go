// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A program in Go, whose runtime uses the signals that ckptrun's own uses and which makes system calls itself, is saved, killed
// and continued, linked at a fixed address and at any.
func TestProgramInGo(t *testing.T) {
	for _, mode := range []string{"exe", "pie"} {
		t.Run(mode, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "preempted")
			compile := exec.Command("go", "build", "-buildmode="+mode, "-o", program, "./testdata/preempted")
			compile.Env = append(compile.Environ(), "CGO_ENABLED=1")
			if said, err := compile.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			native := newTogether(t, 1, program, "150")
			must(t, native.Natively())
			must(t, native.MustEnd(togetherLimit))
			w := newTogether(t, 1, program, "150")
			w.Together = true
			must(t, w.Start("shell", options()...))
			goes(t, w)
			saveTogether(t, w, "continue")
			for i := range 3 {
				time.Sleep(100 * time.Millisecond) // so that it is not always at the same place
				lifeAfter(t, w, i != 1)
			}
			must(t, w.MustEnd(togetherLimit))
			want, got := mustRead(t, fmt.Sprintf("%s.out.0", native.Files)), mustRead(t, fmt.Sprintf("%s.out.0", w.Files))
			if string(got) != string(want) {
				t.Errorf("it says %q, natively %q", got, want)
			}
		})
	}
}
