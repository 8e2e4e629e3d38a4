// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/libckpt/libckpt/ckpt/image"
)

// OpenImage opens the image of a rank and checks that it is the one that the manifest lists: length,
// and the digest that covers all of it. What it does not read is the content of the pages; reading
// them checks them.
func (s *Store) OpenImage(m *Manifest, rank int) (*image.File, error) {
	if rank < 0 || rank >= len(m.Images) {
		return nil, fmt.Errorf("%s: epoch %d has %d ranks, no rank %d", s.dir, m.Epoch, len(m.Images), rank)
	}
	im := &m.Images[rank]
	path := filepath.Join(s.EpochDir(m.Epoch), im.File)
	f, err := image.Open(path)
	if err != nil {
		return nil, err
	}
	bad := func(what string, expected, found any) (*image.File, error) {
		_ = f.Close()
		return nil, &image.CorruptError{File: path, Section: "file", What: what,
			Expected: fmt.Sprintf("%v (manifest)", expected), Found: fmt.Sprint(found)}
	}
	if f.Bytes() != im.Bytes {
		return bad("length", im.Bytes, f.Bytes())
	}
	if f.Digest().String() != im.Digest {
		return bad("digest", im.Digest, f.Digest())
	}
	return f, nil
}

// VerifyImage checks the image of one rank: all of it, or, when quick, all but the content of pages.
func (s *Store) VerifyImage(ctx context.Context, m *Manifest, rank int, quick bool,
	progress func(done, total uint64)) error {
	f, err := s.OpenImage(m, rank)
	if err != nil {
		return err
	}
	if !quick {
		err = f.Verify(ctx, progress)
	}
	return errors.Join(err, f.Close())
}

// Check checks an epoch quickly: the manifest, and of every image length, metadata and digest. The
// error joins what is wrong with each rank.
func (s *Store) Check(ctx context.Context, epoch int) error { return s.verify(ctx, epoch, true, nil) }

// Verify checks every byte of an epoch. progress, which may be nil, is told the bytes done of one
// rank's image after the other.
func (s *Store) Verify(ctx context.Context, epoch int, progress func(rank int, done, total uint64)) error {
	return s.verify(ctx, epoch, false, progress)
}

func (s *Store) verify(ctx context.Context, epoch int, quick bool,
	progress func(rank int, done, total uint64)) error {
	m, err := s.Manifest(epoch)
	if err != nil {
		return err
	}
	var errs []error
	for rank := range m.Images {
		var p func(done, total uint64)
		if progress != nil {
			p = func(done, total uint64) { progress(rank, done, total) }
		}
		if err := s.VerifyImage(ctx, m, rank, quick, p); err != nil {
			errs = append(errs, fmt.Errorf("rank %d: %w", rank, err))
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return errors.Join(errs...)
}
