// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/libckpt/libckpt/internal/fault"
	"github.com/libckpt/libckpt/internal/regular"
)

// fencedSuffix is at the end of the name of an epoch that Fence took away.
const fencedSuffix = ".fenced"

// Fence renames the folders of all incomplete epochs. A new owner of the directory calls it because the former
// owner may still live, stopped in the middle of a commit: it then renames its manifest in a folder that is no
// epoch any more, and the commit fails. Numbers of such epochs are not used again, since ranks of the former job
// may still be writing images there. After an error some folders may be renamed; call it again.
func (s *Store) Fence() error {
	fail := func(err error) error { return fmt.Errorf("take incomplete epochs away in %s: %w", s.dir, err) }
	if err := s.Settle(); err != nil {
		return err
	}
	list, err := s.Epochs()
	if err != nil {
		return err
	}
	for i := range list {
		e := &list[i]
		if e.Committed() || e.Err != nil {
			continue
		}
		if err := fault.Point("store.fence.rename"); err != nil {
			return fail(err)
		}
		away := e.Dir + fencedSuffix
		if err := os.Rename(e.Dir, away); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fail(err)
		}
		// Committed in the last moment: then it counts, and stays.
		if _, err := os.Lstat(filepath.Join(away, manifestName)); err == nil {
			if err := os.Rename(away, e.Dir); err != nil {
				return fail(err)
			}
			continue
		}
		_ = os.RemoveAll(away) // tried again by retireFenced
		if err := os.Mkdir(away, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fail(err)
		}
	}
	if err := syncDir(s.dir, "store.fence.syncdir"); err != nil {
		return fail(err)
	}
	return nil
}

// Settle commits the epochs whose manifests have their name and are still locked: the former owner was on its last
// step, and it, or a child of it, may hold the lock for long. A new owner calls Settle before it chooses an epoch;
// otherwise an epoch could appear later that is newer than the chosen one.
func (s *Store) Settle() error {
	fail := func(err error) error { return fmt.Errorf("take over the last epoch in %s: %w", s.dir, err) }
	list, err := s.Epochs()
	if err != nil {
		return err
	}
	for i := range list {
		final := filepath.Join(list[i].Dir, manifestName)
		is, err := pending(final)
		if err != nil {
			return fail(err)
		}
		if !is {
			continue
		}
		p, err := regular.ReadFile(final, maxManifest)
		if err != nil {
			return fail(err)
		}
		temp, err := writeTemp(final, p, "store.settle")
		if err != nil {
			return fail(err)
		}
		if err := os.Rename(temp, final); err != nil { // the same, in a file that nobody has locked
			_ = os.Remove(temp)
			return fail(err)
		}
		if err := errors.Join(syncDir(list[i].Dir, "store.settle.syncmanifest"), syncDir(s.dir, "store.settle.syncdir")); err != nil {
			return fail(err)
		}
	}
	return nil
}

// retireFenced removes what Fence took away below a committed epoch, whose number reserves theirs.
func (s *Store) retireFenced(newest int) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return
	}
	for _, d := range entries {
		name, ok := strings.CutSuffix(d.Name(), fencedSuffix)
		if n, is := epochNumber(name); ok && is && n < newest && s.mayChange() == nil {
			_ = os.RemoveAll(filepath.Join(s.dir, d.Name())) // it counts for nothing; next time again
		}
	}
}
