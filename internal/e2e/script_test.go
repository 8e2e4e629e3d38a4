// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A script that starts a job, and starts it again when it has ended, says so in the file in which the job prints, too. What
// it said after the checkpoint stays there, and so do the lines of the job that nobody can tell from it.
func TestLauncherOfScript(t *testing.T) {
	needCommands(t)
	for name, how := range map[string]string{"appended": ">>", "one description": ">"} {
		t.Run(name, func(t *testing.T) {
			run, err := NewRun(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			log := filepath.Join(run.Dir, "log")
			if err := os.WriteFile(filepath.Join(run.Work(), "prints.py"), []byte(`
import os, time
for word in "one", "two", "three":
    print(word, flush=True)
    while not os.path.exists(word): time.sleep(0.01)
`), 0o644); err != nil {
				t.Fatal(err)
			}
			script := "exec " + how + log + `
echo script: begins
"$0" --dir "$1" -- python3 prints.py
echo script: ended
"$0" --restart "$1"
echo script: ended well`
			mark := NewMark()
			defer mark.KillAll()
			p, err := run.Start(mark, "/bin/sh", "-c", script, built.CkptRun(), run.Checkpoints())
			if err != nil {
				t.Fatal(err)
			}
			printed := func(want string) {
				t.Helper()
				if !Poll(patience, p.Done(), func() bool {
					text, err := os.ReadFile(log)
					return err == nil && string(text) == want
				}) {
					t.Fatalf("the log is\n%s%s, want\n%s", mustRead(t, log), mustRead(t, run.Stderr), want)
				}
			}
			say := func(word string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(run.Work(), word), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			printed("script: begins\none\n")
			if out, err := exec.Command(built.CkptCtl(), "checkpoint", run.Checkpoints()).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			say("one")
			printed("script: begins\none\ntwo\n")
			ranks := mark.Ranks()
			if len(ranks) != 1 {
				t.Fatalf("%d processes are ckptrun", len(ranks))
			}
			if err := syscall.Kill(ranks[0], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			printed("script: begins\none\ntwo\nscript: ended\ntwo\n")
			say("two")
			say("three")
			if exit, err := p.Wait(mpiLimit); err != nil || exit != (Exit{}) {
				t.Fatalf("%v, %v: %s", exit, err, mustRead(t, run.Stderr))
			}
			printed("script: begins\none\ntwo\nscript: ended\ntwo\nthree\nscript: ended well\n")
			if said := string(mustRead(t, run.Stderr)); !strings.Contains(said, "sh (process ") || !strings.Contains(said, "also writes to "+log) {
				t.Errorf("nobody is told that lines stay: %s", said)
			}
		})
	}
}
