// SPDX-License-Identifier: Apache-2.0

package sparse

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/pagemap"
)

func at(m []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m)))) }

func mapped(t *testing.T, fd int, offset int64, pages int) []byte {
	t.Helper()
	flags := unix.MAP_SHARED
	if fd < 0 {
		flags |= unix.MAP_ANONYMOUS
	}
	m, err := unix.Mmap(fd, offset, pages*page, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	return m
}

func finder(t *testing.T, links bool) *Finder {
	t.Helper()
	f, err := New()
	if err != nil {
		t.Fatal(err)
	}
	f.links = f.links && links
	return f
}

// The pages that were written are found, and few others: with the privilege and without.
func TestHeld(t *testing.T) {
	const pages, before = 3000, 7
	dirs := map[string]string{"disk": t.TempDir(), "shm": "/dev/shm"}
	for _, what := range []string{"memory", "memfd", "shm", "disk"} {
		for _, links := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", what, links), func(t *testing.T) {
				fd, offset := -1, int64(0)
				switch dir := dirs[what]; {
				case dir != "":
					file, err := os.CreateTemp(dir, "libckpt-test-")
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = os.Remove(file.Name()); _ = file.Close() })
					fd = int(file.Fd())
				case what == "memfd":
					var err error
					if fd, err = unix.MemfdCreate("libckpt-test", unix.MFD_CLOEXEC); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = unix.Close(fd) })
				}
				if fd >= 0 {
					if err := unix.Ftruncate(fd, (before+pages-100)*page+1); err != nil {
						t.Fatal(err)
					}
					offset = before * page
				}
				m := mapped(t, fd, offset, pages)
				rng := rand.New(rand.NewPCG(1, 2))
				want := map[int]bool{}
				for range 300 {
					k := rng.IntN(pages - 100)
					want[k], m[k*page+rng.IntN(page)] = true, 1
				}
				known := true
				if fd >= 0 {
					var fs unix.Statfs_t
					if err := unix.Fstatfs(fd, &fs); err != nil {
						t.Fatal(err)
					}
					known = fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.EXT4_SUPER_MAGIC
				}
				found := map[int]bool{}
				last := at(m)
				for _, e := range finder(t, links).Held(at(m), at(m)+pages*page) {
					if e.Start < last || e.End <= e.Start || e.End > at(m)+pages*page {
						t.Fatalf("found 0x%x-0x%x after 0x%x", e.Start, e.End, last)
					}
					for last = e.Start; last < e.End; last += page {
						found[int((last-at(m))/page)] = true
					}
				}
				for k := range want {
					if !found[k] {
						t.Errorf("page %d was written and not found", k)
					}
				}
				if known && len(found) > len(want)+len(want)/2 {
					t.Errorf("%d pages were written, %d found", len(want), len(found))
				}
			})
		}
	}
}

// What cannot be told is all of it.
func TestHeldUnknown(t *testing.T) {
	m := mapped(t, -1, 0, 1024)
	whole := []pagemap.Extent{{Start: at(m), End: at(m) + 1024*page}}
	f := finder(t, false)
	f.memory = 0
	if d := cmp.Diff(whole, f.Held(at(m), at(m)+1024*page)); d != "" {
		t.Error(d)
	}
	// Not the bounds of a mapping; and too small to ask.
	for _, e := range []pagemap.Extent{{Start: at(m), End: at(m) + 512*page}, {Start: at(m) + page, End: at(m) + 1024*page}, {Start: at(m), End: at(m) + page}} {
		if d := cmp.Diff([]pagemap.Extent{e}, finder(t, true).Held(e.Start, e.End)); d != "" {
			t.Error(d)
		}
	}
}

// A file that has its name from another one is not taken for it.
func TestOtherFile(t *testing.T) {
	path := t.TempDir() + "/file"
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(1024 * page); err != nil {
		t.Fatal(err)
	}
	m := mapped(t, int(file.Fd()), 0, 1024)
	m[5*page] = 1
	if err := os.Rename(path, path+"-"); err != nil {
		t.Fatal(err)
	}
	f := finder(t, false)
	if err := os.Link(path+"-", path); err != nil {
		t.Fatal(err)
	}
	one := f.mappings[at(m)]
	if got := f.open(one); got != nil {
		_ = got.Close()
	} else if one.Path != path+"-" {
		t.Errorf("the kernel calls it %s", one.Path)
	}
	if err := os.Remove(one.Path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(one.Path, make([]byte, 1024*page), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := f.open(one); got != nil {
		_ = got.Close()
		t.Error("another file was opened")
	}
}

func TestSwapOf(t *testing.T) {
	const text = `7f00-8f00 rw-s 00000000 00:01 5  /dev/zero (deleted)
Size:                  4 kB
Swap:                 12 kB
SwapPss:               0 kB
9f00-af00 rw-s 00000000 00:01 6  /dev/zero (deleted)
Swap:                  0 kB
bf00-cf00 rw-s 00000000 00:01 6  /dev/zero (deleted)
`
	for start, want := range map[uint64]string{0x7f00: "12 kB", 0x9f00: "0 kB", 0xbf00: "", 0xdf00: ""} {
		if got := swapOf(text, start, start+0x1000); got != want {
			t.Errorf("%x: %q, want %q", start, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("7f0000000000-7f0000001000 rw-s 00000000 00:01 1024  /dev/zero (deleted)\n")
	f.Add("55-56 r--p 0000 fe:01 7")
	f.Fuzz(func(t *testing.T, line string) {
		if m, ok := Parse(line); ok && m.Start >= m.End {
			t.Errorf("%q: %+v", line, m)
		}
	})
}
