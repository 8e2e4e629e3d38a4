// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// processOf plays a process in a folder like /proc.
func processOf(t *testing.T, proc, pid, parent, exe, command, cwd string) {
	t.Helper()
	dir := filepath.Join(proc, pid)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"exe": exe, "cwd": cwd} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"cmdline": command + "\x00-x\x00", "status": "Name:\tx\nPPid:\t" + parent + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestElsewhere(t *testing.T) {
	proc, home := t.TempDir(), t.TempDir()
	if got := elsewhere(proc); !strings.Contains(got, "nothing of yours") {
		t.Errorf("without processes: %q", got)
	}
	if err := os.MkdirAll(filepath.Join(home, "ckpt"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "ckpt/job.json"), []byte(`{"format":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	processOf(t, proc, "100", "1", "/usr/bin/mpiexec", "mpiexec", "/")
	processOf(t, proc, "101", "100", "/opt/bin/ckptrun", "./solver", home)
	processOf(t, proc, "102", "101", "/opt/bin/ckptrun", "./solver", home) // its frozen copy
	processOf(t, proc, "109", "100", "/opt/bin/ckptrun", "./solver", home) // its second rank
	processOf(t, proc, "103", "100", "/opt/bin/ckptrun", "./other", "/")
	got := elsewhere(proc)
	for _, want := range []string{"./solver (process 101, in " + home + ", perhaps with --dir " + home + "/ckpt)", "./other (process 103, in /)", "MPI_Init"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if strings.Contains(got, "102") || strings.Contains(got, "109") || strings.Contains(got, "mpiexec ") {
		t.Errorf("it tells of processes that are no jobs: %q", got)
	}
	for _, pid := range []string{"104", "105"} {
		processOf(t, proc, pid, "1", "/opt/bin/ckptrun", "./more"+pid, "/")
	}
	if got := elsewhere(proc); !strings.Contains(got, "and 1 more") {
		t.Errorf("four jobs: %q", got)
	}
}
