// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Images of each release go on under this one: testdata/kept has a directory of checkpoints for each, which
// scripts/keep-image.sh made then. Epoch 1 has all memory (version 1 of the format), epoch 2 refers to it (version 2).
func TestKeptImages(t *testing.T) {
	needCommands(t)
	folder := filepath.Join(built.Root, "internal/e2e/testdata/kept")
	releases, err := filepath.Glob(filepath.Join(folder, "*", "epoch-000001"))
	must(t, err)
	version := regexp.MustCompile(`(?m)^VERSION := (.+)$`).FindSubmatch(mustRead(t, filepath.Join(built.Root, "Makefile")))
	if version == nil {
		t.Fatal("the Makefile says no VERSION")
	}
	if _, err := os.Stat(filepath.Join(folder, string(version[1]))); err != nil {
		t.Errorf("no image of version %s is kept: VERSION=%[1]s scripts/keep-image.sh build", version[1])
	}
	for _, release := range releases {
		release = filepath.Dir(release)
		for i, c := range []struct {
			epoch int
			with  []string
		}{
			{1, nil},
			{2, nil},
			{1, []string{"--trap", "sud", "--restart-mode", "eager"}},
			{2, []string{"--restart-mode", "lazy"}},
		} {
			t.Run(fmt.Sprintf("%s epoch %d %s", filepath.Base(release), c.epoch, strings.Join(c.with, " ")), func(t *testing.T) {
				run, err := NewRun(t.TempDir())
				must(t, err)
				must(t, os.CopyFS(run.Checkpoints(), os.DirFS(release)))
				at := fmt.Sprintf("%s@%d", run.Checkpoints(), c.epoch)
				if i < 2 {
					must(t, run.Once(patience, built.CkptCtl(), "verify", at))
					if run.Exit != (Exit{}) {
						t.Fatalf("ckptctl verify: %v: %s", run.Exit, mustRead(t, run.Stderr))
					}
					must(t, os.Truncate(run.Stdout, 0))
				}
				letter := filepath.Join(run.Dir, "letter")
				must(t, os.WriteFile(letter, []byte("x"), 0o644))
				argv := append([]string{"/bin/sh", "-c", `exec "$@" <"$0"`, letter, built.CkptRun()}, options()...)
				must(t, run.Once(patience, append(append(argv, c.with...), "--restart", at)...))
				if said := string(mustRead(t, run.Stdout)); run.Exit != (Exit{Code: 7}) || said != "all is there\n" {
					t.Errorf("%v, it says %q: %s", run.Exit, said, mustRead(t, run.Stderr))
				}
			})
		}
	}
}
