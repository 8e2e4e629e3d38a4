// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// saved is a job of one process that was saved and killed.
func saved(t *testing.T) *Run {
	t.Helper()
	run, err := NewRun(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mark := NewMark()
	defer mark.KillAll()
	argv := append([]string{built.CkptRun(), "--dir", run.Checkpoints()}, options()...)
	p, err := run.Start(mark, append(argv, "--", "sleep", "300")...)
	if err != nil {
		t.Fatal(err)
	}
	if exit, said := checkpoint(t, run, mark, "save", "kill"); exit != (Exit{}) {
		t.Fatalf("checkpoint: %v: %s%s", exit, said, mustRead(t, run.Stderr))
	}
	if _, err := p.Wait(time.Minute); err != nil {
		t.Fatal(err)
	}
	return run
}

// A pipe or a device in the place of a file of ours is refused by name; nothing waits for what will never come.
func TestNoRegularFile(t *testing.T) {
	needCommands(t)
	run := saved(t)
	dir := run.Checkpoints()
	ckptctl := func(args ...string) []string { return append([]string{built.CkptCtl()}, args...) }
	restart := []string{built.CkptRun(), "--restart", dir}
	for _, c := range []struct {
		file  string
		tools [][]string
	}{
		{"epoch-000001/rank-00000.ckpt", [][]string{ckptctl("verify", dir), ckptctl("inspect", dir), restart}},
		{"epoch-000001/manifest.json", [][]string{ckptctl("verify", dir), ckptctl("inspect", dir+"@1"), restart}},
		{"job.json", [][]string{ckptctl("status", dir), ckptctl("checkpoint", dir), ckptctl("watch", dir)}},
		{"ckpt.toml", [][]string{restart}},
	} {
		path := filepath.Join(dir, c.file)
		if err := os.Rename(path, path+".away"); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for kind, put := range map[string]func() error{
			"named pipe": func() error { return unix.Mkfifo(path, 0o600) },
			"device":     func() error { return os.Symlink("/dev/zero", path) },
		} {
			if err := put(); err != nil {
				t.Fatal(err)
			}
			for _, argv := range c.tools {
				tool, err := NewRun(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				if err := tool.Once(time.Minute, argv...); err != nil {
					t.Errorf("%s is a %s: %v", c.file, kind, err)
					continue
				}
				said := string(mustRead(t, tool.Stdout)) + string(mustRead(t, tool.Stderr))
				if tool.Exit != (Exit{Code: 1}) || !strings.Contains(said, c.file) || !strings.Contains(said, "is a "+kind) {
					t.Errorf("%s is a %s: %q: %v: %s", c.file, kind, argv, tool.Exit, said)
				}
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Rename(path+".away", path); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}
