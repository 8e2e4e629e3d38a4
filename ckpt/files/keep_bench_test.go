// SPDX-License-Identifier: Apache-2.0

package files

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkKeep: what keeping one file costs while the application stands still. Sampling is in all of them,
// and all there is to do for `--files restore`.
func BenchmarkKeep(b *testing.B) {
	for _, c := range []struct {
		how  string
		size int
	}{{"sample", 64 << 10}, {"sample", 1 << 30}, {KeepLink, 1 << 30}, {KeepCopy, 64 << 10}, {KeepCopy, 1 << 20}, {KeepCopy, 64 << 20}} {
		b.Run(fmt.Sprintf("%s-%dKiB", c.how, c.size>>10), func(b *testing.B) {
			dir := b.TempDir()
			path := filepath.Join(dir, "out")
			f, err := os.Create(path)
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			block := noise(1<<20, 1)
			for at := 0; at < c.size; at += len(block) {
				if _, err := f.Write(block[:min(len(block), c.size-at)]); err != nil {
					b.Fatal(err)
				}
			}
			fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 100)
			if err != nil {
				b.Fatal(err)
			}
			defer unix.Close(fd)
			o := KeepOptions{Dir: dir, Prefix: "rank-00000"}
			if c.how == KeepCopy {
				o.Copy = int64(c.size)
			}
			for b.Loop() {
				table, _, err := Capture([]int{fd}, [3]int{-1, -1, -1})
				if err != nil {
					b.Fatal(err)
				}
				h, err := Hold(&table, nil, []int{fd})
				if err != nil {
					b.Fatal(err)
				}
				if err := h.Sample(&table); err != nil {
					b.Fatal(err)
				}
				table.Elect(0, [][]string{table.Shared()})
				if c.how != "sample" {
					if err := h.Keep(&table, o); err != nil || table.Kept[0].How != c.how {
						b.Fatal(err, table.Kept)
					}
				}
				h.Done()
				_ = os.Remove(filepath.Join(dir, "rank-00000-file-000"))
			}
		})
	}
}
