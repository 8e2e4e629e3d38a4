// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/store"
)

func TestReadMeta(t *testing.T) {
	for _, c := range []struct {
		name, meta string
		words      []string // none: it is good
	}{
		{"good", `{"version":1,"rank":3}`, nil},
		{"later", `{"version":2,"libckpt":"9.8.7"}`, []string{"libckpt 9.8.7", "version 2", "libckpt " + Version, "version 1"}},
		{"none", `{}`, []string{"version 0"}},
		{"type", `{"version":"one"}`, []string{`section "meta"`, "version"}},
		{"array", `[]`, []string{`section "meta"`}},
	} {
		path := filepath.Join(t.TempDir(), c.name)
		if _, err := image.Write(t.Context(), path, image.Input{Meta: []byte(c.meta)}, image.Options{}); err != nil {
			t.Fatal(err)
		}
		f, err := image.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := readMeta(f)
		switch {
		case c.words == nil:
			if err != nil || m.Rank != 3 {
				t.Errorf("%s: %+v, %v", c.name, m, err)
			}
		case err == nil:
			t.Errorf("%s: read as %+v", c.name, m)
		default:
			names(t, err.Error(), append(c.words, path)...)
		}
		f.Close()
	}
}

// TestLazyByMemory: auto goes by how much memory is to be filled, not by what compression has made of it.
func TestLazyByMemory(t *testing.T) {
	r := &Restart{manifest: &store.Manifest{}}
	for _, c := range []struct {
		mode   string
		memory int
		word   byte
		lazy   bool
	}{
		{"auto", lazyFrom, 7, true}, // a file of some 4 MiB
		{"auto", lazyFrom - image.PageSize, 7, false},
		{"auto", lazyFrom, 0, false}, // zeros need no filling
		{"lazy", image.PageSize, 7, true},
	} {
		path := filepath.Join(t.TempDir(), "image")
		region := image.Region{Start: 1 << 40, End: 1<<40 + uint64(c.memory), Copied: image.CopiedAt(1<<40, bytes.Repeat([]byte{c.word}, c.memory))}
		sum, err := image.Write(t.Context(), path, image.Input{Meta: []byte("{}"), Regions: []image.Region{region}},
			image.Options{Compress: image.CompressSnappy, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		f, err := image.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if sum.Bytes >= lazyFrom/2 || f.MemoryBytes() != int64(sum.PayloadBytes) {
			t.Errorf("%d bytes of file, %d of memory, written from %d", sum.Bytes, f.MemoryBytes(), sum.PayloadBytes)
		}
		if lazy := r.wantsLazy(launch.Options{Restarts: c.mode})(f.MemoryBytes()); lazy != c.lazy {
			t.Errorf("%s, %d bytes of %d: lazy %v", c.mode, c.memory, c.word, lazy)
		}
		f.Close()
	}
	if r.wantsLazy(launch.Options{Restarts: "eager"}) != nil {
		t.Error("eager is lazy")
	}
}

func TestOpenRestart(t *testing.T) {
	h := newTestHost(t)
	dir := filepath.Join(t.TempDir(), "ckpt")
	j := start(t, h, testOptions(dir))
	if _, err := OpenRestart(dir, true); !errors.Is(err, store.ErrNone) {
		t.Errorf("without an epoch: %v", err)
	}
	checkpoint(t, j)
	j.meta.CPU = append(j.meta.CPU, "warp9")
	checkpoint(t, j)
	if _, err := OpenRestart(dir+"@3", true); !errors.Is(err, store.ErrNone) {
		t.Errorf("an epoch that is not there: %v", err)
	}
	r, err := OpenRestart(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.open(0); err == nil {
		t.Error("the processor has a feature that does not exist")
	} else {
		names(t, err.Error(), "warp9", j.store.ImagePath(2, 0), "restart on a machine like")
	}
	if err := r.CheckRanks(1); err != nil {
		t.Error(err)
	}
	if err := r.CheckRanks(2); err == nil {
		t.Error("two processes of a program without MPI")
	} else {
		names(t, err.Error(), "epoch 2", "2 processes", "without mpiexec")
	}
	// A damaged image: the message says which epoch to take instead.
	path := j.store.ImagePath(2, 0)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	var corrupt *image.CorruptError
	if _, _, err := r.open(0); !errors.As(err, &corrupt) {
		t.Errorf("a damaged image: %v", err)
	} else {
		names(t, r.advise(err).Error(), path, "--restart "+dir+"@1")
	}
	if r, err = OpenRestart(dir+"@1", true); err != nil {
		t.Fatal(err)
	}
	f, _, err := r.open(0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestCheckRanks(t *testing.T) {
	r := &Restart{manifest: &store.Manifest{Epoch: 5, Ranks: 4, MPI: store.MPI{Name: "mpich"}}}
	if err := r.CheckRanks(4); err != nil {
		t.Error(err)
	}
	for _, n := range []int{0, 1, 3, 5} {
		if err := r.CheckRanks(n); err == nil {
			t.Errorf("%d ranks in place of 4", n)
		} else {
			names(t, err.Error(), "epoch 5 has 4 ranks", "mpiexec -n 4")
		}
	}
}

// TestRestartOfTasks: as many processes are needed as there were, however many ranks they have.
func TestRestartOfTasks(t *testing.T) {
	r := &Restart{manifest: &store.Manifest{Epoch: 3, Ranks: 64, Processes: 4, MPI: store.MPI{Name: "tmpi"}}}
	if err := r.CheckRanks(4); err != nil || r.Ranks() != 4 {
		t.Errorf("%v, %d processes", err, r.Ranks())
	}
	for _, n := range []int{1, 64} {
		if err := r.CheckRanks(n); err == nil || !strings.Contains(err.Error(), "4 processes (with 64 ranks)") {
			t.Errorf("%d: %v", n, err)
		}
	}
}
