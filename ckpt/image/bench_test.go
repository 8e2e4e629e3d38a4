// SPDX-License-Identifier: Apache-2.0

package image

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Run with, for example: go test -run - -bench . -mib 512 -benchtime 3x -dir /data
var (
	benchMiB = flag.Int("mib", 64, "size of the memory in the benchmarks")
	benchDir = flag.String("dir", "", "where the benchmarks write (a temporary directory)")
)

func benchMemory(b *testing.B) (Input, []byte) { return benchMemoryIn(b, unix.MADV_NORMAL) }

// benchMemoryIn has advice (madvise(2)) for the kernel about its pages.
func benchMemoryIn(b *testing.B, advice int) (Input, []byte) {
	b.Helper()
	m, err := unix.Mmap(-1, 0, *benchMiB<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = unix.Munmap(m) })
	_ = unix.Madvise(m, advice)
	rng := rand.New(rand.NewPCG(3, 4))
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&m[0])), len(m)/8)
	for i := range words {
		words[i] = rng.Uint64()
	}
	mem, err := OpenSelf()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = mem.Close() })
	start := uint64(uintptr(unsafe.Pointer(&m[0])))
	return Input{Regions: []Region{{Start: start, End: start + uint64(len(m))}}, Memory: mem}, m
}

func cpuSeconds() float64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func BenchmarkWrite(b *testing.B) {
	in, m := benchMemory(b)
	dir := *benchDir
	if dir == "" {
		dir = b.TempDir()
	}
	path := filepath.Join(dir, "bench.ckpt")
	defer func() { _ = os.Remove(path) }()
	for _, sync := range []bool{false, true} {
		for _, mode := range []Compression{CompressNone, CompressSnappy} {
			for _, workers := range []int{1, 2} {
				for _, chunk := range []int{256 << 10, 512 << 10, 1 << 20} {
					b.Run(fmt.Sprintf("sync=%v/%s/workers=%d/chunk=%dK", sync, mode, workers, chunk>>10), func(b *testing.B) {
						b.SetBytes(int64(len(m)))
						cpu := cpuSeconds()
						for b.Loop() {
							_ = os.Remove(path)
							if _, err := Write(b.Context(), path, in, Options{Compress: mode, Workers: workers,
								Chunk: chunk, NoSync: !sync}); err != nil {
								b.Fatal(err)
							}
						}
						b.ReportMetric((cpuSeconds()-cpu)*1e3/float64(b.N), "cpu-ms/op")
					})
				}
			}
		}
	}
}

func BenchmarkRead(b *testing.B) {
	in, m := benchMemory(b)
	for _, mode := range []Compression{CompressNone, CompressSnappy} {
		path, _ := mustWrite(b, in, Options{Compress: mode})
		f := mustOpen(b, path)
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/workers=%d", mode, workers), func(b *testing.B) {
				b.SetBytes(int64(len(m)))
				cpu := cpuSeconds()
				for b.Loop() {
					dst, err := unix.Mmap(-1, 0, len(m), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
					if err != nil {
						b.Fatal(err)
					}
					_ = unix.Madvise(dst, unix.MADV_HUGEPAGE)
					if err := f.ReadRegion(b.Context(), 0, dst, workers); err != nil {
						b.Fatal(err)
					}
					if err := unix.Munmap(dst); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric((cpuSeconds()-cpu)*1e3/float64(b.N), "cpu-ms/op")
			})
		}
	}
}
