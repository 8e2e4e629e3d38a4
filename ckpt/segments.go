// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"errors"
	"fmt"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/shm"
)

// readSegments reads what the image of a rank says of shared segments.
func readSegments(f *image.File, rank, ranks int) ([]shm.Saved, error) {
	b, err := f.Section(shm.Section)
	if errors.Is(err, image.ErrNoSection) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	saved, err := shm.Decode(b, rank, ranks)
	if err != nil {
		return nil, fmt.Errorf("%s: section %q: %w", f.Name(), shm.Section, err)
	}
	return saved, nil
}

// placeSegments finds shared segments whose processes are on several nodes. Collective.
func (j *Job) placeSegments(f *image.File, agree func(error) error, gather func([]byte) ([][]byte, error)) error {
	saved, err := readSegments(f, j.meta.Rank, j.meta.Ranks)
	if err := agree(err); err != nil {
		return err
	}
	s := shm.Restore(saved, j.meta.Rank)
	j.remade = s
	words, err := gather(s.Tell())
	if err != nil {
		return err
	}
	return agree(s.Compare(words))
}

// remakeSegments has each shared segment made by one rank, and opened by its others. Collective.
func (j *Job) remakeSegments(agree func(error) error) error {
	defer j.remade.Unname() // whatever becomes of the others
	if err := agree(j.remade.Make()); err != nil {
		return err
	}
	return agree(j.remade.Open())
}
