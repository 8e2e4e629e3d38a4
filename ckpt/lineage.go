// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/internal/written"
)

// lineage is what this rank's next image may be written upon: its image in the last epoch that this rank knows to be
// committed. An epoch that was given up is never in it, so what changed for that one is written again for the next.
type lineage struct {
	mu sync.Mutex
	ancestor
}

// ancestor is an image of this rank in a committed epoch. The zero value stands for none.
type ancestor struct {
	epoch  int
	chain  int // how many epochs there are from the last full one on, with it
	parent *image.Parent
	mark   written.Mark // since when the kernel has noted writes; 0: it has not since that image
}

// maxPieces bounds in how many pieces an image may be scattered before one is written whole again: a restart reads them
// one by one. There may be as many as in a full image, and one more for each so many bytes.
const maxPieces = 8 << 10

// upon says upon what the next image is written; the zero ancestor: it is to be a full one.
func (j *Job) upon() ancestor {
	j.lineage.mu.Lock()
	a := j.lineage.ancestor
	j.lineage.mu.Unlock()
	if a.parent == nil || a.chain >= j.options.Full {
		return ancestor{}
	}
	if uint64(a.parent.Pieces()) > 64+a.parent.Bytes()/maxPieces {
		j.log.Info("a full epoch: the one before is in too many pieces", zap.Int("pieces", a.parent.Pieces()))
		return ancestor{}
	}
	if err := a.parent.Check(); err != nil {
		j.log.Warn("a full epoch: what it would be built upon is lost", zap.Int("parent", a.epoch), zap.Error(err))
		return ancestor{}
	}
	return a
}

// tracks tells whether images are written so that another one can be written upon them.
func (j *Job) tracks() bool { return j.options.Full > 1 }

// take notes what was written. own is this rank.
func (r *imageReport) take(sum *image.Summary, epoch, own int, upon ancestor) error {
	r.Bytes, r.Digest, r.Payload, r.Shared, r.Unread = sum.Bytes, sum.Digest.String(), sum.PayloadBytes, sum.SharedBytes, sum.UnreadBytes
	r.Same = sum.SameBytes
	r.next = ancestor{epoch: epoch, chain: upon.chain + 1, parent: sum.Parent}
	r.Upon = 0
	for _, s := range sum.Sources {
		n, rank, err := store.EpochOf(s)
		if err != nil {
			return fmt.Errorf("an image refers to %w", err)
		}
		if n != epoch {
			r.Needs, r.Upon = append(r.Needs, n), upon.epoch
		}
		if rank != own {
			r.Others = append(r.Others, rank)
		}
	}
	slices.Sort(r.Others)
	r.Others = slices.Compact(r.Others)
	return nil
}

// commitKnown is the commit on this rank, and what follows from it for the next image.
func (a *attempt) commitKnown() error {
	err := a.commit()
	if err == nil && a.image.next.parent != nil {
		l := &a.j.lineage
		l.mu.Lock()
		l.ancestor = a.image.next
		l.mu.Unlock()
		a.j.notes.mend()
	}
	return err
}

// inherit has the first epoch after a restart written upon the one that was continued, if it goes into the same
// directory. One in a local directory is not written upon: an earlier run's epochs are not raised any more.
func (j *Job) inherit(r *Restart, f *image.File, chain int) {
	if !j.tracks() || !sameDir(absolute(j.options.Dir), absolute(r.store.Dir())) {
		return
	}
	if j.options.Local != "" || !sameDir(filepath.Dir(f.Name()), r.store.EpochDir(r.manifest.Epoch)) {
		return
	}
	p, err := f.AsParent()
	if err != nil {
		j.log.Warn("the next epoch will be a full one", zap.Error(err))
		return
	}
	j.lineage.ancestor = ancestor{epoch: r.manifest.Epoch, chain: max(1, chain), parent: p}
}

// describeLineage says in the manifest which epochs this one needs.
func describeLineage(m *store.Manifest, all []imageReport) {
	for _, one := range all {
		m.Needs = append(m.Needs, one.Needs...)
		m.Parent = max(m.Parent, one.Upon)
	}
	slices.Sort(m.Needs)
	m.Needs = slices.Compact(m.Needs)
}
