// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/s2"
)

// What is stored how, at which costs: nanoseconds of a processor and of the disk for a byte.
func TestEarliest(t *testing.T) {
	const snappy, zstd, put = 1e-9, 3e-9, 0.4e-9
	for _, c := range []struct {
		what         string
		disk         float64
		left         [2]float64 // with snappy, with zstd
		workers      int
		rest         uint64
		backlog      int64
		slow         float64
		encodeSnappy float64 // in this region
		want         Kind
	}{
		{what: "nothing becomes smaller", disk: 100e-9, left: [2]float64{1, 1}, workers: 2, rest: 1 << 30, want: KindRaw},
		{what: "a slow disk", disk: 100e-9, left: [2]float64{0.5, 0.4}, workers: 1, rest: 1 << 30, want: KindZstd},
		{what: "a slow disk, and zstd gains nothing more", disk: 100e-9, left: [2]float64{0.5, 0.5}, workers: 1, rest: 1 << 30, want: KindSnappy},
		{what: "a fast disk", disk: 0.2e-9, left: [2]float64{0.5, 0.4}, workers: 1, rest: 1 << 30, want: KindRaw},
		{what: "a disk as fast as snappy", disk: 2e-9, left: [2]float64{0.5, 0.4}, workers: 1, rest: 1 << 30, want: KindSnappy},
		{what: "the same with more processors", disk: 2e-9, left: [2]float64{0.5, 0.4}, workers: 8, rest: 1 << 30, want: KindZstd},
		{what: "which are busy", disk: 2e-9, left: [2]float64{0.5, 0.4}, workers: 8, rest: 1 << 30, slow: 8, want: KindSnappy},
		{what: "and starve", disk: 2e-9, left: [2]float64{0.5, 0.4}, workers: 8, rest: 1 << 30, slow: 90, want: KindRaw},
		{what: "the end is near, and the disk behind", disk: 2e-9, left: [2]float64{0.5, 0.4}, workers: 1, rest: 1 << 20, backlog: 64 << 20, want: KindZstd},
		{what: "content that snappy takes at once", disk: 0.2e-9, left: [2]float64{0.05, 0.02}, workers: 1, rest: 1 << 30, encodeSnappy: 0.2e-9, want: KindSnappy},
	} {
		m := &Model{put: put, disk: c.disk, slow: c.slow}
		m.encode[KindSnappy], m.encode[KindZstd] = snappy, zstd
		ch := &chooser{model: m, workers: func() int { return c.workers }, backlog: func() int64 { return c.backlog }}
		g := &gain{}
		g.encode[KindSnappy] = c.encodeSnappy
		if got := ch.earliest([kinds]float64{KindRaw: 1, KindSnappy: c.left[0], KindZstd: c.left[1]}, g, c.rest); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// A sample that promises too much is believed less the next time.
func TestPromises(t *testing.T) {
	m := &Model{put: 0.4e-9, disk: 2e-9}
	m.encode[KindSnappy], m.encode[KindZstd] = 1e-9, 30e-9
	c := &chooser{model: m, workers: func() int { return 1 }, backlog: func() int64 { return 0 }, regions: map[int]*gain{3: {}}}
	left := [kinds]float64{KindRaw: 1, KindSnappy: 0.5, KindZstd: 0.5}
	if got := c.earliest(left, c.regions[3], 1<<30); got != KindSnappy {
		t.Fatalf("%v before", got)
	}
	for range 4 {
		c.was(3, KindSnappy, 0.5, 512<<10, 512<<10, 0, time.Millisecond)
	}
	if got := c.earliest(left, c.regions[3], 1<<30); got != KindRaw {
		t.Errorf("%v after", got)
	}
}

func autoInput(n int, fill func([]byte)) Input {
	p := make([]byte, n)
	fill(p)
	return Input{Regions: []Region{{Start: testBase, End: testBase + uint64(n), Copied: CopiedAt(testBase, p)}}}
}

// On a disk that is slow beyond measure all that becomes smaller is compressed, on one that costs nothing what costs
// time is not; and the content comes back.
func TestAuto(t *testing.T) {
	for _, c := range contents {
		for _, slow := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/slow=%v", c.name, slow), func(t *testing.T) {
				m := &Model{disk: 1e-18}
				if slow {
					m.disk = 1
				}
				in := autoInput(8<<20, c.fill)
				path, s := mustWrite(t, in, Options{Compress: CompressAuto, Model: m, Track: true})
				f := mustOpen(t, path)
				got := make([]byte, 8<<20)
				if err := f.ReadRegion(t.Context(), 0, got, 2); err != nil || !bytes.Equal(got, in.Regions[0].Copied[0].Data) {
					t.Fatalf("the content does not come back: %v", err)
				}
				if err := f.Verify(t.Context(), nil); err != nil {
					t.Error(err)
				}
				least := s.PayloadBytes
				for _, mode := range []Compression{CompressNone, CompressSnappy, CompressZstd} {
					_, other := mustWrite(t, in, Options{Compress: mode})
					least = min(least, other.StoredBytes)
				}
				if slow && s.StoredBytes > least+least/10 {
					t.Errorf("%d bytes, and there is a way with %d", s.StoredBytes, least)
				}
				if !slow && (c.name == "text" || c.name == "random") && s.StoredBytes != s.PayloadBytes {
					t.Errorf("compressed, to %d bytes of %d, where the disk is free", s.StoredBytes, s.PayloadBytes)
				}
				for _, chunk := range f.Chunks() {
					if chunk.Kind == KindRaw && chunk.Offset%PageSize != 0 {
						t.Errorf("a raw chunk at offset %d cannot be mapped", chunk.Offset)
					}
				}
			})
		}
	}
}

// What waits for the disk is counted, and what came there is measured.
func TestFlusher(t *testing.T) {
	m := &Model{}
	in := autoInput(16<<20, fillRandom)
	path := filepath.Join(t.TempDir(), "rank-00000.ckpt")
	if _, err := Write(t.Context(), path, in, Options{Compress: CompressAuto, Model: m}); err != nil {
		t.Fatal(err)
	}
	f := mustOpen(t, path)
	fl := newFlusher(int(f.r.(interface{ Fd() uintptr }).Fd()), m)
	const all = 3 * flushAtOnce
	for at := int64(0); at < all; at += flushAtOnce {
		fl.add(at, flushAtOnce)
	}
	for fl.backlog() > 0 {
		time.Sleep(time.Millisecond) // ends when the disk answers
	}
	fl.stop()
	if m.disk <= 0 || m.put <= 0 {
		t.Errorf("the disk costs %g s a byte, writing %g", m.disk, m.put)
	}
}

// What is called snappy is that of github.com/golang/snappy, both ways.
func TestSnappyIsSnappy(t *testing.T) {
	d := decoder{}
	defer d.close()
	for _, c := range contents {
		p := make([]byte, 1<<20)
		c.fill(p)
		got, err := snappy.Decode(nil, s2.EncodeSnappy(nil, p))
		if err != nil || !bytes.Equal(got, p) {
			t.Errorf("%s: what is written is not read: %v", c.name, err)
		}
		got = make([]byte, len(p))
		if err := d.decode(KindSnappy, got, snappy.Encode(nil, p)); err != nil || !bytes.Equal(got, p) {
			t.Errorf("%s: what golang/snappy writes is not read: %v", c.name, err)
		}
	}
}

// BenchmarkSnappy compares the encoder with that of golang/snappy.
func BenchmarkSnappy(b *testing.B) {
	for _, c := range contents {
		p := make([]byte, DefaultChunk)
		c.fill(p)
		dst := make([]byte, s2.MaxEncodedLen(len(p)))
		for name, encode := range map[string]func(dst, p []byte) []byte{"s2": s2.EncodeSnappy, "golang": snappy.Encode} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(p)))
				for b.Loop() {
					encode(dst, p)
				}
			})
		}
	}
}

// FuzzAuto stores content as chosen, and reads it.
func FuzzAuto(f *testing.F) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, c := range contents {
		p := make([]byte, 6*PageSize)
		c.fill(p[:rng.IntN(len(p))])
		f.Add(p, 1e-9, uint64(1<<20), int64(0))
	}
	e, err := newEncoder(CompressAuto, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, content []byte, disk float64, rest uint64, backlog int64) {
		content = content[:len(content)&^(PageSize-1)]
		if len(content) == 0 || len(content) > MaxChunk {
			return
		}
		m := &Model{disk: disk}
		c := &chooser{model: m, workers: func() int { return 2 }, backlog: func() int64 { return backlog }, regions: map[int]*gain{}}
		e.choice = c
		d := decoder{}
		defer d.close()
		got := make([]byte, len(content))
		for range 3 {
			kind, stored := e.encode(content, 1, rest)
			if kind == KindRaw {
				if !bytes.Equal(stored, content) {
					t.Fatal("raw content differs")
				}
				continue
			}
			if err := d.decode(kind, got, stored); err != nil || !bytes.Equal(got, content) {
				t.Fatalf("%v: %v", kind, err)
			}
			if !worthIt(len(stored), len(content)) {
				t.Fatalf("%v: %d bytes of %d", kind, len(stored), len(content))
			}
		}
	})
}
