// SPDX-License-Identifier: Apache-2.0

package async

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// TestUpcalls has a checkpoint complete reductions with an operation of the program's own while the program
// computes, sleeps, handles a signal, allocates memory: the operation runs on a thread that was stopped
// anywhere, and nothing of what the thread was stopped in may change, there and after a restart.
func TestUpcalls(t *testing.T) {
	programs := map[string]string{}
	for _, mpi := range []string{"mpich", "openmpi"} {
		programs[mpi] = cycle.Compile(t, mpi, "upcalls.c", "-pthread")
	}
	for i, trap := range []string{"seccomp", "sud", "seccomp"} {
		pair := cycle.Pairs[i]
		t.Run(pair[0]+"-"+pair[1]+"/"+trap, func(t *testing.T) {
			m := &moments{t: t, mpi: pair[0], program: programs[pair[0]], ranks: 2,
				dir: filepath.Join(t.TempDir(), "ckpt"), stages: t.TempDir()}
			m.start("--trap", trap)
			for i, stage := range []string{"computes", "sleeps", "handles", "rounds", "allocates"} {
				m.both("in", stage)
				m.epoch(m.ask())
				if i%2 == 0 { // else it goes on
					m.mpi = pair[(i/2+1)%2]
					m.crash()
				}
				m.leave(stage)
				if m.both("inside", stage) == 0 {
					t.Errorf("stage %s: the operation was not called while the program was stopped", stage)
				}
			}
			m.end()
			if got := m.job.Result(); got != "upcalls 0" {
				t.Errorf("got %q\n%s", got, m.job.Output())
			}
		})
	}
}

// both waits for a word of both ranks, and adds their numbers up.
func (m *moments) both(what, stage string) (sum int) {
	m.t.Helper()
	end := time.Now().Add(patience)
	for rank := 0; rank < 2; rank++ {
		path := filepath.Join(m.stages, fmt.Sprintf("%s.%s.%d", what, stage, rank))
		for n := 0; ; time.Sleep(5 * time.Millisecond) {
			b, err := os.ReadFile(path)
			if _, e := fmt.Sscanf(strings.TrimSpace(string(b)), "%d", &n); err == nil && e == nil {
				sum += n
				break
			}
			if time.Now().After(end) || m.job.Ended(0) {
				m.t.Fatalf("rank %d does not say %s of stage %s\n%s", rank, what, stage, m.job.Where())
			}
		}
	}
	return sum
}
