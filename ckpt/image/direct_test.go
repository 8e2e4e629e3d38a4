// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/fault"
	"github.com/libckpt/libckpt/internal/needmpi"
)

// directDir is a folder in a file system that takes writes past the page cache.
func directDir(t *testing.T) string {
	t.Helper()
	good := func(dir string) bool {
		var fs unix.Statfs_t
		return unix.Statfs(dir, &fs) == nil && goodDirect[fs.Type]
	}
	if dir := t.TempDir(); good(dir) {
		return dir
	}
	if good(".") {
		here, err := os.MkdirTemp(".", "direct-*.test")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(here) })
		return here
	}
	needmpi.Skip(t, "no ext4 or XFS", "neither temporary files nor the sources are in a file system that takes writes past the page cache")
	return ""
}

// mixed is memory of all that an image treats differently: large and small runs of what cannot be compressed, zeros, and
// what can be.
func mixed() (Input, Copied) {
	rng := rand.New(rand.NewPCG(5, 6))
	p := make([]byte, 24<<20)
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&p[0])), len(p)/8)
	for at := 0; at < len(p); {
		n := min([]int{PageSize, 3 * PageSize, 17 * PageSize, 100 * PageSize, 400 * PageSize}[rng.IntN(5)], len(p)-at)
		kind := rng.IntN(4)
		for i := at / 8; i < (at+n)/8; i++ {
			switch kind {
			case 0, 1:
				words[i] = rng.Uint64()
			case 2:
				words[i] = uint64(i >> 8)
			}
		}
		at += n
	}
	const start = testBase
	return Input{Meta: []byte("{}"), Regions: []Region{{Start: start, End: start + uint64(len(p)), Copied: CopiedAt(start, p), Prot: 3}}},
		CopiedAt(start, p)
}

// TestDirect writes the same past the page cache and through it: what is read is the memory, the file has the same length,
// nothing beyond its end is left allocated, and it is the same to those that refer to it.
func TestDirect(t *testing.T) {
	dir := directDir(t)
	in, mem := mixed()
	for _, mode := range []Compression{CompressNone, CompressSnappy, CompressAuto} {
		for _, how := range []Options{{Workers: 1}, {Workers: 3}, {Workers: 1, Helpers: 2}, {Workers: 2, Chunk: 96 << 10}} {
			how.Compress, how.directFrom = mode, 1
			path := filepath.Join(dir, "direct.ckpt")
			sum, err := Write(t.Context(), path, in, how)
			if err != nil {
				t.Fatal(err)
			}
			checkContent(t, mustOpen(t, path), mem)
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			var raw unix.Stat_t
			if err := unix.Stat(path, &raw); err != nil {
				t.Fatal(err)
			}
			if st.Size() != sum.Bytes || raw.Blocks*512 > sum.Bytes+1<<20 {
				t.Errorf("%s, %+v: %d bytes and %d allocated, not %d", mode, how, st.Size(), raw.Blocks*512, sum.Bytes)
			}
			if mode == CompressAuto {
				continue // what it chooses depends on the machine
			}
			how.ReadSoon = true
			cached, err := Write(t.Context(), filepath.Join(dir, "cached.ckpt"), in, how)
			if err != nil {
				t.Fatal(err)
			}
			if cached.PayloadBytes != sum.PayloadBytes || cached.StoredBytes != sum.StoredBytes || cached.Chunks != sum.Chunks {
				t.Errorf("%s, %+v: %+v past the page cache, %+v through it", mode, how, sum, cached)
			}
		}
	}
}

// TestDirectIsUsed: most of what cannot be compressed is not in the page cache afterwards.
func TestDirectIsUsed(t *testing.T) {
	dir := directDir(t)
	in, _ := mixed()
	cached := func(how Options) (pages int) {
		path := filepath.Join(dir, "used.ckpt")
		if _, err := Write(t.Context(), path, in, how); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		m, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Munmap(m) }()
		in := make([]byte, (len(m)+PageSize-1)/PageSize)
		if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&in[0]))); e != 0 {
			t.Fatal(e)
		}
		for _, b := range in {
			pages += int(b & 1)
		}
		return pages
	}
	through := cached(Options{directFrom: 1, ReadSoon: true})
	past := cached(Options{directFrom: 1})
	if past*2 > through {
		t.Errorf("%d pages are in the page cache, %d when all was written through it", past, through)
	}
}

// TestDirectFails: an error of a write that is under way is the error of the image, and nothing is left. Where the file
// system refuses blocks so small, the page cache takes them.
func TestDirectFails(t *testing.T) {
	dir := directDir(t)
	in, mem := mixed()
	path := filepath.Join(dir, "fails.ckpt")
	for _, visit := range []string{"4", "9", "25"} {
		disarm, err := fault.Arm("image.write.data=enospc:" + visit)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Write(t.Context(), path, in, Options{Workers: 2, directFrom: 1})
		disarm()
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("at write %s: %v", visit, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("at write %s: left %v, %v", visit, left, err)
		}
	}
	w := &writer{in: &in, opt: Options{Workers: 2, directFrom: 1}.withDefaults()}
	var err error
	if w.file, err = createTemp(path); err != nil {
		t.Fatal(err)
	}
	defer w.file.Close()
	w.total = 24 << 20
	w.direct = newDirect(w)
	b := w.direct.pool.take()
	copy(b.p, mem[0].Data)
	// Not at a block: as larger blocks would be.
	if err := errors.Join(w.direct.write(b.p[:128<<10], 512-8, b), w.direct.write(b.p[128<<10:256<<10], 128<<10+512-8, b)); err != nil {
		t.Fatal(err)
	}
	b.drop()
	if err := w.direct.stop(); err != nil || !w.direct.off.Load() {
		t.Errorf("%v, off: %v", err, w.direct.off.Load())
	}
	got := make([]byte, 256<<10)
	if _, err := w.file.ReadAt(got, 512-8); err != nil || string(got) != string(mem[0].Data[:256<<10]) {
		t.Errorf("what was refused is not in the file: %v", err)
	}
}
