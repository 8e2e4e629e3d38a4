// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/fault"
)

func noEpochs(t *testing.T, s *Store) {
	t.Helper()
	list, err := os.ReadDir(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		if strings.HasPrefix(d.Name(), "epoch-") {
			t.Errorf("left behind: %s", d.Name())
		}
	}
}

func TestCopyEpoch(t *testing.T) {
	from, to := newStore(t), newStore(t)
	mustCommit(t, from, 1, 0)
	mustCommit(t, from, 2, 1)
	beside := filepath.Join(from.EpochDir(2), ImagePrefix(0)+".out-0")
	if err := os.WriteFile(beside, []byte("output"), 0o600); err != nil {
		t.Fatal(err)
	}
	chain, err := from.Chain(2)
	if err != nil || len(chain) != 2 || chain[0].Epoch != 1 {
		t.Fatalf("chain %v, %v", chain, err)
	}
	for _, m := range chain {
		if _, err := from.CopyEpoch(t.Context(), m.Epoch, to, CopyOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := to.Verify(t.Context(), 2, nil); err != nil {
		t.Error(err)
	}
	for _, name := range []string{manifestName, filepath.Base(beside)} {
		a, err1 := os.ReadFile(filepath.Join(from.EpochDir(2), name))
		b, err2 := os.ReadFile(filepath.Join(to.EpochDir(2), name))
		if err := errors.Join(err1, err2); err != nil || string(a) != string(b) {
			t.Errorf("%s is another one: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(to.EpochDir(2), copyMark)); err == nil {
		t.Error("the mark of the copy is there still")
	}
	done, err := from.CopyEpoch(t.Context(), 2, to, CopyOptions{})
	if err != nil || !done.Already {
		t.Errorf("again: %+v, %v", done, err)
	}
	// Another epoch of that number is left alone.
	other := newStore(t)
	mustCommit(t, other, 1, 0)
	if _, err := other.CopyEpoch(t.Context(), 1, to, CopyOptions{}); !errors.Is(err, ErrExists) {
		t.Errorf("another epoch of the number: %v", err)
	}
	if err := to.Verify(t.Context(), 1, nil); err != nil {
		t.Error(err)
	}
	// A parent that is gone.
	if err := os.RemoveAll(from.EpochDir(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := from.Chain(2); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "built upon epoch 1") {
		t.Errorf("without the parent: %v", err)
	}
}

// Whichever step fails, there is no epoch and nothing of one, and the next try makes it.
func TestCopyFails(t *testing.T) {
	from := newStore(t)
	mustCommit(t, from, 1, 0)
	to := newStore(t)
	var points []string
	stop := fault.Trace(func(name string) { points = append(points, name) })
	_, err := from.CopyEpoch(t.Context(), 1, to, CopyOptions{})
	stop()
	if err != nil || len(points) < 8 {
		t.Fatalf("%v, %v", points, err)
	}
	for n := range points {
		to := newStore(t)
		disarm, err := fault.Arm(fmt.Sprintf("*=enospc:%d", n+1))
		if err != nil {
			t.Fatal(err)
		}
		_, err = from.CopyEpoch(t.Context(), 1, to, CopyOptions{})
		disarm()
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s: %v", points[n], err)
		}
		noEpochs(t, to)
		if _, err := from.CopyEpoch(t.Context(), 1, to, CopyOptions{}); err != nil {
			t.Errorf("after %s: %v", points[n], err)
		}
	}
}

// A real disk that is too small.
func TestCopyDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root: the full disk is not tested here")
	}
	disk := t.TempDir()
	switch err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=24k"); {
	case errors.Is(err, unix.EPERM):
		t.Skip("root may not mount here (EPERM): the full disk is not tested here")
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	from := newStore(t)
	mustCommit(t, from, 1, 0)
	to, err := Create(filepath.Join(disk, "ckpt"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.CopyEpoch(t.Context(), 1, to, CopyOptions{}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("on a full disk: %v", err)
	}
	noEpochs(t, to)
}

// A copy that was interrupted is gone on with, and what is damaged in it is copied again.
func TestCopyGoesOn(t *testing.T) {
	from, to := newStore(t), newStore(t)
	mustCommit(t, from, 1, 0)
	m, err := from.Manifest(1)
	if err != nil || len(m.Images) < 2 {
		t.Fatalf("%v, %v", m, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = from.CopyEpoch(ctx, 1, to, CopyOptions{Progress: func(done, _ int64) {
		if done > m.Images[0].Bytes { // the first is there, the second has begun
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	if _, err := to.Newest(); !errors.Is(err, ErrNone) {
		t.Errorf("half an epoch counts: %v", err)
	}
	left := filepath.Join(to.EpochDir(1), "rank-00001.ckpt.1.tmp") // as after a kill
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	done, err := from.CopyEpoch(t.Context(), 1, to, CopyOptions{})
	if err != nil || done.Kept != 1 || done.Files != len(m.Images)-1 {
		t.Errorf("gone on with: %+v, %v", done, err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("half a file is there still")
	}

	// The folder of a job is not taken for that of a copy.
	to = newStore(t)
	if err := to.Begin(1); err != nil {
		t.Fatal(err)
	}
	if _, err := from.CopyEpoch(t.Context(), 1, to, CopyOptions{}); !errors.Is(err, ErrExists) {
		t.Errorf("into another's folder: %v", err)
	}
	// What was copied then and is damaged since.
	to = newStore(t)
	ctx, cancel = context.WithCancel(t.Context())
	_, _ = from.CopyEpoch(ctx, 1, to, CopyOptions{Progress: func(done, _ int64) {
		if done > m.Images[0].Bytes {
			cancel()
		}
	}})
	image := to.ImagePath(1, 0)
	b, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(image, b, 0o600); err != nil {
		t.Fatal(err)
	}
	done, err = from.CopyEpoch(t.Context(), 1, to, CopyOptions{})
	if err != nil || done.Kept != 0 {
		t.Errorf("over a damaged image: %+v, %v", done, err)
	}
	if err := to.Verify(t.Context(), 1, nil); err != nil {
		t.Error(err)
	}
}

// A damaged epoch is not copied, and what is said names the epoch and not its copy.
func TestCopyDamaged(t *testing.T) {
	from, to := newStore(t), newStore(t)
	mustCommit(t, from, 1, 0)
	b, err := os.ReadFile(from.ImagePath(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(from.ImagePath(1, 1), b, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = from.CopyEpoch(t.Context(), 1, to, CopyOptions{})
	if err == nil || !strings.Contains(err.Error(), from.ImagePath(1, 1)) {
		t.Errorf("a damaged image: %v", err)
	}
	noEpochs(t, to)
	if err := os.Remove(from.ImagePath(1, 1)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(from.ImagePath(1, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = from.CopyEpoch(t.Context(), 1, to, CopyOptions{}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a pipe: %v", err)
	}
	noEpochs(t, to)
}

func TestHistory(t *testing.T) {
	s := newStore(t)
	for n := 1; n <= 4; n++ {
		mustCommit(t, s, n, 0)
		m, err := s.Manifest(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.AppendHistory(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Retire(2); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Dir(), historyName)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"epoch":9,"ima`); err != nil { // torn
		t.Fatal(err)
	}
	_ = f.Close()
	list, unread, err := s.History()
	if err != nil || unread != 1 || len(list) != 4 {
		t.Fatalf("%d epochs, %d lines unread, %v", len(list), unread, err)
	}
	for i, h := range list {
		if h.Epoch != i+1 || h.Gone != (i < 2) || len(h.Images) == 0 || h.Images[0].Bytes == 0 {
			t.Errorf("%+v", h)
		}
	}
	// A pipe in its place keeps nobody waiting.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.History(); err == nil {
		t.Error("a pipe was read")
	}
	if err := s.AppendHistory(&list[3].Manifest); err == nil {
		t.Error("a pipe was written to")
	}
}

// The file stays bounded, and keeps the newest.
func TestHistoryBounded(t *testing.T) {
	old := maxHistory
	maxHistory = 4 << 10
	defer func() { maxHistory = old }()
	s := newStore(t)
	mustCommit(t, s, 1, 0)
	m, err := s.Manifest(1)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 100 {
		m.Epoch = n + 1
		if err := s.AppendHistory(m); err != nil {
			t.Fatal(err)
		}
	}
	st, err := os.Stat(filepath.Join(s.Dir(), historyName))
	if err != nil || st.Size() > maxHistory {
		t.Errorf("%v, %v", st, err)
	}
	list, unread, err := s.History()
	if err != nil || unread != 0 || len(list) < 3 || list[len(list)-1].Epoch != 100 {
		t.Errorf("%d epochs, %d unread, %v", len(list), unread, err)
	}
}
