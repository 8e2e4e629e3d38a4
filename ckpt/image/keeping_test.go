// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestOpenKeeping: what opening has read, to check it, is had once without being read again.
func TestOpenKeeping(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	in := Input{Meta: []byte("{}"), Sections: []Section{{Name: "kept", Data: []byte("as it was")}, {Name: "not", Data: []byte("read again")}}}
	if _, err := Write(t.Context(), path, in, Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	f, err := OpenKeeping(path, func(s SectionInfo) bool { return s.Name == "kept" && s.Bytes == 9 })
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if b, err := f.Take("kept"); err != nil || string(b) != "as it was" {
		t.Errorf("%q, %v", b, err)
	}
	for _, name := range []string{"kept", "not"} {
		if b, err := f.Take(name); !errors.As(err, new(*CorruptError)) {
			t.Errorf("%s is had without being read: %q, %v", name, b, err)
		}
	}
	if _, err := f.Take("none"); !errors.Is(err, ErrNoSection) {
		t.Error(err)
	}
}
