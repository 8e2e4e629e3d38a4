// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libckpt/libckpt/ckpt/store"
)

// listening lists the local addresses, as the kernel writes them, at which a process listens for TCP.
func listening(t *testing.T, pid int) []string {
	t.Helper()
	mine := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) == 0 {
		t.Fatalf("descriptors of process %d: %v", pid, err)
	}
	for _, fd := range fds {
		if name, err := os.Readlink(fd); err == nil && strings.HasPrefix(name, "socket:[") {
			mine[strings.Trim(name, "socket:[]")] = true
		}
	}
	var out []string
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" && mine[f[9]] {
				address, _, _ := strings.Cut(f[1], ":")
				out = append(out, address)
			}
		}
	}
	return out
}

const loopback = "0100007F" // 127.0.0.1 in those tables

// Who can connect to a job: nobody from elsewhere, when all of it is here and no batch system started it.
// Strangers get a line in the log, not one each.
func TestControlPort(t *testing.T) {
	needCommands(t)
	for _, c := range []struct {
		name  string
		env   []string
		args  []string
		local bool
	}{
		{"here", nil, nil, true},
		{"batch", []string{"SLURM_JOB_ID=7"}, nil, false},
		{"batch, local", []string{"SLURM_JOB_ID=7"}, []string{"--control", "local"}, true},
		{"network", nil, []string{"--control", "network"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			run, err := NewRun(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			mark := NewMark()
			defer mark.KillAll()
			argv := append(append([]string{"env", "-u", "SLURM_JOB_ID", "-u", "PBS_JOBID"}, c.env...), built.CkptRun(), "--dir", run.Checkpoints())
			argv = append(append(append(argv, c.args...), options()...), "--", "sleep", "300")
			p, err := run.Start(mark, argv...)
			if err != nil {
				t.Fatal(err)
			}
			chain := Chain{Built: built, Run: run}
			if !Poll(patience, p.Done(), func() bool { return chain.jobOf(p) }) {
				t.Fatalf("no job: %s", mustRead(t, run.Stderr))
			}
			at := listening(t, p.PID())
			if !slices.Contains(at, loopback) {
				t.Errorf("it listens at %q", at)
			}
			if here := !slices.ContainsFunc(at, func(a string) bool { return a != loopback }); here != c.local {
				t.Errorf("it listens at %q", at)
			}
			if out, err := exec.Command(built.CkptCtl(), "status", run.Checkpoints()).CombinedOutput(); err != nil {
				t.Errorf("ckptctl: %v: %s", err, out)
			}
			s, err := store.Open(run.Checkpoints())
			if err != nil {
				t.Fatal(err)
			}
			job, err := s.ReadJob()
			if err != nil {
				t.Fatal(err)
			}
			_, address, _ := strings.Cut(strings.Fields(job.Control)[0], "@")
			for range 100 {
				conn, err := net.DialTimeout("tcp", address, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = conn.Write(slices.Repeat([]byte("GET / HTTP/1.0\r\n"), 20))
				_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
				_, _ = conn.Read(make([]byte, 1)) // until it is dropped
				_ = conn.Close()
			}
			said := string(mustRead(t, run.Stderr))
			if n := strings.Count(said, "not of this job"); n < 1 || n > 2 || !strings.Contains(said, "control port") || !strings.Contains(said, "127.0.0.1") {
				t.Errorf("%d lines about strangers: %s", n, said)
			}
		})
	}
}
