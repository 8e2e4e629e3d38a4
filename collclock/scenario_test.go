// SPDX-License-Identifier: Apache-2.0

package collclock_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/libckpt/libckpt/collclock/scenario"
)

var rewrite = flag.Bool("rewrite", false, "write what the scenarios print now into their files")

// TestScenarios runs testdata/*.txt: each is a small program, schedules, and what came out.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 20 {
		t.Fatalf("found %d scenarios, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			f, err := scenario.ParseFile(string(text))
			if err != nil {
				t.Fatal(err)
			}
			got, err := f.Run()
			if err != nil {
				t.Fatal(err)
			}
			if *rewrite {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(text), got); diff != "" {
				t.Errorf("%s (run with -rewrite to accept; -want +got):\n%s", name, diff)
			}
		})
	}
}
