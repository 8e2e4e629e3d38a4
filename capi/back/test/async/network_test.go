// SPDX-License-Identifier: Apache-2.0

package async

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/libckpt/libckpt/capi/back/test/cycle"
)

// TestNetwork saves a job whose network holds one of each thing, twice: the second image holds what the
// first restart was given.
func TestNetwork(t *testing.T) {
	programs := map[string]string{}
	for _, mpi := range []string{"mpich", "openmpi"} {
		programs[mpi] = cycle.Compile(t, mpi, "network.c")
	}
	want := natively(t, "mpich", programs["mpich"], "go")
	for _, pair := range cycle.Pairs {
		t.Run(pair[0]+"-"+pair[1], func(t *testing.T) {
			dir, stage := filepath.Join(t.TempDir(), "ckpt"), t.TempDir()
			run := cycle.Tool(t, "ckptrun")
			j := cycle.Start(t, pair[0], ranks, run, "--dir", dir, programs[pair[0]], stage)
			for r := range ranks {
				arrived(t, j, stage, r)
			}
			for _, next := range []string{pair[1], pair[0]} {
				if !j.Save() {
					t.Fatalf("it has ended\n%s", j.Output())
				}
				j.Kill()
				if err := os.Remove(filepath.Join(dir, "job.json")); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				j = cycle.Start(t, next, ranks, run, "--dir", dir, "--restart", dir)
			}
			leave(t, stage)
			if !j.Ended(patience) {
				t.Fatalf("it does not end\n%s", j.Where())
			}
			if got := j.Result(); got != want {
				t.Errorf("got %q, want %q\n%s", got, want, j.Output())
			}
		})
	}
}

// arrived waits until a rank says that it has come to the moment.
func arrived(t *testing.T, j *cycle.Job, stage string, rank int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(stage, fmt.Sprintf("at.%d", rank))); err == nil {
			return
		}
		if j.Ended(0) || time.Now().After(end) {
			t.Fatalf("rank %d does not come to the moment\n%s", rank, j.Where())
		}
	}
}

func leave(t *testing.T, stage string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(stage, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}
