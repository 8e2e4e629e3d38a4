// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Ranks that open their logs for each line have each line once in the end, though they are killed and continued above either MPI.
func TestDiaries(t *testing.T) { continuedAboveBoth(t, "diary", "-DMPI=1") }

// A log that others append to, too, is not cut: what they have appended is nobody else's to take away.
func TestDiaryOfOthers(t *testing.T) {
	needCommands(t)
	run, mark := runOf(t)
	program := filepath.Join(built.Bin, "diary")
	p, err := run.Start(mark, built.CkptRun(), "--dir", run.Checkpoints(), "--", program, "300", run.Dir)
	must(t, err)
	own, all := filepath.Join(run.Dir, "diary-own-0"), filepath.Join(run.Dir, "diary-all-0")
	size := func(path string) int64 {
		st, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return st.Size()
	}
	grows := func(path string, over int64) {
		t.Helper()
		if !Poll(patience, p.Done(), func() bool { return size(path) > over+20 }) {
			t.Fatalf("%s does not grow\n%s", path, mustRead(t, run.Stderr))
		}
	}
	grows(own, 0)
	saveNow(t, run)
	grows(own, size(own))
	// By a process that is not the job's, and while that goes on.
	f, err := os.OpenFile(all, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.WriteString("somebody else\n")
	must(t, err)
	must(t, f.Close())
	grows(all, size(all))
	mark.KillAll()
	_, err = p.Wait(time.Minute)
	must(t, err)
	again, err := NewRun(t.TempDir())
	must(t, err)
	must(t, again.Once(time.Minute, built.CkptRun(), "--restart", run.Checkpoints()))
	said := string(mustRead(t, again.Stderr))
	if !strings.Contains(said, all+": what was appended after the checkpoint") || strings.Contains(said, own+": what") {
		t.Errorf("it does not say which file stays: %s", said)
	}
	if b := string(mustRead(t, all)); !strings.Contains(b, "somebody else\n") {
		t.Error("what somebody else has appended is gone")
	}
	if b := strings.Split(strings.TrimSpace(string(mustRead(t, own))), "\n"); len(b) != 300 {
		t.Errorf("its own log has %d lines", len(b))
	}
}
