// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// pair writes the images of two processes at the same time, the second with the first as its elder.
type pair struct {
	dir  string
	next int
	in   [2]Input
	last [2]Summary
}

func newPair(t testing.TB, pages int) *pair {
	p := &pair{dir: t.TempDir()}
	for i := range p.in {
		p.in[i] = Input{Meta: []byte("{}"), Regions: memoryRegion(pages), Memory: fakeMemory{}}
	}
	return p
}

func (p *pair) mem(i int) fakeMemory { return p.in[i].Memory.(fakeMemory) }

func (p *pair) path(n, i int) string {
	return filepath.Join(p.dir, fmt.Sprintf("epoch-%06d", n), fmt.Sprintf("rank-%05d.ckpt", i))
}

// write makes the next epoch. tell, which may be nil, changes what the first says, or keeps it back.
func (p *pair) write(t testing.TB, opt [2]Options, tell func(told []byte) []byte) (errs [2]error) {
	t.Helper()
	p.next++
	if err := os.Mkdir(filepath.Dir(p.path(p.next, 0)), 0o755); err != nil {
		t.Fatal(err)
	}
	e := NewElder()
	opt[0].Tell = func(told []byte) {
		if tell != nil {
			told = tell(told)
		}
		if told != nil {
			_ = e.Add(told)
		}
	}
	p.in[1].Elder = e
	var both sync.WaitGroup
	for i := range p.in {
		opt[i].NoSync = true
		both.Go(func() {
			p.last[i], errs[i] = Write(t.Context(), p.path(p.next, i), p.in[i], opt[i])
			if i == 0 && errs[0] != nil {
				e.Lost(errors.New("the first has no image"))
			}
		})
	}
	both.Wait()
	return errs
}

func small16(mode Compression) Options {
	return Options{Chunk: 16 * PageSize, Workers: 2, Compress: mode}
}

// TestElder: two processes whose memory is the same in part are saved again and again, in all ways of compression, with
// and without parents; each image has the memory of its process at its time, and what both have is in one of them.
func TestElder(t *testing.T) {
	const pages = 300
	modes := []Compression{CompressNone, CompressSnappy, CompressZstd, CompressAuto}
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 9))
			p := newPair(t, pages)
			fill(rng, p.mem(0), 0, 220)
			maps.Copy(p.mem(1), p.mem(0))
			fill(rng, p.mem(1), 150, 250) // its own
			var then [][2]fakeMemory
			for n := 1; n <= 6; n++ {
				var opt [2]Options
				for i := range opt {
					opt[i] = small16(modes[rng.IntN(4)])
					opt[i].Track = rng.IntN(2) == 0
					switch p.in[i].Parent = p.last[i].Parent; {
					case n == 1 || n == 4 && rng.IntN(2) == 0:
						p.in[i].Parent = nil
					case p.in[i].Parent == nil || rng.IntN(2) == 0:
						p.in[i].Parent = asParent(t, p.path(n-1, i))
					}
				}
				if errs := p.write(t, opt, nil); errs != [2]error{} {
					t.Fatal(errs)
				}
				if n == 1 {
					if s := p.last[1]; s.SameBytes < 140*PageSize || s.SameBytes != s.SharedBytes || s.PayloadBytes > 110*PageSize ||
						!slices.Equal(s.Sources, []Source{{"../epoch-000001/rank-00000.ckpt", p.last[0].Bytes, p.last[0].Digest}}) {
						t.Errorf("of 250 pages, 150 the same: %+v", s)
					}
				}
				then = append(then, [2]fakeMemory{maps.Clone(p.mem(0)), maps.Clone(p.mem(1))})
				for range rng.IntN(12) { // changes, of both in the same way, or of one
					i := rng.IntN(pages - 8)
					fill(rng, p.mem(0), i, i+1+rng.IntN(7))
					if rng.IntN(2) == 0 {
						for k := i; k < i+8; k++ {
							if q, is := p.mem(0)[testBase+uint64(k)*PageSize]; is {
								p.mem(1)[testBase+uint64(k)*PageSize] = q
							}
						}
					}
					at := rng.IntN(pages - 1)
					fill(rng, p.mem(1), at, at+1)
				}
			}
			for n := range then {
				for i := range 2 {
					f := mustOpen(t, p.path(n+1, i))
					checkContent(t, f, then[n][i])
					if err := f.Verify(t.Context(), nil); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// TestElderFails: a first process that has no image, or says what no writer says, leaves the second one without one,
// too, and no file; nobody waits for ever.
func TestElderFails(t *testing.T) {
	told := 0
	for _, c := range []struct {
		name, says string
		tell       func([]byte) []byte
		broken     bool // the first cannot be written
	}{
		{"without an image", "the first has no image", nil, true},
		{"cut short", "what is told", func(b []byte) []byte { return b[:len(b)-1] }, false},
		{"twice", "what is told", func(b []byte) []byte { return append(b, b...) }, false},
		{"of another kind", "wrong time", func(b []byte) []byte { return append([]byte{9}, b[1:]...) }, false},
		{"in the wrong order", "wrong time", func(b []byte) []byte {
			if told++; told == 1 {
				return nil
			}
			return b
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, 100)
			fill(rand.New(rand.NewPCG(1, 2)), p.mem(0), 0, 100)
			maps.Copy(p.mem(1), p.mem(0))
			if c.broken {
				p.in[0].Memory = brokenMemory{p.mem(0)}
			}
			errs := p.write(t, [2]Options{small16(CompressNone), small16(CompressNone)}, c.tell)
			if errs[1] == nil || !strings.Contains(errs[1].Error(), c.says) {
				t.Errorf("want %q: %v", c.says, errs[1])
			}
			if (errs[0] != nil) != c.broken {
				t.Error(errs[0])
			}
			if list, _ := filepath.Glob(filepath.Join(p.dir, "*/rank-00001*")); len(list) != 0 {
				t.Errorf("left: %q", list)
			}
		})
	}
}

// brokenMemory cannot be read in its middle.
type brokenMemory struct{ fakeMemory }

func (m brokenMemory) ReadAt(p []byte, addr uint64) error {
	if addr <= testBase+50*PageSize && addr+uint64(len(p)) > testBase+50*PageSize {
		return errors.New("broken")
	}
	return m.fakeMemory.ReadAt(p, addr)
}

// TestElderRots: a page of the first image that is damaged, or a first image that is another one or gone, is found when
// the second one is read, and the file is named.
func TestElderRots(t *testing.T) {
	for _, how := range []string{"rots", "is another", "is gone"} {
		t.Run(how, func(t *testing.T) {
			p := newPair(t, 100)
			fill(rand.New(rand.NewPCG(3, 4)), p.mem(0), 0, 100)
			maps.Copy(p.mem(1), p.mem(0))
			fill(rand.New(rand.NewPCG(5, 6)), p.mem(1), 60, 80)
			if errs := p.write(t, [2]Options{small16(CompressNone), small16(CompressNone)}, nil); errs != [2]error{} {
				t.Fatal(errs)
			}
			elder := p.path(1, 0)
			b, err := os.ReadFile(elder)
			if err != nil {
				t.Fatal(err)
			}
			switch how {
			case "rots":
				first := mustOpen(t, elder).chunks[0] // workers write in any order: it may stand anywhere
				if first.Addr != testBase {
					t.Fatalf("the first chunk is of 0x%x", first.Addr)
				}
				b[first.Offset+100] ^= 1
				err = os.WriteFile(elder, b, 0o600)
			case "is another":
				err = errors.Join(os.Remove(elder), os.Link(p.path(1, 1), elder))
			default:
				err = os.Remove(elder)
			}
			if err != nil {
				t.Fatal(err)
			}
			f := mustOpen(t, p.path(1, 1))
			if err := f.Verify(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "rank-00000.ckpt") {
				t.Errorf("verified: %v", err)
			}
			if err := f.CheckSources(); (err == nil) != (how == "rots") {
				t.Errorf("its sources: %v", err)
			}
			got := make([]byte, PageSize)
			if err := f.ReadAt(got, testBase); err == nil {
				t.Error("a damaged page was read")
			}
			if err := f.ReadAt(got, testBase+70*PageSize); err != nil {
				t.Errorf("its own page: %v", err)
			}
		})
	}
}

// FuzzElder: whatever is told, nothing but an error comes of it, and what is taken can be looked at.
func FuzzElder(f *testing.F) {
	p := newPair(f, 100)
	fill(rand.New(rand.NewPCG(7, 8)), p.mem(0), 0, 90)
	maps.Copy(p.mem(1), p.mem(0))
	p.write(f, [2]Options{small16(CompressSnappy), small16(CompressSnappy)}, func(told []byte) []byte {
		f.Add(slices.Clone(told), told)
		return told
	})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		e := NewElder()
		_ = e.Add([]byte{tellSources})
		if e.Add(first) == nil && e.Add(second) == nil {
			for _, c := range e.between(0, e.upTo) {
				if c.Bytes == 0 || int(c.Source) > len(e.sources) || c.pages != nil && len(c.pages) != int(c.Bytes)/PageSize {
					t.Errorf("taken: %+v", c)
				}
			}
		}
	})
}
