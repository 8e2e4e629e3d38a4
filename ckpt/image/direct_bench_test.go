// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkDirect compares the ways to bring raw chunks to the disk: through the page cache, started by sync_file_range as
// Write does it, and past it (O_DIRECT), where a chunk of the file must begin and end at a block, from pages of 4 KiB and from
// huge ones, where the kernel has some. fsync is included.
func BenchmarkDirect(b *testing.B) {
	dir := *benchDir
	if dir == "" {
		dir = b.TempDir()
	}
	path := filepath.Join(dir, "bench.direct")
	defer func() { _ = os.Remove(path) }()
	for _, way := range []struct {
		name   string
		direct bool
		advice int
	}{{"cached", false, unix.MADV_NOHUGEPAGE}, {"direct", true, unix.MADV_NOHUGEPAGE}, {"huge", true, unix.MADV_HUGEPAGE}} {
		_, m := benchMemoryIn(b, way.advice)
		for _, workers := range []int{1, 2, 4} {
			for _, chunk := range []int{DefaultChunk, 4 << 20} {
				b.Run(fmt.Sprintf("%s/workers=%d/chunk=%dK", way.name, workers, chunk>>10), func(b *testing.B) {
					b.SetBytes(int64(len(m)))
					cpu := cpuSeconds()
					for b.Loop() {
						_ = os.Remove(path)
						flags := os.O_CREATE | os.O_WRONLY
						if way.direct {
							flags |= unix.O_DIRECT
						}
						f, err := os.OpenFile(path, flags, 0o600)
						if err != nil {
							b.Skip(err)
						}
						var next atomic.Int64
						var all sync.WaitGroup
						for range workers {
							all.Go(func() {
								for {
									at := next.Add(int64(chunk)) - int64(chunk)
									if at >= int64(len(m)) {
										return
									}
									p := m[at:min(at+int64(chunk), int64(len(m)))]
									if _, err := f.WriteAt(p, at); err != nil {
										b.Error(err)
										return
									}
									if !way.direct {
										_ = unix.SyncFileRange(int(f.Fd()), at, int64(len(p)), unix.SYNC_FILE_RANGE_WRITE)
									}
								}
							})
						}
						all.Wait()
						if err := f.Sync(); err != nil {
							b.Fatal(err)
						}
						_ = f.Close()
					}
					b.ReportMetric((cpuSeconds()-cpu)*1e3/float64(b.N), "cpu-ms/op")
				})
			}
		}
	}
}
