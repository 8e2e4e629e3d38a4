// SPDX-License-Identifier: Apache-2.0

package async

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// TestDeadlineWhileDraining: the time of a checkpoint is over when the messages of synchronous sends have been
// received, and before it is known that the sends wait. No send is complete before its program has received the
// message: while the program goes on, nor when it is saved and continued after that.
func TestDeadlineWhileDraining(t *testing.T) {
	const want = "overtime right-40003"
	for _, pair := range cycle.Pairs {
		t.Run(pair[0]+"-"+pair[1], func(t *testing.T) {
			program := cycle.Compile(t, pair[0], "overtime.c")
			t.Setenv("CKPT_FAULT", "ckpt.drain.end=error:1")
			m := &moments{t: t, mpi: pair[0], program: program, dir: filepath.Join(t.TempDir(), "ckpt"), stages: t.TempDir()}
			m.start()
			for rank := range ranks {
				arrived(t, m.job, m.stages, rank)
			}
			m.await("rank 2 is in its call", func(s status) bool { return s.in(2, "MPI_Ssend") })
			why := m.refusal(m.ctl("checkpoint", m.dir, "--timeout", "2s"))
			m.mustContain("the answer", why, "timeout", "drain", "the job goes on")
			m.leave("look")
			m.reaches("looked")
			if pair[0] == pair[1] { // without a restart
				m.leave("take")
				m.end()
				if got := m.job.Result(); got != want {
					t.Errorf("got %q, want %q\n%s", got, want, m.job.Output())
				}
				return
			}
			m.epoch(m.ask())
			m.mpi = pair[1]
			if err := os.Unsetenv("CKPT_FAULT"); err != nil {
				t.Fatal(err)
			}
			m.crash()
			m.leave("take")
			m.end()
			if got := m.job.Result(); got != want {
				t.Errorf("got %q, want %q\n%s", got, want, m.job.Output())
			}
		})
	}
}
