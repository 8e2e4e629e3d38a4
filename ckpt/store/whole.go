// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/libckpt/libckpt/ckpt/image"
)

// Whole tells whether all files of a committed epoch are there with their lengths, those of the epochs that it needs
// included. It opens no image. The error names the first file, or epoch, that is lost.
func (s *Store) Whole(m *Manifest) error {
	if err := s.allThere(m); err != nil {
		return err
	}
	return s.CheckNeeds(m)
}

// CheckNeeds is Whole for the epochs that an epoch needs, without its own files.
func (s *Store) CheckNeeds(m *Manifest) error {
	for _, n := range m.Needs {
		needed, err := s.Manifest(n)
		if err == nil {
			err = s.allThere(needed)
		}
		if err != nil {
			return fmt.Errorf("epoch %d has content in epoch %d, which is lost: %w", m.Epoch, n, err)
		}
	}
	return nil
}

// allThere looks at the files in this directory. Those that may be on nodes cannot be seen from here.
func (s *Store) allThere(m *Manifest) error {
	if why := m.Lost(); why != "" {
		return errors.New(why)
	}
	if m.Levels != nil || m.Objects != nil {
		return nil
	}
	for i := range m.Images {
		im := &m.Images[i]
		path := s.PathOf(m, im.File)
		st, err := os.Stat(path)
		if err != nil {
			return err
		}
		if st.Size() != im.Bytes {
			return fmt.Errorf("%s has %d bytes, expected %d", path, st.Size(), im.Bytes)
		}
	}
	return nil
}

// EpochAt is the epoch whose folder has the file; 0: none of this directory.
func (s *Store) EpochAt(path string) int {
	n, _ := epochNumber(filepath.Base(filepath.Dir(path)))
	return n
}

// NewestWhole is the newest committed epoch before the given one of which nothing is lost. It is not the damaged one,
// nor one that needs that; 0: none is known to be damaged. The error wraps ErrNone when there is none.
func (s *Store) NewestWhole(before, damaged int) (*Manifest, error) {
	list, err := s.Epochs()
	if err != nil {
		return nil, err
	}
	for i := len(list) - 1; i >= 0; i-- {
		e := &list[i]
		if e.Number >= before || !e.Committed() || e.Number == damaged || slices.Contains(e.Manifest.Needs, damaged) {
			continue
		}
		if s.Whole(e.Manifest) == nil {
			return e.Manifest, nil
		}
	}
	return nil, fmt.Errorf("%s: %w that is whole, before epoch %d", s.dir, ErrNone, before)
}

// EpochOf is the epoch, and the rank, of an image that another one refers to.
func EpochOf(source image.Source) (epoch, rank int, err error) {
	if folder, file, ok := strings.Cut(strings.TrimPrefix(source.Name, "../"), "/"); ok {
		n, is := epochNumber(folder)
		digits := strings.TrimSuffix(strings.TrimPrefix(file, "rank-"), ".ckpt")
		if rank, err := strconv.Atoi(digits); is && err == nil && ImageName(rank) == file {
			return n, rank, nil
		}
	}
	return 0, 0, errors.New(source.Name + " is not the image of an epoch")
}
