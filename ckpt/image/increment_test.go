// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// epochs writes images of one process into folders beside each other.
type epochs struct {
	dir  string
	next int
}

func (e *epochs) path(n int) string {
	return filepath.Join(e.dir, fmt.Sprintf("epoch-%06d", n), "rank-00000.ckpt")
}

func (e *epochs) write(t testing.TB, in Input, opt Options) Summary {
	t.Helper()
	e.next++
	if err := os.Mkdir(filepath.Dir(e.path(e.next)), 0o755); err != nil {
		t.Fatal(err)
	}
	opt.NoSync = true
	s, err := Write(t.Context(), e.path(e.next), in, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func asParent(t testing.TB, path string) *Parent {
	t.Helper()
	p, err := mustOpen(t, path).AsParent()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fill makes pages from..to-1 of the process random, or runs of words that compress.
func fill(rng *rand.Rand, mem fakeMemory, from, to int) {
	for i := from; i < to; i++ {
		p := make([]byte, PageSize)
		word := byte(rng.Uint32())
		for k := range p {
			if i%3 == 0 {
				p[k] = byte(rng.Uint32())
			} else {
				p[k] = word + byte(k>>9)
			}
		}
		mem[testBase+uint64(i)*PageSize] = p
	}
}

func memoryRegion(pages int) []Region {
	return []Region{{Start: testBase, End: testBase + uint64(pages)*PageSize, Prot: 3, Flags: FlagAnonymous}}
}

// TestIncrements: a process whose memory changes in every way is saved again and again, compressed in changing ways and
// upon a parent that was just written or opened again; every image has the memory of its time, also when it is the last
// to be read, and an image needs no other than its sources.
func TestIncrements(t *testing.T) {
	const pages = 300
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			e := &epochs{dir: t.TempDir()}
			mem := fakeMemory{}
			fill(rng, mem, 0, 200)
			in := Input{Meta: []byte("{}"), Regions: memoryRegion(pages), Memory: mem}
			var then []fakeMemory
			var regions [][]Region
			var last Summary
			for n := 1; n <= 9; n++ {
				opt := Options{Track: true, Chunk: 16 * PageSize, Workers: 2,
					Compress: []Compression{CompressNone, CompressSnappy, CompressZstd, CompressAuto}[rng.IntN(4)]}
				switch {
				case n == 1 || n == 7:
					in.Parent = nil
				case n%2 == 0:
					in.Parent = asParent(t, e.path(n-1))
				default:
					in.Parent = last.Parent
				}
				last = e.write(t, in, opt)
				if in.Parent == nil != (len(last.Sources) == 0) {
					t.Errorf("epoch %d refers to %v", n, last.Sources)
				}
				then, regions = append(then, maps.Clone(mem)), append(regions, in.Regions)
				for range rng.IntN(20) { // changes of all kinds
					i := rng.IntN(pages - 8)
					at := testBase + uint64(i)*PageSize
					switch rng.IntN(6) {
					case 0, 1:
						fill(rng, mem, i, i+1)
					case 2:
						fill(rng, mem, i, i+8)
					case 3:
						mem[at] = make([]byte, PageSize)
					case 4:
						delete(mem, at)
					case 5: // moved within memory
						mem[at] = mem[testBase+uint64(rng.IntN(200))*PageSize]
						if mem[at] == nil {
							delete(mem, at)
						}
					}
				}
				if rng.IntN(3) == 0 { // mappings come and go; what is not mapped is not saved
					cut := testBase + uint64(rng.IntN(pages-20)+10)*PageSize
					in.Regions = []Region{{Start: testBase, End: cut - 2*PageSize, Prot: 3, Flags: FlagAnonymous},
						{Start: cut, End: testBase + pages*PageSize, Prot: 1, Flags: FlagAnonymous}}
				}
			}
			for i := range then {
				f := mustOpen(t, e.path(i+1))
				checkContent(t, f, then[i])
				if err := f.Verify(t.Context(), nil); err != nil {
					t.Error(err)
				}
				if len(f.Regions()) != len(regions[i]) {
					t.Errorf("epoch %d has regions %v", i+1, f.Regions())
				}
			}
			// The last one needs its sources, and nothing else.
			needed := map[string]bool{e.path(9): true}
			for _, s := range last.Sources {
				needed[filepath.Join(filepath.Dir(e.path(9)), s.Name)] = true
			}
			for n := 1; n < 9; n++ {
				if !needed[e.path(n)] {
					if err := os.Remove(e.path(n)); err != nil {
						t.Fatal(err)
					}
				}
			}
			checkContent(t, mustOpen(t, e.path(9)), then[8])
		})
	}
}

// TestIncrementSize: an image upon a parent has what changed, and not much more, whichever way the parent is known; the
// next one refers to the image that has the bytes, not to the one between.
func TestIncrementSize(t *testing.T) {
	const pages, changed = 4096, 205 // 5 %
	rng := rand.New(rand.NewPCG(3, 4))
	e := &epochs{dir: t.TempDir()}
	mem := fakeMemory{}
	fill(rng, mem, 0, pages)
	in := Input{Regions: memoryRegion(pages), Memory: mem}
	first := e.write(t, in, Options{Track: true})
	for n := range 2 {
		for range changed {
			i := rng.IntN(pages)
			fill(rng, mem, i, i+1)
		}
		in.Parent = first.Parent
		if n == 1 {
			in.Parent = asParent(t, e.path(1))
		}
		s := e.write(t, in, Options{Track: true})
		if most := uint64(2 * changed * (n + 1) * PageSize); s.PayloadBytes > most || s.Bytes > int64(most)+128<<10 {
			t.Errorf("%d pages of %d changed: %d bytes of memory, %d of file", changed*(n+1), pages, s.PayloadBytes, s.Bytes)
		}
		if s.PayloadBytes+s.SharedBytes != pages*PageSize || len(s.Sources) != 1 {
			t.Errorf("%d bytes written, %d referred to, in %v", s.PayloadBytes, s.SharedBytes, s.Sources)
		}
	}
	// Upon an image that has next to nothing of its own.
	in.Parent = asParent(t, e.path(3))
	if s := e.write(t, in, Options{}); s.PayloadBytes != 0 || len(s.Sources) != 2 {
		t.Errorf("nothing changed: %d bytes written, referring to %v", s.PayloadBytes, s.Sources)
	}
	checkContent(t, mustOpen(t, e.path(4)), mem)
	fill(rng, mem, 0, pages)
	if s := e.write(t, in, Options{}); s.SharedBytes != 0 || len(s.Sources) != 0 {
		t.Errorf("everything changed: %d bytes referred to, in %v", s.SharedBytes, s.Sources)
	}
}

// chain writes a full image and one upon it, and returns the memory of the second.
func chain(t testing.TB, mode Compression) (*epochs, fakeMemory) {
	rng := rand.New(rand.NewPCG(5, 6))
	e := &epochs{dir: t.TempDir()}
	mem := fakeMemory{}
	fill(rng, mem, 0, 64)
	in := Input{Regions: memoryRegion(80), Memory: mem}
	opt := Options{Track: true, Chunk: 16 * PageSize, Workers: 1, Compress: mode}
	in.Parent = e.write(t, in, opt).Parent
	fill(rng, mem, 20, 22)
	e.write(t, in, opt)
	return e, mem
}

// TestLostSource: an image whose source is gone, is another image or is cut short says so, and which it is, before any
// memory is read.
func TestLostSource(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, path string) error{
		"gone":      func(_ *testing.T, path string) error { return os.Remove(path) },
		"cut short": func(_ *testing.T, path string) error { return os.Truncate(path, 9000) },
		"a folder": func(_ *testing.T, path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		},
		"another": func(t *testing.T, path string) error {
			in, _ := sample()
			_, err := Write(t.Context(), path, in, Options{NoSync: true})
			return err
		},
		"another of the same length": func(t *testing.T, path string) error {
			p, err := os.ReadFile(path)
			if err == nil {
				p[headerBytes]++ // in the section "meta" or "regions"
				reseal(p)
				err = os.WriteFile(path, p, 0o600)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := chain(t, CompressNone)
			if err := lose(t, e.path(1)); err != nil {
				t.Fatal(err)
			}
			f := mustOpen(t, e.path(2))
			for what, err := range map[string]error{
				"CheckSources": f.CheckSources(),
				"Verify":       f.Verify(t.Context(), nil),
				"ReadAt":       f.ReadAt(make([]byte, PageSize), testBase),
			} {
				var lost *LostError
				if !errors.As(err, &lost) || lost.Source != e.path(1) || lost.File != e.path(2) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if f.AsParent(); asParent(t, e.path(2)).Check() == nil {
				t.Error("it can be a parent")
			}
		})
	}
}

// TestSourceRots: a page that rots in a source is found when it is read, and the message names both files. The next
// image upon it does not refer to a rotten chunk that it had to read.
func TestSourceRots(t *testing.T) {
	for _, mode := range []Compression{CompressNone, CompressSnappy, CompressZstd} {
		e, mem := chain(t, mode)
		f := mustOpen(t, e.path(1))
		c := f.Chunks()[2]
		p, err := os.ReadFile(e.path(1))
		if err != nil {
			t.Fatal(err)
		}
		p[c.Offset+int64(c.Stored)/2] ^= 4
		if err := os.WriteFile(e.path(1), p, 0o600); err != nil {
			t.Fatal(err)
		}
		second := mustOpen(t, e.path(2))
		if err := second.CheckSources(); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		for what, err := range map[string]error{
			"Verify": second.Verify(t.Context(), nil),
			"Read":   second.ReadRegion(t.Context(), 0, make([]byte, 80*PageSize), 1),
		} {
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || corrupt.File != e.path(1) || corrupt.For != e.path(2) ||
				!strings.Contains(err.Error(), e.path(1)) || !strings.Contains(err.Error(), e.path(2)) {
				t.Errorf("%s: %s: %v", mode, what, err)
			}
		}
		mem[c.Addr+PageSize] = bytes.Repeat([]byte{9}, PageSize) // so that the chunk is looked at
		in := Input{Regions: memoryRegion(80), Memory: mem, Parent: asParent(t, e.path(2))}
		e.write(t, in, Options{})
		checkContent(t, mustOpen(t, e.path(3)), mem)
	}
}

// TestParentGone: without the parent's file and without digests of its pages, chunks that changed are written whole.
func TestParentGone(t *testing.T) {
	e, mem := chain(t, CompressSnappy)
	parent := asParent(t, e.path(2))
	if err := os.Remove(e.path(2)); err != nil {
		t.Fatal(err)
	}
	mem[testBase] = bytes.Repeat([]byte{9}, PageSize)
	s := e.write(t, Input{Regions: memoryRegion(80), Memory: mem, Parent: parent}, Options{})
	if s.PayloadBytes != 16*PageSize {
		t.Errorf("%d pages written", s.PayloadBytes/PageSize)
	}
}

// TestParentElsewhere: an image cannot refer to one that is not in a folder beside its own.
func TestParentElsewhere(t *testing.T) {
	e, mem := chain(t, CompressNone)
	_, err := Write(t.Context(), filepath.Join(t.TempDir(), "x.ckpt"),
		Input{Regions: memoryRegion(80), Memory: mem, Parent: asParent(t, e.path(2))}, Options{NoSync: true})
	if err == nil || !strings.Contains(err.Error(), e.path(2)) {
		t.Errorf("%v", err)
	}
}

// referring are the bytes of an image with a source, compressed there or not.
func referring(t testing.TB, mode Compression) []byte {
	e, _ := chain(t, mode)
	p, err := os.ReadFile(e.path(2))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLyingReferences changes references and makes the digests fit: bounds are checked all the same.
func TestLyingReferences(t *testing.T) {
	p := referring(t, CompressSnappy)
	f, err := openBytes(p)
	if err != nil {
		t.Fatal(err)
	}
	tail := len(p) - footerBytes
	source := tail - sourceBytes
	part := -1
	for i, c := range f.chunks {
		if c.Source == 1 && c.Skip != 0 && c.Kind != KindRaw {
			part = source - (len(f.chunks)-i)*chunkBytes
		}
	}
	if part < 0 || len(f.sources) != 1 {
		t.Fatalf("no part of a compressed chunk is referred to: %+v", f.chunks)
	}
	le := binary.LittleEndian
	for name, lie := range map[string]func(p []byte){
		"unknown source":     func(p []byte) { le.PutUint16(p[part+26:], 2) },
		"own part":           func(p []byte) { le.PutUint16(p[part+26:], 0) },
		"behind the content": func(p []byte) { le.PutUint16(p[part+28:], 17) },
		"at its end":         func(p []byte) { le.PutUint16(p[part+28:], le.Uint16(p[part+30:])) },
		"of nothing":         func(p []byte) { le.PutUint16(p[part+30:], 0) },
		"of too much":        func(p []byte) { le.PutUint16(p[part+30:], MaxChunk/PageSize+1) },
		"reserved byte":      func(p []byte) { p[part+25] = 1 },
		"zero":               func(p []byte) { p[part+24] = byte(KindZero) },
		"parent":             func(p []byte) { p[part+24] = byte(KindParent) },
		"raw":                func(p []byte) { p[part+24] = byte(KindRaw) },
		"behind the file":    func(p []byte) { le.PutUint64(p[part+8:], 1<<40) },
		"before the file":    func(p []byte) { le.PutUint64(p[part+8:], 1<<63) },
		"in the header":      func(p []byte) { le.PutUint64(p[part+8:], 8) },
		"absolute name":      func(p []byte) { copy(p[source:], "/") },
		"name further up":    func(p []byte) { copy(p[source:], "../../xxxxxx") },
		"no name":            func(p []byte) { clear(p[source:][:sourceName]) },
		"negative length":    func(p []byte) { le.PutUint64(p[source+sourceName:], 1<<63) },
		"no length":          func(p []byte) { le.PutUint64(p[source+sourceName:], 0) },
		"reserved of source": func(p []byte) { p[source+sourceBytes-1] = 1 },
		"many sources":       func(p []byte) { le.PutUint64(p[tail+32:], 1<<60) },
		"fewer sources":      func(p []byte) { le.PutUint64(p[tail+32:], 0) },
		"version 1":          func(p []byte) { le.PutUint32(p[8:], 1) },
	} {
		bad := append([]byte{}, p...)
		lie(bad)
		reseal(bad)
		var corrupt *CorruptError
		if _, err := openBytes(bad); !errors.As(err, &corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	same := append([]byte{}, p...)
	reseal(same)
	if !bytes.Equal(same, p) {
		t.Error("reseal changes a sound image, so this test tests nothing")
	}
}
