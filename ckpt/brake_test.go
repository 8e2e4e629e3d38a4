// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"
)

// busy is memory of this process, which is the program's where that is said by the address.
func busy(t *testing.T, at uintptr, mib int) []byte {
	t.Helper()
	flags := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	if at != 0 {
		flags |= unix.MAP_FIXED_NOREPLACE
	}
	addr, _, e := unix.Syscall6(unix.SYS_MMAP, at, uintptr(mib)<<20, unix.PROT_READ|unix.PROT_WRITE, uintptr(flags), ^uintptr(0), 0)
	if e != 0 || at != 0 && addr != at {
		t.Fatalf("mmap at 0x%x: 0x%x, %v", at, addr, e)
	}
	p := unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), mib<<20)
	t.Cleanup(func() { _, _, _ = unix.Syscall(unix.SYS_MUNMAP, addr, uintptr(len(p)), 0) })
	_ = unix.Madvise(p, unix.MADV_NOHUGEPAGE)
	return p
}

func touch(p []byte, n int) {
	for i := 0; i < n; i += 4096 {
		p[i]++
	}
}

// A program that writes to more memory than the frozen copy may take is stopped until its image is written; another one
// is not, and the epoch is committed in both cases. The writing lasts: it is limited.
func TestSnapshotMemory(t *testing.T) {
	for _, c := range []struct {
		what   string
		writes int // MiB, while the image is written
		limit  int64
		parks  int
	}{
		{"much", 48, 16 << 20, 2},
		{"little", 2, 256 << 20, 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			saved := busy(t, privateAt+64<<20, 4)
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range saved {
				saved[i] = byte(rng.Uint32())
			}
			p := busy(t, 0, 64) // not saved, but copied
			touch(p, len(p))
			h := newTestHost(t)
			o := testOptions(filepath.Join(t.TempDir(), "ckpt"))
			o.SnapshotMemory = c.limit
			o.WriteLimit = 4 << 20
			j := start(t, h, o)
			core, logged := observer.New(zap.WarnLevel)
			j.log = zap.New(core)
			// The program goes on: it writes. It is at rest before the next thing is looked at.
			h.onRelease = func() {
				h.onRelease = nil
				touch(p, c.writes<<20)
			}
			begun := time.Now()
			checkpoint(t, j)
			took := time.Since(begun).Seconds()
			if h.parks != c.parks || h.releases != c.parks {
				t.Errorf("stopped %d times, released %d times, want %d", h.parks, h.releases, c.parks)
			}
			m, err := j.store.Manifest(1)
			if err != nil {
				t.Fatal(err)
			}
			if c.parks > 1 && m.StopSeconds < 0.1 || m.StopSeconds > took { // most of a second is left to be written
				t.Errorf("stopped for %g s of %g", m.StopSeconds, took)
			}
			if n := logged.FilterMessageSnippet("--snapshot-memory").Len(); n != c.parks-1 {
				t.Errorf("%d lines in the log: %v", n, logged.All())
			}
			wantEpochs(t, j.store, 1)
		})
	}
}

// Where shared memory alone is more than the bound there is no copy at all.
func TestNoRoomForACopy(t *testing.T) {
	h := newTestHost(t)
	h.onFreeze = func(int) { t.Error("a copy was made") }
	o := testOptions(filepath.Join(t.TempDir(), "ckpt"))
	o.SnapshotMemory = 1
	j := start(t, h, o)
	core, logged := observer.New(zap.WarnLevel)
	j.log = zap.New(core)
	memory(t, sharedAt, unix.MAP_SHARED)[0] = 1
	checkpoint(t, j)
	if h.parks != 1 || h.releases != 1 || logged.FilterMessageSnippet("no frozen copy").Len() != 1 {
		t.Errorf("stopped %d times, released %d times, said %v", h.parks, h.releases, logged.All())
	}
}
