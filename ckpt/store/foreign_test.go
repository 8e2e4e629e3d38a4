// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForeign: a directory that somebody uses for something else does not become a checkpoint directory, and nothing
// is written into it. One of ours stays one, whatever else is in it.
func TestForeign(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  string // what the refusal names; "" for none
	}{
		{nil, ""},
		{[]string{"main.c"}, `"main.c"`},
		{[]string{".git/", "epoch.go", "leases"}, `".git"`},
		{[]string{"lost+found/", ".nfs0001"}, ""},
		{[]string{"lost+found/", "notes"}, `"notes"`},
		{[]string{"lease/", "notes"}, ""},
		{[]string{"a", "epoch-000001/"}, ""},
		{[]string{"epoch-000003.fenced/", "z"}, ""},
		{[]string{"job.json.123.tmp", "a"}, ""},
		{[]string{"ckpt.toml", "run.sh"}, ""},
		{[]string{".meet", "x"}, ""},
	} {
		dir := t.TempDir()
		for _, n := range c.names {
			path := filepath.Join(dir, n)
			err := os.Mkdir(path, 0o700)
			if !strings.HasSuffix(n, "/") {
				_ = os.Remove(path)
				err = os.WriteFile(path, nil, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := Create(dir)
		if c.want == "" && err != nil {
			t.Errorf("%q: %v", c.names, err)
		}
		if c.want != "" && (!errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--dir")) {
			t.Errorf("%q: %v", c.names, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != len(c.names) {
			t.Errorf("%q: %v, %v", c.names, left, err)
		}
	}
}
