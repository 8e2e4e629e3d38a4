// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder of the name "lease" that is somebody's own, as the sources of a package, is left as it is; and so is a
// file that somebody put into ours.
func TestStrangersFiles(t *testing.T) {
	m := newMachine("n1")
	write := func(dir string) string {
		t.Helper()
		folder := filepath.Join(dir, folderName)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(folder, "doc.go")
		if err := os.WriteFile(file, []byte("package lease\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	there := func(what, pattern string) {
		t.Helper()
		if names, _ := filepath.Glob(pattern); len(names) != 1 {
			t.Errorf("%s: the file is gone (%v)", what, names)
		}
	}

	theirs := t.TempDir()
	file := write(theirs)
	if _, err := Take(theirs, m.process(1)); err == nil || !strings.Contains(err.Error(), "lease/doc.go in it is not libckpt's; nothing was touched") {
		t.Errorf("%v", err)
	}
	there("refused", file)
	if names, _ := os.ReadDir(filepath.Dir(file)); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}

	ours := t.TempDir()
	l := mustTake(t, ours, m.process(2))
	write(ours)
	if err := l.Vanish(); err != nil {
		t.Fatal(err)
	}
	there("given back", filepath.Join(ours, "lease*", "doc.go"))
	mustTake(t, ours, m.process(3)) // which tidies up
	there("taken again", filepath.Join(ours, "lease*", "doc.go"))
}
