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

// A file that was only read at the checkpoint, and to which the program has appended since by another descriptor, is as it was: also where the program has
// given its name to another file meanwhile.
func TestReadAndAppended(t *testing.T) {
	needCommands(t)
	const script = `
import os, sys, time
def rest():
    if not os.path.exists("go"):
        print("reads", flush=True)
    while not os.path.exists("go"): time.sleep(0.01)
with open("log", "w") as f: f.write("begin\n")
os.utime("log", (1, 1))
with open("log") as f:
    f.readline()
    rest()
    assert f.read() == "", "it can read on"
for i in range(3):
    with open("log", "a") as f: f.write("line %d\n" % i)
    lines = open("log").read()
    if sys.argv[1] == "replace":
        if os.path.exists("old"): os.remove("old")
        os.rename("log", "old")
        with open("log", "w") as f: f.write(lines)
print(lines, flush=True)
while os.path.exists("stay"): time.sleep(0.01)
`
	for _, how := range []string{"append", "replace"} {
		t.Run(how, func(t *testing.T) {
			run, mark := runOf(t)
			writeFile(t, filepath.Join(run.Work(), "stay"), nil)
			says := func(what string) {
				t.Helper()
				if !Poll(patience, make(chan struct{}), func() bool { return strings.Contains(string(mustRead(t, run.Stdout)), what) }) {
					t.Fatalf("it does not say %q\n%s\n%s", what, mustRead(t, run.Stdout), mustRead(t, run.Stderr))
				}
			}
			p, err := run.Start(mark, built.CkptRun(), "--dir", run.Checkpoints(), "--", "python3", "-c", script, how)
			must(t, err)
			says("reads")
			asked, err := NewRun(t.TempDir())
			must(t, err)
			must(t, asked.Once(checkpointLimit, built.CkptCtl(), "checkpoint", run.Checkpoints()))
			if asked.Exit != (Exit{}) {
				t.Fatalf("%v: %s", asked.Exit, mustRead(t, asked.Stderr))
			}
			writeFile(t, filepath.Join(run.Work(), "go"), nil)
			says("line 2")
			mark.KillAll()
			_, err = p.Wait(time.Minute)
			must(t, err)
			must(t, os.Remove(filepath.Join(run.Work(), "stay")))
			again, err := NewRun(t.TempDir())
			must(t, err)
			must(t, again.Once(time.Minute, built.CkptRun(), "--restart", run.Checkpoints()))
			const want = "begin\nline 0\nline 1\nline 2\n"
			got := string(mustRead(t, filepath.Join(run.Work(), "log")))
			if again.Exit != (Exit{}) || got != want {
				t.Errorf("%v, and the file has %q\n%s", again.Exit, got, mustRead(t, again.Stderr))
			}
		})
	}
}
