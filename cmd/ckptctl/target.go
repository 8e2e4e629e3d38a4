// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/libckpt/libckpt/ckpt/store"
)

// target is what DIR[@EPOCH] names: a committed epoch of a directory.
type target struct {
	store    *store.Store
	manifest *store.Manifest
}

func openTarget(spec string) (*target, error) {
	s, n, err := store.Resolve(spec)
	if err != nil {
		return nil, err
	}
	m, err := s.Manifest(n)
	if err != nil {
		return nil, err
	}
	return &target{s, m}, nil
}

func (t *target) String() string { return fmt.Sprintf("%s@%d", t.store.Dir(), t.manifest.Epoch) }

func (t *target) path() string { return t.store.EpochDir(t.manifest.Epoch) }

// isImageFile tells whether the argument names a file rather than a directory of checkpoints.
func isImageFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}
