// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/ckpt/where"
)

// TestStagesAreDrawn finds the stages in the picture of doc.go, in order, each followed by what holds after it.
func TestStagesAreDrawn(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var drawn, after []string
	name := regexp.MustCompile(`^//\t([a-z]+) [ ─]`)
	for line := range strings.Lines(string(text)) {
		if m := name.FindStringSubmatch(line); m != nil {
			drawn = append(drawn, m[1])
		} else if holds, found := strings.CutPrefix(line, "//\t  │ "); found {
			after = append(after, strings.TrimSpace(holds))
		}
	}
	var stated []string
	for _, s := range stages {
		stated = append(stated, s.done)
	}
	equal(t, "stages in the picture", append(stageNames[:], "answer"), drawn)
	equal(t, "what holds after them", stated, after)
	for s := range stages {
		if stages[s].run == nil {
			t.Errorf("nothing is done in stage %v", stage(s))
		}
	}
}

// TestPhasesHaveOneName: what operators are shown, in this package, in the control server and in ckptctl, and
// in the tests of these, is a stage or what package where says of a rank.
func TestPhasesHaveOneName(t *testing.T) {
	known := append(slices.Clone(stageNames[:]), where.Phases()...)
	phase := regexp.MustCompile("(?:Phase: *|\"phase\":) ?\"([^\"]+)\"|e\\.g\\. (\"[^\"]+\"(?:, \"[^\"]+\")*)")
	word := regexp.MustCompile(`"([^"]+)"`)
	found := 0
	for _, folder := range []string{".", "control", "where", "../cmd/ckptctl"} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", folder, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if !strings.Contains(line, "hase") {
					continue
				}
				for _, m := range phase.FindAllStringSubmatch(line, -1) {
					names := []string{m[1]}
					if m[2] != "" {
						names = nil
						for _, w := range word.FindAllStringSubmatch(m[2], -1) {
							names = append(names, w[1])
						}
					}
					for _, n := range names {
						found++
						if !slices.Contains(known, n) {
							t.Errorf("%s: phase %q is none of %q", file, n, known)
						}
					}
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d phases are found: the search is broken", found)
	}
}
