// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
)

// TestDiskFull fills a real file system at every stage of an epoch: the epoch is given up, the one
// before restores, and once there is room the next one is committed.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root: the full disk is not tested here")
	}
	disk := t.TempDir()
	switch err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); {
	case errors.Is(err, unix.EPERM):
		t.Skip("root may not mount here (EPERM): the full disk is not tested here")
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s, err := Create(filepath.Join(disk, "ckpt"))
	if err != nil {
		t.Fatal(err)
	}
	mustCommit(t, s, 1, 0)
	ballast := filepath.Join(disk, "ballast")
	// Leaves less and less room: for nothing, for one image, for both but not the manifest.
	failed := 0
	for pages := range 64 {
		if err := os.WriteFile(ballast, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var st unix.Statfs_t
		if err := unix.Statfs(disk, &st); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(ballast, make([]byte, (int(st.Bfree)-pages)*image.PageSize), 0o600); err != nil {
			t.Fatal(err)
		}
		epoch, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		err = commitEpoch(s, epoch, 0)
		if err == nil {
			break
		}
		failed++
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%d pages free: %v", pages, err)
		}
		if err := s.Abandon(epoch); err != nil {
			t.Errorf("%d pages free: %v", pages, err)
		}
		if n, err := s.Newest(); n != 1 || err != nil {
			t.Fatalf("%d pages free: newest is %d, %v", pages, n, err)
		}
		checkRestorable(t, s, 1)
		if left, err := os.ReadDir(s.Dir()); err != nil || len(left) != 1 {
			t.Errorf("%d pages free: left %v, %v", pages, left, err)
		}
	}
	if failed < 3 {
		t.Errorf("the disk was full only %d times", failed)
	}
	n, err := s.Newest()
	if err != nil || n == 1 {
		t.Errorf("with room again: newest is %d, %v", n, err)
	}
	checkRestorable(t, s, n)
	t.Logf("the disk was full in %d ways", failed)
}
