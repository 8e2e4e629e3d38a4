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
