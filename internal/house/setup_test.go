// SPDX-License-Identifier: Apache-2.0

package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSetupLeavesOut: of the programs that only tests need, setup.sh leaves out what this release of Debian does not
// have, says so, and installs the others; what the build needs is not left out. apt here is a script.
func TestSetupLeavesOut(t *testing.T) {
	for _, c := range []struct{ name, gone, has, want, wantNot string }{
		{"some", "iproute2 munge", "munge", "--no-install-recommends munge\n", "iproute2\n"},
		{"all", "iproute2", "", "", "install"},
		{"needed", "spin", "", "--no-install-recommends spin\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			bin, out := t.TempDir(), filepath.Join(t.TempDir(), "setup.mk")
			commands := map[string]string{"iproute2": "ip", "munge": "munged", "spin": "spin"}
			hidden := map[string]bool{"apt-get": true, "apt-cache": true, "sudo": true}
			for p := range strings.FieldsSeq(c.gone) {
				hidden[commands[p]] = true
			}
			// All that can be called, but for what is hidden.
			for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
				entries, err := os.ReadDir(dir)
				if err != nil {
					continue
				}
				for _, e := range entries {
					if !hidden[e.Name()] {
						_ = os.Symlink(filepath.Join(dir, e.Name()), filepath.Join(bin, e.Name())) // the first one counts
					}
				}
			}
			log := filepath.Join(t.TempDir(), "log")
			for name, text := range map[string]string{
				"apt-get":   `echo "$*" >>"$APT_LOG"`,
				"apt-cache": `case " $APT_HAS " in *" $2 "*) printf '%s:\n  Candidate: 1-1\n' "$2" ;; *) printf '%s:\n  Candidate: (none)\n' "$2" ;; esac`,
				"sudo":      `[ "$1" != -n ] || shift; "$@"`,
			} {
				if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(filepath.Join(root, "scripts/setup.sh"), out, "test")
			cmd.Env = append(os.Environ(), "PATH="+bin, "APT_LOG="+log, "APT_HAS="+c.has)
			said, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			called, _ := os.ReadFile(log) // none, where nothing was called
			if !strings.Contains(string(called), c.want) || c.wantNot != "" && strings.Contains(string(called), c.wantNot) {
				t.Errorf("apt-get was called so:\n%s", called)
			}
			left := strings.Contains(string(said), "this release has no package iproute2;")
			if left != (c.name != "needed") {
				t.Errorf("it said: %s", said)
			}
		})
	}
}
