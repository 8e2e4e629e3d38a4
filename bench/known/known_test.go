// SPDX-License-Identifier: Apache-2.0

package known

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReasons(t *testing.T) {
	file := filepath.Join(t.TempDir(), "reasons.txt")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("# comment: none\n\nfork0[12]: the moon: it is full\nfork*: the sun\n")
	all, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]string{"fork01": "the moon: it is full", "fork03": "the sun", "clone01": "", "# comment": ""} {
		if got := all.Why(program); got != want {
			t.Errorf("%s: %q, and %q is in the file", program, got, want)
		}
	}
	for _, bad := range []string{"fork01 the moon\n", "fork[01: the moon\n"} {
		write(bad)
		if _, err := Read(file); err == nil || !strings.Contains(err.Error(), "PROGRAM: why") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestResults(t *testing.T) {
	report := filepath.Join(t.TempDir(), "table")
	none, err := Load[int](report)
	if err != nil || none == nil || len(none) != 0 {
		t.Fatal(none, err)
	}
	if err := Save(report, map[string]int{"fork01": 5}, "# Table\n"); err != nil {
		t.Fatal(err)
	}
	if all, err := Load[int](report); err != nil || len(all) != 1 || all["fork01"] != 5 {
		t.Error(all, err)
	}
	if text, err := os.ReadFile(report + ".md"); err != nil || string(text) != "# Table\n" {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.WriteFile(report+".json", []byte("[1"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load[int](report); err == nil || !strings.Contains(err.Error(), "results of before") {
		t.Error(err)
	}
}
