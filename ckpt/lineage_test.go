// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/store"
)

// TestUpon: an image is written upon the last one that was committed, until there are as many as --full says, or what it
// would refer to is gone.
func TestUpon(t *testing.T) {
	dir := t.TempDir()
	j := &Job{options: launch.Options{Full: 3}, log: zap.NewNop()}
	write := func(epoch int) (*attempt, image.Summary) {
		t.Helper()
		upon := j.upon()
		path := filepath.Join(dir, filepath.Base((&store.Store{}).EpochDir(epoch)), store.ImageName(0))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		sum, err := image.Write(t.Context(), path, image.Input{Meta: []byte("{}"), Parent: upon.parent,
			Regions: []image.Region{{Start: 1 << 40, End: 1<<40 + 4096, Copied: image.CopiedAt(1<<40, bytes.Repeat([]byte{7}, 4096))}}},
			image.Options{Track: j.tracks(), NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		a := &attempt{j: j}
		if err := a.image.take(&sum, epoch, 0, upon); err != nil {
			t.Fatal(err)
		}
		return a, sum
	}
	commit := func(a *attempt) { j.lineage.ancestor = a.image.next }
	for _, c := range []struct {
		epoch, upon int
		fails       bool
	}{
		{1, 0, false}, {2, 1, false}, {3, 1, true}, {4, 1, true}, // upon 2, whose one page is in 1
		{5, 1, false}, {6, 0, false}, {7, 6, true}, {8, 6, false},
	} {
		a, sum := write(c.epoch)
		got := 0
		if len(a.image.Needs) > 0 {
			got = a.image.Needs[0]
		}
		if got != c.upon || len(sum.Sources) > 1 {
			t.Errorf("epoch %d refers to %v", c.epoch, a.image.Needs)
		}
		if !c.fails {
			commit(a)
		}
	}
	// Epoch 8 is the second of its chain. What it needs is lost.
	if err := os.RemoveAll(filepath.Join(dir, "epoch-000006")); err != nil {
		t.Fatal(err)
	}
	if a, sum := write(9); len(a.image.Needs) > 0 || sum.PayloadBytes != 4096 {
		t.Errorf("epoch 9 refers to %v", a.image.Needs)
	}
	j.options.Full = 1
	if a, _ := write(10); len(a.image.Needs) > 0 || a.image.next.parent != nil {
		t.Errorf("with full epochs only: %+v", a.image)
	}
}
