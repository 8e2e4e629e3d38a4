// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
)

const (
	sparsePages = 1 << 14
	sparseUsed  = 5000
	sparseMost  = 64 << 10
)

// What was never written is neither saved nor, by that, made; whether the rest is copied or the program stands meanwhile.
func TestSparseShared(t *testing.T) {
	t.Run("memory", func(t *testing.T) { sparseShared(t, -1, true, true) })
	for what, dir := range map[string]string{"shm": "/dev/shm", "file": t.TempDir()} {
		t.Run(what, func(t *testing.T) {
			file, err := os.CreateTemp(dir, "libckpt-test-")
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			defer os.Remove(file.Name())
			if err := file.Truncate(page * sparsePages / 2); err != nil { // the mapping goes on behind its end
				t.Fatal(err)
			}
			var fs unix.Statfs_t
			if err := unix.Fstatfs(int(file.Fd()), &fs); err != nil {
				t.Fatal(err)
			}
			sparseShared(t, int(file.Fd()), fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.EXT4_SUPER_MAGIC, fs.Type == unix.TMPFS_MAGIC)
		})
	}
}

// sparseShared maps what has two pages of data. known: the kernel says which; memory: it reads nothing ahead.
func sparseShared(t *testing.T, fd int, known, memory bool) {
	flags := unix.MAP_SHARED
	if fd < 0 {
		flags |= unix.MAP_ANONYMOUS
	}
	mem := mapped(t, free, sparsePages, r|w, flags, fd)
	mem[sparseUsed*page+3], mem[(sparseUsed+1)*page] = 1, 2
	want := make([]byte, sparsePages*page)
	want[sparseUsed*page+3], want[(sparseUsed+1)*page] = 1, 2
	regions := arena(t)
	n, err := FindShared(regions)
	if err != nil || n == 0 || known && n > sparseMost || len(regions) != 1 {
		t.Fatalf("%d bytes, %v, %v", n, regions, err)
	}
	room := 0
	if err := CopyShared(regions, func(bytes int) ([]byte, error) { room += bytes; return heap(bytes) }); err != nil {
		t.Fatal(err)
	}
	if got := copyOf(t, &regions[0]); uint64(room) != n || !bytes.Equal(got, want) {
		t.Errorf("%d bytes are copied, %d were found; the copy is right: %v", room, n, bytes.Equal(got, want))
	}
	sparseImage(t, regions, want)
	DropShared(regions)
	sparseImage(t, regions, want)
	in := make([]byte, sparsePages)
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(free), sparsePages*page, uintptr(unsafe.Pointer(unsafe.SliceData(in)))); e != 0 {
		t.Fatal(e)
	}
	if n := bytes.Count(in, []byte{1}); memory && n > sparseMost/page {
		t.Errorf("%d pages are there now", n)
	}
}

func sparseImage(t *testing.T, regions []image.Region, want []byte) {
	self, err := image.OpenSelf()
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	name := filepath.Join(t.TempDir(), "image")
	sum, err := image.Write(t.Context(), name, image.Input{Meta: []byte("{}"), Regions: regions, Memory: self}, image.Options{})
	if err != nil || sum.PayloadBytes > sparseMost {
		t.Fatalf("%d bytes, %v", sum.PayloadBytes, err)
	}
	saved, err := image.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	got := make([]byte, len(want))
	err = saved.Read(t.Context(), func(int, *image.Region) []byte { return got }, image.ReadOptions{})
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the image is not what the memory was: %v", err)
	}
}

func copyShared(regions []image.Region, room func(int) ([]byte, error)) error {
	if _, err := FindShared(regions); err != nil {
		return err
	}
	return CopyShared(regions, room)
}

func copyOf(t *testing.T, r *image.Region) []byte {
	t.Helper()
	p := make([]byte, r.Bytes())
	if r.Copied == nil {
		t.Errorf("%s is not copied", r)
	} else if err := r.Copied.ReadAt(p, r.Start); err != nil {
		t.Error(err)
	}
	return p
}
