// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
)

// Only what has its name still is referred to, and what may become writable again may do so after a restart.
func TestRefer(t *testing.T) {
	dir := t.TempDir()
	open := func(name string, flags int) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, name), flags|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if st, err := f.Stat(); err == nil && st.Size() == 0 {
			if err := os.Truncate(f.Name(), 2*page); err != nil {
				t.Fatal(err)
			}
		}
		return f
	}
	replaced := open("replaced", os.O_RDONLY)
	for i, c := range []struct {
		f    *os.File
		prot int
	}{
		{open("read", os.O_RDONLY), r}, {open("either", os.O_RDWR), r}, {open("written", os.O_RDWR), r | w},
		{open("gone", os.O_RDONLY), r}, {replaced, r},
	} {
		mapped(t, free+uint64(i)*4*page, 2, c.prot, unix.MAP_SHARED, int(c.f.Fd()))
	}
	if err := os.Remove(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	// Another file has its name.
	if err := os.WriteFile(replaced.Name()+"-", make([]byte, 2*page), 0o600); err != nil {
		t.Fatal(err)
	}
	regions := arena(t)
	if err := os.Rename(replaced.Name()+"-", replaced.Name()); err != nil {
		t.Fatal(err)
	}
	if _, err := FindShared(regions); err != nil {
		t.Fatal(err)
	}
	list, err := Refer(Readers(regions))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint32{}
	for _, one := range list {
		got[filepath.Base(one.Path)] = one.Flags
	}
	const flags = image.FlagFile | image.FlagShared | image.FlagNoData
	if d := cmp.Diff(map[string]uint32{"read": flags, "either": flags | image.FlagMayWrite}, got); d != "" {
		t.Error(d)
	}
}
