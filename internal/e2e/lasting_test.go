// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A checkpoint is refused for a descriptor that the program keeps open: the answer comes long before the time of the
// request is over, and says what is open where. When the program has closed it, the next request is served.
func TestMPILastingRefusal(t *testing.T) {
	needCommands(t)
	for _, mpi := range mpis {
		t.Run(mpi, func(t *testing.T) {
			program := buildMPI(t, mpi, "viewer")
			s := &steps{}
			closed := ""
			s.mpiJob = startMPI(t, mpi, ranks, func(r *Run) []string {
				s.stop, closed = filepath.Join(r.Dir, "stop"), filepath.Join(r.Dir, "closed")
				return []string{built.CkptRun(), "--dir", r.Checkpoints(), "--", program, s.stop, closed}
			})
			if !Poll(mpiLimit, s.Done(), func() bool { return bytes.Contains(mustRead(t, s.run.Stdout), []byte("ready")) }) {
				t.Fatalf("it does not start: %s", mustRead(t, s.run.Stderr))
			}
			began := time.Now()
			exit, said := s.ckptctl(t, "checkpoint", s.run.Checkpoints(), "--timeout", checkpointLimit.String())
			if exit == (Exit{}) || !strings.Contains(said, "refused; the job goes on unchanged") ||
				!strings.Contains(said, "is a view of the process's own memory or threads") || !strings.Contains(said, "rank ") {
				t.Fatalf("%v: %s", exit, said)
			}
			if waited := time.Since(began); waited > checkpointLimit/2 {
				t.Errorf("the answer came after %v", waited)
			}
			if err := os.WriteFile(closed, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			s.save(t)
			if err := os.WriteFile(s.stop, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			s.mustEnd(t)
		})
	}
}
