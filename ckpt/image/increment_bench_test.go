// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BenchmarkIncrement writes and reads the last image of a chain: in each step 5 % of the memory changes, at random pages
// ("scattered") or in one piece, and the next image is written upon the one before. bench/results/increments.txt has
// figures.
func BenchmarkIncrement(b *testing.B) {
	for _, mode := range []Compression{CompressNone, CompressSnappy} {
		for _, scattered := range []bool{true, false} {
			for _, epochs := range []int{1, 2, 4, 8} {
				b.Run(fmt.Sprintf("%s/scattered=%v/epochs=%d", mode, scattered, epochs), func(b *testing.B) {
					in, m := benchMemory(b)
					dir := *benchDir
					if dir == "" {
						dir = b.TempDir()
					}
					words := unsafe.Slice((*uint64)(unsafe.Pointer(&m[0])), len(m)/8)
					rng := rand.New(rand.NewPCG(8, 9))
					change := func() {
						pages := len(m) / PageSize
						from := rng.IntN(pages * 19 / 20)
						for i := range pages / 20 {
							at := from + i
							if scattered {
								at = rng.IntN(pages)
							}
							words[at*PageSize/8] = rng.Uint64()
						}
					}
					path := func(n int) string { return filepath.Join(dir, fmt.Sprintf("bench-%d", n), "rank-00000.ckpt") }
					var s Summary
					var err error
					for n := 1; n <= epochs; n++ {
						if err := os.MkdirAll(filepath.Dir(path(n)), 0o700); err != nil {
							b.Fatal(err)
						}
						defer os.RemoveAll(filepath.Dir(path(n)))
						if n > 1 {
							change()
							in.Parent = s.Parent
						}
						if n == epochs {
							break
						}
						if s, err = Write(b.Context(), path(n), in, Options{Compress: mode, Track: true, NoSync: true}); err != nil {
							b.Fatal(err)
						}
					}
					dst, err := unix.Mmap(-1, 0, len(m), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
					if err != nil {
						b.Fatal(err)
					}
					defer unix.Munmap(dst)
					b.Run("write", func(b *testing.B) {
						b.SetBytes(int64(len(m)))
						cpu := cpuSeconds()
						for b.Loop() {
							if s, err = Write(b.Context(), path(epochs), in, Options{Compress: mode, Track: true}); err != nil {
								b.Fatal(err)
							}
						}
						b.ReportMetric((cpuSeconds()-cpu)*1e3/float64(b.N), "cpu-ms/op")
						b.ReportMetric(float64(s.Bytes)/(1<<20), "MiB-written")
						b.ReportMetric(float64(s.Chunks), "pieces")
					})
					b.Run("read", func(b *testing.B) {
						f := mustOpen(b, path(epochs))
						b.SetBytes(int64(len(m)))
						for b.Loop() {
							if err := f.ReadRegion(b.Context(), 0, dst, 2); err != nil {
								b.Fatal(err)
							}
						}
					})
				})
			}
		}
	}
}
