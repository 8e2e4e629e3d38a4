// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/levels"
)

// OpenImage opens the image of a rank and checks that it is the one that the manifest lists: length,
// and the digest that covers all of it. What it does not read is the content of the pages; reading
// them checks them.
func (s *Store) OpenImage(m *Manifest, rank int) (*image.File, error) {
	return s.OpenImageKeeping(m, rank, nil)
}

// OpenImageKeeping is OpenImage by image.OpenKeeping.
func (s *Store) OpenImageKeeping(m *Manifest, rank int, keep func(image.SectionInfo) bool) (*image.File, error) {
	if rank < 0 || rank >= len(m.Images) {
		return nil, fmt.Errorf("%s: epoch %d has %d ranks, no rank %d", s.dir, m.Epoch, len(m.Images), rank)
	}
	im := &m.Images[rank]
	path := s.PathOf(m, im.File)
	f, err := openAs(im, path, keep)
	if err != nil {
		return nil, elsewhere(m, im.File, err)
	}
	if s.local != "" { // what it refers to may be here and there
		f.FindSources(s.pathOfSource)
	}
	return f, nil
}

// pathOfSource is where an image is that another one refers to; "": it is not known.
func (s *Store) pathOfSource(source image.Source) string {
	n, _, err := EpochOf(source)
	if err != nil {
		return ""
	}
	m, err := s.Manifest(n)
	if err != nil {
		return ""
	}
	return s.PathOf(m, path.Base(source.Name))
}

// openAs opens an image that must be the one that the manifest lists.
func openAs(im *Image, path string, keep func(image.SectionInfo) bool) (*image.File, error) {
	f, err := image.OpenKeeping(path, keep)
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

// ElsewhereError says on which node an image is that is not here.
type ElsewhereError struct {
	Err  error
	what string
}

func (e *ElsewhereError) Error() string { return e.Err.Error() + ": " + e.what }
func (e *ElsewhereError) Unwrap() error { return e.Err }

// elsewhere says where an image is that is not here.
func elsewhere(m *Manifest, file string, err error) error {
	if errors.Is(err, fs.ErrNotExist) && m.Objects != nil {
		return fmt.Errorf("%w: epoch %d is in the object store %s: a restart gets it from there, and `ckptctl copy %s@%d DIR` does",
			err, m.Epoch, m.Objects.Place, m.Objects.Place, m.Epoch)
	}
	if m.Levels == nil || m.Levels.Has(levels.Shared) || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for i := range m.Levels.Nodes {
		n := &m.Levels.Nodes[i]
		for _, f := range n.Files {
			if f.Name == file {
				return &ElsewhereError{Err: err, what: fmt.Sprintf("epoch %d is at level %d: %s is in the local directory of node %s; there, `CKPT_LOCAL=%s ckptctl ...` reads it",
					m.Epoch, m.Level, file, n.Name, m.Levels.Local)}
			}
		}
	}
	return err
}

// VerifyCopy is VerifyImage for a copy of the image.
func (s *Store) VerifyCopy(ctx context.Context, m *Manifest, rank int, path string, quick bool) error {
	f, err := openAs(&m.Images[rank], path, nil)
	if err != nil {
		return err
	}
	if !quick {
		err = f.VerifyOwn(ctx) // what it refers to has copies of its own
	}
	return errors.Join(err, f.Close())
}

// RankOf is the number of the image with that file; -1: none has it.
func (m *Manifest) RankOf(file string) int {
	return slices.IndexFunc(m.Images, func(im Image) bool { return im.File == file })
}

// VerifyImage checks the image of one rank, and what it refers to in others: all of it, or, when quick, all but the
// content of pages.
func (s *Store) VerifyImage(ctx context.Context, m *Manifest, rank int, quick bool,
	progress func(done, total uint64)) error {
	f, err := s.OpenImage(m, rank)
	if err != nil {
		return err
	}
	err = f.CheckSources()
	if err == nil && !quick {
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
