// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of 1 MiB. Only root may; anybody else is told so. A root that cannot
// mount is most likely in a container without the privilege, which the skip says too.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root: the full disk is not tested here")
	}
	dir := t.TempDir()
	switch err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); {
	case errors.Is(err, unix.EPERM):
		t.Skip("root may not mount here (EPERM): the full disk is not tested here")
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestDiskFull writes more than there is room for: the error is ENOSPC, nothing is left, the image that
// was there stays, and a smaller one can be written.
func TestDiskFull(t *testing.T) {
	dir := smallDisk(t)
	path := filepath.Join(dir, "rank-00000.ckpt")
	in, mem := sample()
	if _, err := Write(t.Context(), path, in, Options{}); err != nil {
		t.Fatal(err)
	}
	big := in
	const pages = 1024
	big.Regions = []Region{{Start: testBase, End: testBase + pages*PageSize, Copied: CopiedAt(testBase, make([]byte, pages*PageSize))}}
	for i := range big.Regions[0].Copied[0].Data {
		big.Regions[0].Copied[0].Data[i] = byte(i*i>>8 + i)
	}
	for _, workers := range []int{1, 4} {
		_, err := Write(t.Context(), path, big, Options{Workers: workers})
		if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "ckptctl gc") {
			t.Errorf("%d workers: %v", workers, err)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 1 {
			t.Errorf("%d workers: left %v, %v", workers, left, err)
		}
		checkContent(t, mustOpen(t, path), mem)
	}
	if _, err := Write(t.Context(), path, in, Options{}); err != nil {
		t.Errorf("a small image after the disk was full: %v", err)
	}
}

// TestLimitOfFiles writes more than files may have (ulimit -f), in a process of its own: SIGXFSZ, which would end it, is one that
// ckptrun's threads do not hear.
func TestLimitOfFiles(t *testing.T) {
	if dir := os.Getenv("IMAGE_TEST_LIMITED"); dir != "" {
		signal.Ignore(unix.SIGXFSZ)
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 3 * PageSize, Max: unix.RLIM_INFINITY}); err != nil {
			t.Fatal(err)
		}
		in, _ := sample()
		_, err := Write(t.Context(), filepath.Join(dir, "x"), in, Options{})
		if !errors.Is(err, unix.EFBIG) || !strings.Contains(err.Error(), "ulimit -f") {
			t.Errorf("%v", err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("left %v, %v", left, err)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestLimitOfFiles$", "-test.count=1")
	cmd.Env = append(os.Environ(), "IMAGE_TEST_LIMITED="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestNoDirectory(t *testing.T) {
	in, _ := sample()
	_, err := Write(t.Context(), filepath.Join(t.TempDir(), "gone", "x"), in, Options{})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
