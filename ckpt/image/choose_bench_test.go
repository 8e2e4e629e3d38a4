// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// contents are kinds of memory, as programs have them.
var contents = []struct {
	name string
	fill func(p []byte)
}{
	{"zeros", func([]byte) {}},
	{"text", fillText},
	{"random", fillRandom},
	{"smooth", func(p []byte) { // a field in steps of 1/1024, neighbours mostly equal
		fillFloats(p, func(i int) float64 { return math.Round(1024*math.Sin(float64(i)/1e5)) / 1024 })
	}},
	{"floats", func(p []byte) { // a field with all its digits
		fillFloats(p, func(i int) float64 { return math.Sin(float64(i) / 1e4) })
	}},
	{"mixed", func(p []byte) {
		for i := 0; i+4<<20 <= len(p); i += 4 << 20 {
			fillText(p[i:][:1<<20])
			fillRandom(p[i+1<<20:][:1<<20])
			fillFloats(p[i+2<<20:][:1<<20], func(i int) float64 { return math.Sqrt(float64(i)) })
		}
	}},
}

func fillRandom(p []byte) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i := 0; i+8 <= len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], rng.Uint64())
	}
}

func fillFloats(p []byte, f func(i int) float64) {
	for i := 0; i+8 <= len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], math.Float64bits(f(i/8)))
	}
}

// fillText makes words of a language with 4096 of them, the frequent ones more often.
func fillText(p []byte) {
	rng := rand.New(rand.NewPCG(5, 6))
	words := make([]string, 4096)
	for i := range words {
		w := make([]byte, 2+rng.IntN(9))
		for k := range w {
			w[k] = 'a' + byte(rng.IntN(26)*rng.IntN(26)/26)
		}
		words[i] = string(w) + " "
	}
	for at := 0; at < len(p); {
		f := rng.Float64()
		at += copy(p[at:], words[int(f*f*f*float64(len(words)))])
	}
}

// BenchmarkCompression compares --compress auto with the others, each round in turn. Run with, for example:
// go test -run - -bench Compression -mib 512 -benchtime 5x -dir /data
func BenchmarkCompression(b *testing.B) {
	dir := *benchDir
	if dir == "" {
		dir = b.TempDir()
	}
	path := filepath.Join(dir, "bench.ckpt")
	defer func() { _ = os.Remove(path) }()
	in, m := benchMemory(b)
	for _, kind := range contents {
		clear(m)
		kind.fill(m)
		model := &Model{}
		for _, mode := range []Compression{CompressNone, CompressSnappy, CompressZstd, CompressAuto} {
			b.Run(fmt.Sprintf("%s/%s", kind.name, mode), func(b *testing.B) {
				b.SetBytes(int64(len(m)))
				cpu := cpuSeconds()
				var sum Summary
				for b.Loop() {
					_ = os.Remove(path)
					var err error
					if sum, err = Write(b.Context(), path, in, Options{Compress: mode, Model: model}); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric((cpuSeconds()-cpu)*1e3/float64(b.N), "cpu-ms/op")
				b.ReportMetric(float64(sum.Bytes)/(1<<20), "MiB")
			})
		}
	}
}
