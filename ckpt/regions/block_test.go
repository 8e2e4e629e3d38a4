// SPDX-License-Identifier: Apache-2.0

package regions

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// spread cuts an array into blocks, one a rank, at random places.
func spread(random *rand.Rand, whole []uint64, element uint64, ranks int) []*Block {
	list := []*Block{{Whole: whole, First: make([]uint64, len(whole)), Count: whole, Element: element}}
	for len(list) < ranks {
		i, d := random.IntN(len(list)), random.IntN(len(whole))
		a := list[i]
		at := random.Uint64N(a.Count[d] + 1)
		b := &Block{Whole: whole, First: append([]uint64(nil), a.First...), Count: append([]uint64(nil), a.Count...), Element: element}
		c := &Block{Whole: whole, First: append([]uint64(nil), a.First...), Count: append([]uint64(nil), a.Count...), Element: element}
		b.Count[d] = at
		c.First[d], c.Count[d] = a.First[d]+at, a.Count[d]-at
		list[i] = b
		list = append(list, c)
	}
	return list
}

// content is what a block has of an array whose bytes are numbers of its elements.
func content(b *Block) []byte {
	n, _ := volume(b.Count, b.Element)
	out := make([]byte, n)
	for i := range out {
		element, number, scale := uint64(i)/b.Element, uint64(0), uint64(1)
		for d := len(b.Whole) - 1; d >= 0; d-- {
			number += (element%b.Count[d] + b.First[d]) * scale
			element, scale = element/b.Count[d], scale*b.Whole[d]
		}
		out[i] = byte(number*31 + uint64(i)%b.Element*7)
	}
	return out
}

// TestPieces: an array that lies over ranks in one way is put together over other ranks in another way, each byte once.
func TestPieces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		whole := make([]uint64, 1+random.IntN(4))
		for d := range whole {
			whole[d] = 1 + random.Uint64N(9)
		}
		element := 1 + random.Uint64N(9)
		old, now := spread(random, whole, element, 1+random.IntN(7)), spread(random, whole, element, 1+random.IntN(7))
		if err := Cover(old); err != nil {
			t.Fatalf("%v: %v", whole, err)
		}
		for _, b := range now {
			want := content(b)
			if err := b.Check(uint64(len(want))); err != nil {
				t.Fatal(err)
			}
			got, times := make([]byte, len(want)), make([]int, len(want))
			for _, o := range old {
				from := content(o)
				err := b.Pieces(o, func(p Piece) error {
					copy(got[p.To:p.To+p.Bytes], from[p.From:p.From+p.Bytes])
					for i := p.To; i < p.To+p.Bytes; i++ {
						times[i]++
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			for i := range want {
				if got[i] != want[i] || times[i] != 1 {
					t.Fatalf("array %v: block %v of %v, byte %d: %d, %d times; want %d", whole, b.First, b.Count, i, got[i], times[i], want[i])
				}
			}
		}
	}
}

// TestCover: blocks that overlap, or leave a part out, are no array.
func TestCover(t *testing.T) {
	block := func(first, count uint64) *Block {
		return &Block{Whole: []uint64{10, 3}, First: []uint64{first, 0}, Count: []uint64{count, 3}, Element: 8}
	}
	for _, c := range []struct {
		blocks []*Block
		want   string
	}{
		{[]*Block{block(6, 4), block(0, 6)}, ""},
		{[]*Block{block(6, 4), block(3, 0), block(0, 6)}, ""},
		{[]*Block{block(6, 4), block(0, 7)}, "the blocks of ranks 0 and 1 overlap"},
		{[]*Block{block(7, 3), block(0, 6)}, "the blocks of all ranks have 27 elements of the array's 30"},
	} {
		err := Cover(c.blocks)
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// TestBlockErrors: what Check refuses.
func TestBlockErrors(t *testing.T) {
	for want, b := range map[string]Block{
		"0 to 8 dimensions":      {Whole: []uint64{1}, First: []uint64{0}},
		"has 0 bytes":            {Whole: []uint64{1}, First: []uint64{0}, Count: []uint64{1}},
		"are not in an array":    {Whole: []uint64{4}, First: []uint64{5}, Count: []uint64{0}, Element: 1},
		"from element 2 on":      {Whole: []uint64{4}, First: []uint64{2}, Count: []uint64{3}, Element: 1},
		"more than 2^64 bytes":   {Whole: []uint64{1 << 33, 1 << 33}, First: []uint64{0, 0}, Count: []uint64{1, 1}, Element: 1},
		"has 8 bytes, and the r": {Whole: []uint64{4}, First: []uint64{2}, Count: []uint64{2}, Element: 4},
	} {
		if err := b.Check(100); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// FuzzState: bytes that are taken for the section say the same when they are written again, and their regions are those
// of an image.
func FuzzState(f *testing.F) {
	s, err := NewState([]Named{{ID: 7, Bytes: 5000}, {ID: 1}, {ID: 3, Bytes: 8, Block: &Block{Whole: []uint64{4}, First: []uint64{1}, Count: []uint64{2}, Element: 4}}})
	if err != nil {
		f.Fatal(err)
	}
	b, err := s.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"version":1,"regions":[{"id":1,"at":1099511627776},{"id":1,"at":2199023255552}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeState(b)
		if err != nil {
			return
		}
		images := s.Images()
		for i := range images {
			if r := &images[i]; r.Start%4096 != 0 || r.End%4096 != 0 || r.End <= r.Start || i > 0 && r.Start < images[i-1].End {
				t.Errorf("%v behind %v", r, images[max(i, 1)-1])
			}
		}
		again, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeState(again); err != nil {
			t.Errorf("%s, from %s: %v", again, b, err)
		}
		if err := s.CheckRegions(images); err != nil {
			t.Error(err)
		}
	})
}
