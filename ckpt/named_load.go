// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/regions"
)

// LoadNamed puts the saved state where the program wants it: all of it, on all ranks, or nothing is touched on any.
// Collective, after Look.
func (j *Job) LoadNamed(list []Protected) error {
	s, err := j.source()
	if err == nil {
		err = j.checkAll(s, list)
	}
	if err = j.together(err); err != nil {
		return err
	}
	_, err = await(j.runtime.Progress, func() (struct{}, error) {
		for i := range list {
			if err := j.load(s, &list[i]); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	if err = j.together(err); err != nil {
		return fmt.Errorf("%w; what is protected has neither its old content nor that of epoch %d", err, s.manifest.Epoch)
	}
	return nil
}

// LoadOne puts one piece where the program wants it. Not collective, after Look.
func (j *Job) LoadOne(p Protected) error {
	s, err := j.source()
	if err == nil {
		err = j.checkOne(s, &p)
	}
	if err == nil {
		err = j.load(s, &p)
	}
	return err
}

// SavedBytes is the size of a piece of this rank's. Not collective, after Look.
func (j *Job) SavedBytes(id int) (uint64, error) {
	s, err := j.source()
	if err != nil {
		return 0, err
	}
	if j.changed(s) {
		if n := s.states[0].Find(id); n != nil && n.Block.Replicated() {
			return n.Bytes, nil
		}
		return 0, fmt.Errorf("%w, so the program says itself how much of region %d each rank takes (MPIX_Checkpoint_distribute)", j.errChanged(s), id)
	}
	n := s.states[j.group.rank()].Find(id)
	if n == nil {
		return 0, j.errUnknown(s, id)
	}
	return n.Bytes, nil
}

func (j *Job) source() (*source, error) {
	n := j.regional.named
	switch {
	case n.saved:
		return nil, errors.New("a checkpoint was made since the start: what was saved before can be loaded only before the first one")
	case !n.looked:
		return nil, errors.New("nobody has looked what is saved: call MPIX_Checkpoint_recover first, with NULL when nothing is to be loaded yet")
	case n.from == nil:
		return nil, ErrNoneSaved
	}
	return n.from, nil
}

// changed tells whether the job has another number of ranks than the epoch.
func (j *Job) changed(s *source) bool { return s.manifest.Ranks != j.group.size() }

func (j *Job) errChanged(s *source) error {
	return fmt.Errorf("epoch %d was saved by %d ranks and there are %d now", s.manifest.Epoch, s.manifest.Ranks, j.group.size())
}

func (j *Job) errUnknown(s *source, id int) error {
	var have []string
	for _, r := range s.states[j.group.rank()].Regions {
		have = append(have, fmt.Sprint(r.ID))
	}
	what := "none"
	if len(have) > 0 {
		what = strings.Join(have[:min(len(have), 20)], ", ")
	}
	return fmt.Errorf("epoch %d has no region %d of rank %d: it has %s", s.manifest.Epoch, id, j.group.rank(), what)
}

// checkAll says why the saved state and what is protected are not the same pieces.
func (j *Job) checkAll(s *source, list []Protected) error {
	for i := range list {
		if err := j.checkOne(s, &list[i]); err != nil {
			return err
		}
	}
	for rank, state := range s.states {
		if !j.changed(s) && rank != j.group.rank() {
			continue
		}
		for _, r := range state.Regions {
			if !slices.ContainsFunc(list, func(p Protected) bool { return p.ID == r.ID }) {
				return fmt.Errorf("region %d of %d bytes is in epoch %d and is not protected now: protect it, or load what is wanted with MPIX_Checkpoint_recover_one", r.ID, r.Bytes, s.manifest.Epoch)
			}
		}
	}
	return nil
}

func (j *Job) checkOne(s *source, p *Protected) error {
	if j.changed(s) {
		return j.checkSpread(s, p)
	}
	r := s.states[j.group.rank()].Find(p.ID)
	switch {
	case r == nil:
		return j.errUnknown(s, p.ID)
	case r.Bytes != uint64(len(p.Data)):
		return fmt.Errorf("region %d was saved with %d bytes and is protected with %d: ask MPIX_Checkpoint_saved for the size, and protect it anew", p.ID, r.Bytes, len(p.Data))
	case r.Block != nil && p.Block != nil && !r.Block.Same(p.Block):
		return fmt.Errorf("region %d was saved as part of an array of %v elements of %d bytes, and is now one of %v of %d", p.ID, r.Block.Whole, r.Block.Element, p.Block.Whole, p.Block.Element)
	}
	return nil
}

// checkSpread is checkOne where ranks do not take what ranks had.
func (j *Job) checkSpread(s *source, p *Protected) error {
	if p.Block == nil {
		return fmt.Errorf("%w: region %d is not distributed, so it is not known which rank takes it: start %d ranks, or say how it is distributed (MPIX_Checkpoint_distribute)", j.errChanged(s), p.ID, s.manifest.Ranks)
	}
	blocks := make([]*regions.Block, s.manifest.Ranks)
	for rank := range blocks {
		r := s.states[rank].Find(p.ID)
		switch {
		case r == nil:
			return fmt.Errorf("%w, and region %d is not in that of rank %d", j.errChanged(s), p.ID, rank)
		case r.Block == nil:
			return fmt.Errorf("%w: region %d was not distributed when it was saved: start %d ranks", j.errChanged(s), p.ID, s.manifest.Ranks)
		case !r.Block.Same(p.Block):
			return fmt.Errorf("region %d of rank %d was saved as part of an array of %v elements of %d bytes, and is now one of %v of %d", p.ID, rank, r.Block.Whole, r.Block.Element, p.Block.Whole, p.Block.Element)
		case p.Block.Replicated() && r.Bytes != uint64(len(p.Data)):
			return fmt.Errorf("region %d was saved with %d bytes by rank %d and is protected with %d", p.ID, r.Bytes, rank, len(p.Data))
		}
		blocks[rank] = r.Block
	}
	if p.Block.Replicated() {
		return nil
	}
	if err := regions.Cover(blocks); err != nil {
		return fmt.Errorf("region %d of epoch %d: %w", p.ID, s.manifest.Epoch, err)
	}
	return nil
}

func (j *Job) load(s *source, p *Protected) error {
	switch {
	case !j.changed(s):
		return s.read(j.group.rank(), p.ID, 0, p.Data)
	case p.Block.Replicated():
		return s.read(0, p.ID, 0, p.Data)
	}
	for rank := range s.manifest.Ranks {
		err := p.Block.Pieces(s.states[rank].Find(p.ID).Block, func(piece regions.Piece) error {
			return s.read(rank, p.ID, piece.From, p.Data[piece.To:piece.To+piece.Bytes])
		})
		if f := s.files[rank]; f != nil && len(s.files) > maxOpenImages {
			f.Close()
			delete(s.files, rank)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	// maxOpenImages bounds the images that are open at a time while arrays are spread anew.
	maxOpenImages = 64
	// readPart is what one goroutine reads at a time, and loaders are how many there are: digests and decompression
	// take a processor.
	readPart = 4 << 20
	loaders  = 4
)

// read fills p with the bytes of a region of a rank from offset on.
func (s *source) read(rank, id int, offset uint64, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	f, err := s.file(rank)
	if err != nil {
		return err
	}
	at := s.states[rank].Find(id).At + offset
	if len(p) <= readPart {
		return f.ReadAt(p, at)
	}
	return readParallel(f, at, p)
}

func readParallel(f *image.File, at uint64, p []byte) error {
	type part struct{ from, to int }
	parts := make(chan part)
	errs := make([]error, loaders)
	var wg sync.WaitGroup
	for i := range loaders {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for q := range parts {
				if errs[i] == nil {
					errs[i] = f.ReadAt(p[q.from:q.to], at+uint64(q.from))
				}
			}
		}()
	}
	for from := 0; from < len(p); from += readPart {
		parts <- part{from, min(from+readPart, len(p))}
	}
	close(parts)
	wg.Wait()
	return errors.Join(errs...)
}
