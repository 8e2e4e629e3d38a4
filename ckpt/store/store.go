// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrNone is wrapped by every error that means: there is no committed checkpoint of that kind.
var ErrNone = errors.New("no committed checkpoint")

// ErrExists is wrapped by Begin when the epoch is there already, committed or not.
var ErrExists = errors.New("the epoch exists already")

// ErrSpec is wrapped when a text is neither DIR nor DIR@EPOCH.
var ErrSpec = errors.New("want DIR or DIR@EPOCH")

// MaxEpoch is the largest number of an epoch.
const MaxEpoch = 1<<31 - 1

const manifestName = "manifest.json"

// Store is a checkpoint directory. It holds no state but the path, so any number of them, in any
// number of processes, may look at one directory.
type Store struct{ dir string }

// Open opens an existing directory.
func Open(dir string) (*Store, error) {
	st, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint directory: %w", err)
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("checkpoint directory %s: not a directory", dir)
	}
	return &Store{dir}, nil
}

// Create opens a directory and makes it, with mode 0700, when it is not there.
func Create(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("checkpoint directory: %w", err)
	}
	return Open(dir)
}

// Resolve understands DIR and DIR@EPOCH: it opens the directory and returns the epoch, or the newest
// committed one. The error wraps ErrNone when that epoch is not committed.
func Resolve(spec string) (*Store, int, error) {
	dir, epoch, err := SplitSpec(spec)
	if err != nil {
		return nil, 0, err
	}
	s, err := Open(dir)
	if err != nil {
		return nil, 0, err
	}
	if epoch == 0 {
		epoch, err = s.Newest()
		return s, epoch, err
	}
	_, err = s.Manifest(epoch)
	return s, epoch, err
}

// SplitSpec splits DIR[@EPOCH]; epoch is 0 when none is given. A directory whose own name ends in @
// and digits is written with a slash at its end.
func SplitSpec(spec string) (dir string, epoch int, err error) {
	i := strings.LastIndexByte(spec, '@')
	if i < 0 || strings.Contains(spec[i:], "/") {
		return spec, 0, nil
	}
	n, err := strconv.Atoi(spec[i+1:])
	if err != nil {
		if _, err := os.Stat(spec); err == nil {
			return spec, 0, nil // a directory with an @ in its name
		}
	}
	if err != nil || n < 1 || n > MaxEpoch || i == 0 {
		return "", 0, fmt.Errorf("%q: %w, with the number of an epoch from 1 on (`ckptctl ls DIR` lists them)",
			spec, ErrSpec)
	}
	return spec[:i], n, nil
}

// Dir is the directory.
func (s *Store) Dir() string { return s.dir }

// EpochDir is the directory of an epoch, whether or not it exists.
func (s *Store) EpochDir(epoch int) string {
	return filepath.Join(s.dir, fmt.Sprintf("epoch-%06d", epoch))
}

// ImageName is the name of a rank's image in the directory of its epoch.
func ImageName(rank int) string { return fmt.Sprintf("rank-%05d.ckpt", rank) }

// ImagePath is where the image of a rank is, or is to be written.
func (s *Store) ImagePath(epoch, rank int) string {
	return filepath.Join(s.EpochDir(epoch), ImageName(rank))
}

// Epoch is what Epochs tells of one epoch.
type Epoch struct {
	Number   int
	Dir      string
	Changed  time.Time // of the manifest or, when there is none, of the directory
	Manifest *Manifest // nil unless the epoch is committed and the manifest is sound
	Err      error     // why a manifest that is there cannot be used
}

// Committed tells whether the epoch can be restarted from, as far as its manifest tells.
func (e *Epoch) Committed() bool { return e.Manifest != nil }

// Epochs lists all epochs, committed or not, in ascending order.
func (s *Store) Epochs() ([]Epoch, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint directory: %w", err)
	}
	var list []Epoch
	for _, d := range entries {
		n, ok := epochNumber(d.Name())
		if !ok || !d.IsDir() {
			continue
		}
		e := Epoch{Number: n, Dir: s.EpochDir(n)}
		m, err := s.Manifest(n)
		switch {
		case err == nil:
			e.Manifest, e.Changed = m, m.Time
		case !errors.Is(err, ErrNone):
			e.Err = err
		}
		if m == nil {
			if st, err := d.Info(); err == nil {
				e.Changed = st.ModTime()
			}
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b Epoch) int { return a.Number - b.Number })
	return list, nil
}

// epochNumber reads the name of an epoch's directory; only the form that EpochDir writes counts.
func epochNumber(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "epoch-")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > MaxEpoch || fmt.Sprintf("%06d", n) != digits {
		return 0, false
	}
	return n, true
}

// Newest is the number of the newest committed epoch. It wraps ErrNone when there is none. When the
// newest manifest is damaged it fails and says which epoch to name instead: an older epoch is never
// taken in silence.
func (s *Store) Newest() (int, error) {
	list, err := s.Epochs()
	if err != nil {
		return 0, err
	}
	for i := len(list) - 1; i >= 0; i-- {
		if e := &list[i]; e.Committed() {
			return e.Number, nil
		} else if e.Err != nil {
			for i--; i >= 0; i-- {
				if list[i].Committed() {
					return 0, fmt.Errorf("%w; the newest epoch before it is %s@%d", e.Err, s.dir, list[i].Number)
				}
			}
			return 0, fmt.Errorf("%w; no other epoch is committed", e.Err)
		}
	}
	return 0, fmt.Errorf("%s: %w (%d incomplete)", s.dir, ErrNone, len(list))
}

// Next is a number for the next epoch: one more than any there is, committed or not.
func (s *Store) Next() (int, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return 0, fmt.Errorf("checkpoint directory: %w", err)
	}
	next := 1
	for _, d := range entries {
		if n, ok := epochNumber(d.Name()); ok {
			next = max(next, n+1)
		}
	}
	if next > MaxEpoch {
		return 0, fmt.Errorf("%s: the numbers of epochs are used up", s.dir)
	}
	return next, nil
}

// Manifest reads the manifest of an epoch. It wraps ErrNone when the epoch is not committed, and is a
// *image.CorruptError when the manifest is damaged.
func (s *Store) Manifest(epoch int) (*Manifest, error) {
	path := filepath.Join(s.EpochDir(epoch), manifestName)
	m, err := readManifest(path)
	if errors.Is(err, fs.ErrNotExist) {
		what := "is not there"
		if _, err := os.Stat(s.EpochDir(epoch)); err == nil {
			what = "is incomplete (it has no manifest)"
		}
		return nil, fmt.Errorf("%s: %w: epoch %d %s", s.dir, ErrNone, epoch, what)
	}
	if err == nil && m.Epoch != epoch {
		err = corruptManifest(path, 0, "epoch", epoch, m.Epoch)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}
