// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/pagemap"
)

// fakeMemory is memory made by a test: pages that are not in the map are not present.
type fakeMemory map[uint64][]byte

func (m fakeMemory) ReadAt(p []byte, addr uint64) error {
	for i := 0; i < len(p); i += PageSize {
		if page, ok := m[addr+uint64(i)]; ok {
			copy(p[i:i+PageSize], page)
		} else {
			clear(p[i : i+PageSize])
		}
	}
	return nil
}

func (m fakeMemory) Present(start, end uint64) (list []Extent, err error) {
	for at := start; at < end; at += PageSize {
		if _, ok := m[at]; ok {
			list = pagemap.Append(list, Extent{Start: at, End: at + PageSize})
		}
	}
	return list, nil
}

const testBase = 0x100000000000

// sample returns a small input with every kind of page: absent, zero, random, compressible.
func sample() (Input, fakeMemory) {
	rng := rand.New(rand.NewPCG(1, 2))
	mem := fakeMemory{}
	page := func(i int, fill func(k int) byte) {
		p := make([]byte, PageSize)
		for k := range p {
			p[k] = fill(k)
		}
		mem[testBase+uint64(i)*PageSize] = p
	}
	random := func(int) byte { return byte(rng.Uint32()) }
	ramp := func(k int) byte { return byte(k >> 8) }
	zero := func(int) byte { return 0 }
	for _, i := range []int{0, 1, 20} {
		page(i, random)
	}
	for _, i := range []int{2, 3, 4, 40, 47} {
		page(i, ramp)
	}
	for i := 5; i < 12; i++ {
		page(i, zero)
	}
	page(12, random)
	page(13, zero)
	at := func(i int) uint64 { return testBase + uint64(i)*PageSize }
	return Input{
		Meta:     []byte(`{"what":"a test"}`),
		Sections: []Section{{"threads", []byte("three threads")}, {"empty", nil}},
		Regions: []Region{
			{Start: at(0), End: at(16), Prot: 3, Flags: FlagAnonymous, Name: "[heap]"},
			{Start: at(16), End: at(24), Prot: 5, Flags: FlagFile, Offset: 8192, Path: "/lib/x.so"},
			{Start: at(30), End: at(32), Prot: 1, Flags: FlagNoData},
			{Start: at(32), End: at(48), Prot: 0, Flags: FlagAnonymous | FlagStack, Name: "[stack]"},
		},
		Memory: mem,
	}, mem
}

func mustWrite(t testing.TB, in Input, opt Options) (string, Summary) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rank-00000.ckpt")
	opt.NoSync = true
	s, err := Write(t.Context(), path, in, opt)
	if err != nil {
		t.Fatal(err)
	}
	return path, s
}

func mustOpen(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// checkContent compares all regions of an image with the memory it was made from.
func checkContent(t testing.TB, f *File, mem Memory) {
	t.Helper()
	got := make(map[int][]byte)
	err := f.Read(t.Context(), func(i int, r *Region) []byte {
		got[i] = make([]byte, r.Bytes())
		return got[i]
	}, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Regions() {
		r := &f.Regions()[i]
		want := make([]byte, r.Bytes())
		if r.Flags&FlagNoData == 0 {
			if err := mem.ReadAt(want, r.Start); err != nil {
				t.Fatal(err)
			}
		}
		if got[i] == nil {
			got[i] = make([]byte, r.Bytes())
		}
		if !bytes.Equal(got[i], want) {
			t.Errorf("region %v differs", r)
		}
		at := make([]byte, r.Bytes())
		if err := f.ReadAt(at, r.Start); err != nil || !bytes.Equal(at, want) {
			t.Errorf("ReadAt of region %v: differs, error %v", r, err)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for _, mode := range []Compression{CompressNone, CompressSnappy, CompressZstd, CompressAuto} {
		for _, chunk := range []int{PageSize, 16 * PageSize, DefaultChunk} {
			t.Run(fmt.Sprintf("%s-%d", mode, chunk), func(t *testing.T) {
				in, mem := sample()
				var last, total uint64
				path, s := mustWrite(t, in, Options{Compress: mode, Chunk: chunk, Workers: 3,
					Progress: func(d, n uint64) {
						if d <= last || d > n {
							t.Errorf("progress goes from %d to %d of %d", last, d, n)
						}
						last, total = d, n
					}})
				if last != total || total == 0 {
					t.Errorf("progress ends at %d of %d", last, total)
				}
				f := mustOpen(t, path)
				checkContent(t, f, mem)
				if err := f.Verify(t.Context(), nil); err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(in.Regions, f.Regions(), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("regions (-written +read):\n%s", diff)
				}
				for _, want := range append(in.Sections, Section{"meta", in.Meta}) {
					got, err := f.Section(want.Name)
					if err != nil || !bytes.Equal(got, want.Data) {
						t.Errorf("section %s: %q, %v", want.Name, got, err)
					}
				}
				if f.Digest() != s.Digest || f.Bytes() != s.Bytes || len(f.Chunks()) != s.Chunks {
					t.Errorf("summary %+v does not fit the file", s)
				}
				// Nine pages hold something other than zero, and no short run of zeros lies between any.
				if s.PayloadBytes != 9*PageSize {
					t.Errorf("payload of %d bytes", s.PayloadBytes)
				}
				if st, _ := os.Stat(path); st.Size() != s.Bytes || st.Mode().Perm() != 0o600 {
					t.Errorf("file has %d bytes and mode %v", st.Size(), st.Mode())
				}
			})
		}
	}
}

// TestImageIsMemory writes an image from an image: what File says about memory is what was there.
func TestImageIsMemory(t *testing.T) {
	in, mem := sample()
	path, _ := mustWrite(t, in, Options{Compress: CompressZstd})
	f := mustOpen(t, path)
	in.Memory = f
	second, _ := mustWrite(t, in, Options{})
	checkContent(t, mustOpen(t, second), mem)
}

func TestRegionData(t *testing.T) {
	data := bytes.Repeat([]byte("shared!!"), PageSize/8)
	in := Input{Regions: []Region{{Start: testBase, End: testBase + PageSize, Flags: FlagShared, Copied: CopiedAt(testBase, data)}}}
	path, _ := mustWrite(t, in, Options{})
	f := mustOpen(t, path)
	got := make([]byte, PageSize)
	if err := f.ReadRegion(t.Context(), 0, got, 1); err != nil || !bytes.Equal(got, data) {
		t.Errorf("content differs, error %v", err)
	}
	if err := f.ReadRegion(t.Context(), 0, got[:5], 1); err == nil {
		t.Error("too small a buffer was accepted")
	}
}

func TestWriteRefusesBadInput(t *testing.T) {
	page := func(a, b uint64) Region { return Region{Start: a * PageSize, End: b * PageSize} }
	for name, in := range map[string]Input{
		"overlap":        {Regions: []Region{page(1, 3), page(2, 4)}},
		"order":          {Regions: []Region{page(3, 4), page(1, 2)}},
		"empty":          {Regions: []Region{page(3, 3)}},
		"not a page":     {Regions: []Region{{Start: 4096, End: 5000}}},
		"kernel":         {Regions: []Region{{Start: 1 << 63, End: 1<<63 + PageSize}}},
		"flags":          {Regions: []Region{{Start: 4096, End: 8192, Flags: 1 << 20}}},
		"data length":    {Regions: []Region{{Start: 4096, End: 8192, Copied: CopiedAt(4096, []byte{1})}}},
		"data behind":    {Regions: []Region{{Start: 4096, End: 8192, Copied: CopiedAt(4096, make([]byte, 2*PageSize))}}},
		"data before":    {Regions: []Region{{Start: 8192, End: 12288, Copied: CopiedAt(4096, make([]byte, PageSize))}}},
		"data twice":     {Regions: []Region{{Start: 4096, End: 12288, Copied: append(CopiedAt(4096, make([]byte, PageSize)), CopiedAt(4096, make([]byte, PageSize))...)}}},
		"held elsewhere": {Memory: fakeMemory{}, Regions: []Region{{Start: 4096, End: 8192, Held: []Extent{{Start: 8192, End: 12288}}}}},
		"section":        {Sections: []Section{{"Upper Case", nil}}},
		"twice":          {Sections: []Section{{"a", nil}, {"a", nil}}},
		"reserved":       {Sections: []Section{{"meta", nil}}},
		"no memory":      {Regions: []Region{page(1, 2)}},
	} {
		dir := t.TempDir()
		if name != "no memory" {
			in.Memory = fakeMemory{}
		}
		if _, err := Write(t.Context(), filepath.Join(dir, "x"), in, Options{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

func TestCancel(t *testing.T) {
	in, _ := sample()
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	_, err := Write(ctx, filepath.Join(dir, "x"), in, Options{Chunk: PageSize, Workers: 1,
		Progress: func(uint64, uint64) { cancel() }})
	if err == nil {
		t.Error("a cancelled Write succeeded")
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

// The zeros of a large section are a hole of the file, and are read as zeros.
func TestEmptySection(t *testing.T) {
	for _, size := range []int{0, 1, sectionBlock - 1, sectionBlock, 100*sectionBlock + 5} {
		for _, used := range [][]int{nil, {0}, {size / 2}, {size - 1}, {0, size / 2, size - 1}} {
			data := make([]byte, size)
			for _, at := range used {
				if at >= 0 && at < size {
					data[at] = byte(at) | 1
				}
			}
			in := Input{Meta: []byte("{}"), Sections: []Section{{"before", []byte("x")}, {"large", data}, {"behind", []byte("y")}}}
			path, _ := mustWrite(t, in, Options{})
			f, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range in.Sections {
				if got, err := f.Section(want.Name); err != nil || !bytes.Equal(got, want.Data) {
					t.Errorf("%d bytes, %v: section %s has %d: %v", size, used, want.Name, len(got), err)
				}
			}
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil || st.Blocks*512 > int64(len(used)+2)*2*sectionBlock {
				t.Errorf("%d bytes, %v: the file takes %d: %v", size, used, st.Blocks*512, err)
			}
			_ = f.Close()
		}
	}
}
