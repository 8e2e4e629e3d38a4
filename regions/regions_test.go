// SPDX-License-Identifier: Apache-2.0

package regions_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/libckpt/libckpt/regions"
)

// open begins a job of one rank.
func open(t *testing.T, dir string) *regions.Job {
	t.Helper()
	job, err := regions.Open(t.Context(), dir, regions.Alone(), regions.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = job.Close(context.Background()) })
	return job
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestPiecesOneByOne: a program asks how long its pieces were, makes room and loads them one by one; pieces that
// functions write are read back by functions; what is not protected any more is not saved.
func TestPiecesOneByOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	job := open(t, dir)
	if _, err := job.Saved(t.Context()); !errors.Is(err, regions.ErrNone) {
		t.Errorf("a fresh start: %v, want ErrNone", err)
	}
	must(t, job.Protect(1, []byte("one")), job.Protect(2, []byte("two and more")), job.Protect(3, []byte("three")),
		job.ProtectFunc(4, func(w io.Writer) error { _, err := io.WriteString(w, "a stream"); return err },
			func(io.Reader) error { return nil }),
		job.Unprotect(3), job.Level(4))
	for what, err := range map[string]error{
		"Unprotect of what is not protected": job.Unprotect(3), "Level 5": job.Level(5), "Distribute of nothing": job.Distribute(9, regions.Block{}),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	epoch, err := job.Checkpoint(t.Context())
	must(t, err, job.Close(t.Context()))

	job = open(t, dir)
	found, err := job.Saved(t.Context())
	if err != nil || found != epoch {
		t.Fatalf("saved: epoch %d, %v, want %d", found, err, epoch)
	}
	n, err := job.SavedBytes(2)
	must(t, err)
	two, stream := make([]byte, n), ""
	must(t, job.Protect(2, two), job.RecoverOne(2), job.ProtectFunc(4, func(io.Writer) error { return nil },
		func(r io.Reader) error { b, err := io.ReadAll(r); stream = string(b); return err }), job.RecoverOne(4))
	if diff := cmp.Diff([]string{"two and more", "a stream"}, []string{string(two), stream}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := job.SavedBytes(3); err == nil {
		t.Error("piece 3 was saved, though it was not protected any more")
	}
}

// spread runs a job of n ranks that holds the bytes of an array in equal blocks; it fills them with what it is given
// and saves, or loads and returns the whole.
func spread(t *testing.T, dir string, n int, fill []byte, bytesInAll int) []byte {
	t.Helper()
	all := make([]byte, bytesInAll)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank, c := range regions.Group(n) {
		wg.Go(func() {
			errs[rank] = func() error {
				job, err := regions.Open(t.Context(), dir, c, regions.Options{})
				if err != nil {
					return err
				}
				part := all[rank*bytesInAll/n : (rank+1)*bytesInAll/n]
				copy(part, fill[min(len(fill), rank*bytesInAll/n):])
				block := regions.Block{Element: 1, Whole: []uint64{uint64(bytesInAll)}, First: []uint64{uint64(rank * bytesInAll / n)}, Count: []uint64{uint64(len(part))}}
				err = errors.Join(job.Protect(0, part), job.Distribute(0, block))
				if err == nil && fill != nil {
					_, err = job.Checkpoint(t.Context())
				} else if err == nil {
					_, err = job.Recover(t.Context())
				}
				return errors.Join(err, job.Close(t.Context()))
			}()
		})
	}
	wg.Wait()
	must(t, errs...)
	return all
}

// TestOtherNumberOfRanks: an array in blocks is loaded by more ranks, and by fewer.
func TestOtherNumberOfRanks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	want := make([]byte, 4800)
	for i := range want {
		want[i] = byte(i * 7)
	}
	spread(t, dir, 4, want, len(want))
	for _, n := range []int{1, 2, 3, 8} {
		if got := spread(t, dir, n, nil, len(want)); !bytes.Equal(got, want) {
			t.Errorf("%d ranks load something else", n)
		}
	}
}

// TestDamagedEpoch: the newest epoch that is whole is loaded, and Lost names the other one.
func TestDamagedEpoch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	job := open(t, dir)
	state := []byte("first")
	must(t, job.Protect(0, state))
	first, err := job.Checkpoint(t.Context())
	must(t, err)
	copy(state, "later")
	later, err := job.Checkpoint(t.Context())
	must(t, err, job.Close(t.Context()))
	images, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("epoch-%06d", later), "rank-*.ckpt"))
	must(t, err)
	if len(images) != 1 {
		t.Fatalf("images %q", images)
	}
	must(t, os.Truncate(images[0], 5000))

	job = open(t, dir)
	clear(state)
	must(t, job.Protect(0, state))
	epoch, err := job.Recover(t.Context())
	must(t, err)
	if epoch != first || string(state) != "first" || len(job.Lost()) != 1 {
		t.Errorf("epoch %d with %q, lost %q; want epoch %d with \"first\", one lost", epoch, state, job.Lost(), first)
	}
}

// TestLevels: with local directories of nodes the program says what an epoch survives. After the loss of two of four
// nodes it is loaded by as many ranks, and by another number; of what is lost the program is told.
func TestLevels(t *testing.T) {
	local := t.TempDir()
	t.Setenv("CKPT_LOCAL", local)
	t.Setenv("CKPT_NODE_SIZE", "1")
	want := make([]byte, 4800)
	for i := range want {
		want[i] = byte(i * 7)
	}
	for _, c := range []struct {
		level string
		n     int // ranks that load
		lose  []int
	}{
		{"1", 4, nil}, {"2", 4, []int{0, 2}}, {"2", 3, []int{1}}, {"3", 4, []int{1, 2}}, {"3", 3, []int{2}}, {"4", 4, []int{0, 1, 2, 3}}, {"4", 1, []int{0}},
	} {
		dir := filepath.Join(t.TempDir(), "ckpt")
		t.Setenv("CKPT_LEVEL", c.level)
		spread(t, dir, 4, want, len(want))
		for _, i := range c.lose {
			must(t, os.RemoveAll(filepath.Join(local, fmt.Sprintf("node%d", i))))
		}
		if got := spread(t, dir, c.n, nil, len(want)); !bytes.Equal(got, want) {
			t.Errorf("level %s: %d ranks load something else", c.level, c.n)
		}
	}
	t.Setenv("CKPT_LEVEL", "")
	job := open(t, filepath.Join(t.TempDir(), "ckpt"))
	must(t, job.Level(1))
	t.Setenv("CKPT_LOCAL", "")
	if err := open(t, filepath.Join(t.TempDir(), "ckpt")).Level(1); err == nil {
		t.Error("level 1 without a local directory: no error")
	}
}

// TestLaunchedAlone: without a launcher there is one rank.
func TestLaunchedAlone(t *testing.T) {
	for _, name := range []string{"PMI_RANK", "PMI_FD", "PMI_PORT", "PMIX_RANK", "PMIX_NAMESPACE", "SLURM_PROCID", "CKPT_RANK", "CKPT_SIZE"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	dir := filepath.Join(t.TempDir(), "ckpt")
	c, leave, err := regions.Launched(t.Context(), dir)
	must(t, err)
	all, err := c.Allgather([]byte("me"))
	must(t, err)
	if c.Size() != 1 || c.Rank() != 0 || len(all) != 1 || string(all[0]) != "me" {
		t.Errorf("rank %d of %d gathers %q", c.Rank(), c.Size(), all)
	}
	must(t, leave())
}
