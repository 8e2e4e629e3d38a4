// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCopyData: a file with holes, most of which nobody could write out, becomes another one, whatever stood there.
func TestCopyData(t *testing.T) {
	const size = 1 << 40
	name := func(s string) string { return filepath.Join(t.TempDir(), s) }
	make1 := func(path string, at map[int64]string, size int64) *os.File {
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		for where, text := range at {
			if _, err := f.WriteAt([]byte(text), where); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		return f
	}
	from := make1(name("from"), map[int64]string{0: "first", 1 << 30: "middle", size - 5: "last!"}, size)
	junk := string(bytes.Repeat([]byte("junk"), 1<<16))
	for what, to := range map[string]*os.File{
		"an empty file": make1(name("empty"), nil, 0),
		"other content": make1(name("other"), map[int64]string{0: junk, 1<<30 - 1000: junk, size / 2: junk}, size),
	} {
		if err := copyData(to, from, size); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for at, want := range map[int64]string{0: "first\x00", 5: "\x00\x00\x00\x00", 1<<30 - 4: "\x00\x00\x00\x00middle\x00", 1<<30 + 4096: "\x00\x00",
			size / 2: "\x00\x00\x00", size - 7: "\x00\x00last!"} {
			got := make([]byte, len(want))
			if _, err := to.ReadAt(got, at); err != nil || string(got) != want {
				t.Errorf("%s: at %d stands %q, %v", what, at, got, err)
			}
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(to.Fd()), &st); err != nil || st.Size != size || st.Blocks*512 > 1<<20 {
			t.Errorf("%s: %d bytes of %d have room, %v", what, st.Blocks*512, st.Size, err)
		}
	}
	short := make1(name("short"), map[int64]string{0: "abc"}, 3)
	to := make1(name("to"), map[int64]string{0: "0123456789"}, 10)
	if err := copyData(to, short, 5); err == nil {
		t.Error("5 bytes of a file of 3 were copied")
	}
	if err := copyData(to, short, 3); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(to.Name()); err != nil || string(b) != "abc3456789" {
		t.Errorf("%q, %v", b, err)
	}
}
