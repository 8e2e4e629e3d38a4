// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
