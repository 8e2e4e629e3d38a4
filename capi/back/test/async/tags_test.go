// SPDX-License-Identifier: Apache-2.0

package async

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// tags saves tags.c with its arguments under one MPI, and continues it under another.
func tags(t *testing.T, first, then string, args ...string) *moments {
	t.Helper()
	m := &moments{t: t, mpi: first, ranks: 2, dir: filepath.Join(t.TempDir(), "ckpt"), stages: t.TempDir()}
	command := append([]string{cycle.Tool(t, "ckptrun"), "--dir", m.dir, cycle.Compile(t, first, "tags.c"), m.stages}, args...)
	m.job = cycle.Start(t, first, m.ranks, command...)
	m.reaches("at")
	m.epoch(m.ask())
	m.job.Kill()
	if err := os.Remove(filepath.Join(m.dir, "job.json")); err != nil {
		t.Fatal(err)
	}
	m.mpi = then
	m.leave("saved")
	m.restart()
	m.end()
	return m
}

// TestHighestTag: programs take MPI_TAG_UB and what is below it, and go on under the other MPI.
func TestHighestTag(t *testing.T) {
	for _, pair := range cycle.Pairs[2:] {
		t.Run(pair[0]+"-"+pair[1], func(t *testing.T) {
			if m := tags(t, pair[0], pair[1]); m.job.Result() != "tags ok" {
				t.Errorf("it does not go on\n%s", m.job.Output())
			}
		})
	}
}

// TestTagTooHigh: an image of a version that told programs Open MPI's own bound has tags that MPICH has not. A
// restart under that says so.
func TestTagTooHigh(t *testing.T) {
	m := tags(t, "openmpi", "mpich", "2147483000")
	for _, part := range []string{"MPI_Irecv", "tag 2147482999", "mpich end at ", "restart the job under the MPI it was saved under"} {
		if !strings.Contains(m.job.Output(), part) {
			t.Errorf("the restart does not say %q\n%s", part, m.job.Output())
		}
	}
	m.mpi = "openmpi"
	m.restart()
	m.job.Ended(patience - time.Minute)
	if m.job.Result() != "tags ok" {
		t.Errorf("under Open MPI it does not go on\n%s", m.job.Output())
	}
}
