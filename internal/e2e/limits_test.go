// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Limits with which nothing can run get a sentence that names them; those that may be raised are.
func TestLimits(t *testing.T) {
	needCommands(t)
	dir := t.TempDir()
	ckptrun := fmt.Sprintf("%s --dir %s %s -- ", built.CkptRun(), filepath.Join(dir, "ckpt"), strings.Join(options(), " "))
	for _, c := range []struct {
		limit, command string
		exit           int
		says           []string
	}{
		{"-v 200000", ckptrun + "true", 1, []string{"195 MiB", "ulimit -v"}},
		{"-v 1200000", ckptrun + "true", 1, []string{"1171 MiB", "ulimit -v"}},
		{"-v 200000", built.CkptCtl() + " ls " + dir, 1, []string{"195 MiB", "ulimit -v"}},
		{"-v 1200000", built.CkptCtl() + " ls " + dir, 1, []string{"1171 MiB", "ulimit -v"}},
		{"-n 20", ckptrun + "true", 1, []string{"at most 20 descriptors", "ulimit -Hn"}},
		{"-n 256", ckptrun + "true", 1, []string{"at most 256 descriptors", "ulimit -Hn"}},
		// What is left to the program stays what it was, and a soft limit is raised.
		{"-S -v 200000", ckptrun + "true", 0, nil},
		{"-v 3000000", ckptrun + "true", 0, nil},
		{"-S -v 200000", built.CkptCtl() + " ls " + dir, 3, []string{"no committed checkpoint"}},
		{"-v 3000000", built.CkptCtl() + " ls " + dir, 3, []string{"no committed checkpoint"}},
		{"-S -n 20", ckptrun + "true", 0, nil},
		{"-n 320", ckptrun + "true", 0, nil},
	} {
		cmd := exec.Command("bash", "-c", "ulimit "+c.limit+"; exec "+c.command)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != c.exit {
			t.Errorf("ulimit %s; %s: %v, expected exit status %d: %s", c.limit, c.command, err, c.exit, out)
		}
		for _, word := range c.says {
			if !strings.Contains(string(out), word) {
				t.Errorf("ulimit %s; %s: it does not say %q: %s", c.limit, c.command, word, out)
			}
		}
		if strings.Contains(string(out), "goroutine") || strings.Contains(string(out), "runtime") {
			t.Errorf("ulimit %s; %s: a trace: %s", c.limit, c.command, out)
		}
	}
}

// A rank's limits of memory and files are its own: what libckpt and the MPI need for its calls and its end does not count.
func TestMPILimits(t *testing.T) {
	needCommands(t)
	for _, mpi := range []string{"mpich", "openmpi"} {
		t.Run(mpi, func(t *testing.T) {
			program := buildMPI(t, mpi, "narrow")
			j := startMPI(t, mpi, ranks, func(r *Run) []string {
				return []string{built.CkptRun(), "--dir", r.Checkpoints(), "--", program}
			})
			j.mustEnd(t)
		})
	}
}

// A program that has taken all addresses that a hard limit leaves to it is saved, and goes on in as many. What it shares cannot
// be copied there: then it is told so, and goes on.
func TestAddressesTaken(t *testing.T) {
	needCommands(t)
	for _, flag := range []string{"PRIVATE", "SHARED"} {
		t.Run(flag, func(t *testing.T) { addressesTaken(t, flag) })
	}
}

func addressesTaken(t *testing.T, flag string) {
	run, mark := runOf(t)
	over := filepath.Join(run.Dir, "over")
	takes := `
import mmap, os, sys, time
kept = []
try:
    while len(kept) < 64:
        kept.append(mmap.mmap(-1, 64 << 20, flags=mmap.MAP_ANONYMOUS | mmap.MAP_` + flag + `))
        for at in range(len(kept) % 2 * (32 << 20), 64 << 20, 4096): kept[-1][at] = len(kept)
except OSError as e:
    print('full', e.errno, flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
print('over', len(kept) < 64 and all(m[-4096] == i + 1 for i, m in enumerate(kept)), flush=True)
`
	start := func(argv ...string) *Process {
		p, err := run.Start(mark, append([]string{"bash", "-c", `ulimit -v 4194304; exec "$@"`, "limited", built.CkptRun()}, argv...)...)
		must(t, err)
		return p
	}
	p := start("--dir", run.Checkpoints(), "--", "/usr/bin/python3", "-c", takes, over)
	if !Poll(patience, p.Done(), func() bool { return string(mustRead(t, run.Stdout)) == "full 12\n" }) {
		t.Fatalf("it says %q\n%s", mustRead(t, run.Stdout), mustRead(t, run.Stderr))
	}
	for _, then := range []string{"continue", "kill"} {
		asked, err := NewRun(t.TempDir())
		must(t, err)
		must(t, asked.Once(checkpointLimit, built.CkptCtl(), "checkpoint", run.Checkpoints(), "--then", then))
		said := string(mustRead(t, run.Stderr))
		if asked.Exit != (Exit{}) {
			t.Fatalf("%s: %v: %s\n%s", then, asked.Exit, mustRead(t, asked.Stderr), said)
		}
		// There is no room for a copy, and the program stands until its image is written.
		if uncopied := strings.Contains(said, "memory for a copy of"); uncopied != (flag == "SHARED") {
			t.Errorf("%s: %s", then, said)
		}
	}
	_, err := p.Wait(time.Minute)
	must(t, err)
	p = start("--restart", run.Checkpoints())
	must(t, os.WriteFile(over, nil, 0o600))
	if exit, err := p.Wait(time.Minute); err != nil || exit != (Exit{}) || !strings.HasSuffix(string(mustRead(t, run.Stdout)), "over True\n") {
		t.Errorf("ended with %v %v: %s%s", exit, err, mustRead(t, run.Stdout), mustRead(t, run.Stderr))
	}
}
