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

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/internal/regular"
)

// ErrNone is wrapped by every error that means: there is no committed checkpoint of that kind.
var ErrNone = errors.New("no committed checkpoint")

// ErrExists is wrapped by Begin when the epoch is there already, committed or not.
var ErrExists = errors.New("the epoch exists already")

// ErrSpec is wrapped when a text is neither DIR nor DIR@EPOCH.
var ErrSpec = errors.New("want DIR or DIR@EPOCH")

// ErrForeign is wrapped by Create when the directory has files in it, and none that libckpt makes.
var ErrForeign = errors.New("is not empty, and nothing in it is a checkpoint's")

// MaxEpoch is the largest number of an epoch.
const MaxEpoch = 1<<31 - 1

const manifestName = "manifest.json"

// Store is a checkpoint directory. It holds no state but the path, so any number of them, in any
// number of processes, may look at one directory.
type Store struct {
	dir   string
	check func() error // of Guard; nil: nobody is asked
	local string       // of WithLocal
}

// Guard returns a store that calls check before each step that others see: making, committing and removing an
// epoch. If check returns an error, the directory belongs to another job; the step is not made and returns that
// error.
func (s *Store) Guard(check func() error) *Store { return &Store{s.dir, check, s.local} }

// WithLocal returns a store that finds images in a local directory, too: that of this node, or the one in which
// those of several nodes are. "" means none.
func (s *Store) WithLocal(dir string) *Store { return &Store{s.dir, s.check, dir} }

func (s *Store) mayChange() error {
	if s.check == nil {
		return nil
	}
	return s.check()
}

// At is a directory that may not be there yet.
func At(dir string) *Store { return &Store{dir: dir} }

// Open opens an existing directory.
func Open(dir string) (*Store, error) {
	st, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint directory: %w", err)
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("checkpoint directory %s: not a directory", dir)
	}
	return &Store{dir: dir}, nil
}

// Create opens a directory and makes it, with mode 0700, when it is not there. What it makes is on stable
// storage, with all directories above it: an epoch that is committed there does not vanish with them. A folder of
// somebody else's is refused with ErrForeign: the default name may be that of a folder of the program's sources.
func Create(dir string) (*Store, error) {
	if err := makeAll(dir); err != nil {
		return nil, fmt.Errorf("checkpoint directory: %w", err)
	}
	s, err := Open(dir)
	if err != nil {
		return nil, err
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint directory: %w", err)
	}
	foreign := ""
	for _, e := range list {
		switch name := e.Name(); {
		case slices.ContainsFunc(ownNames, func(own string) bool { return name == own || strings.HasPrefix(name, own+".") }),
			strings.HasPrefix(name, epochPrefix):
			return s, nil
		case slices.Contains(neutralNames, name), strings.HasPrefix(name, ".nfs"):
		case foreign == "":
			foreign = name
		}
	}
	if foreign != "" {
		return nil, fmt.Errorf("checkpoint directory %s %w: it has %q, for one; name a new directory or an empty one with --dir (CKPT_DIR)",
			dir, ErrForeign, foreign)
	}
	return s, nil
}

// ownNames are those of doc.go; temporary files have them too, with a suffix. neutralNames are in an empty directory
// of some file systems.
var (
	ownNames     = []string{jobName, "lease", ".meet", "ckpt.toml"}
	neutralNames = []string{"lost+found", ".snapshot"}
)

const epochPrefix = "epoch-"

func makeAll(dir string) error {
	if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err // what is no directory is found by Open
	}
	above := filepath.Dir(filepath.Clean(dir))
	if err := makeAll(above); err != nil {
		return err
	}
	// Another rank may make it at the same time; that it is durable is this one's matter too.
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(above, "store.create.syncdir")
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

// SplitSpec splits DIR[@EPOCH]; epoch is 0 when none is given. If "job@7" is a directory and "job" is not, "job@7"
// names that directory. If both are directories, "job@7" is wrong usage, since it could mean either: "job@7/" is
// the directory, "job/@7" is epoch 7 of the other.
func SplitSpec(spec string) (dir string, epoch int, err error) {
	i := strings.LastIndexByte(spec, '@')
	if i < 0 || strings.Contains(spec[i:], "/") {
		return spec, 0, nil
	}
	n, err := strconv.Atoi(spec[i+1:])
	valid := err == nil && n >= 1 && n <= MaxEpoch && i > 0
	if isDir(spec) {
		if !valid || !isDir(spec[:i]) {
			return spec, 0, nil
		}
		if spec[i-1] != '/' {
			return "", 0, fmt.Errorf("%q: %w: there are directories %s and %s; write %s/ for the one, %s/@%d for epoch %d of the other",
				spec, ErrSpec, spec, spec[:i], spec, spec[:i], n, n)
		}
	}
	if !valid {
		return "", 0, fmt.Errorf("%q: %w, with the number of an epoch from 1 on (`ckptctl ls DIR` lists them)",
			spec, ErrSpec)
	}
	return spec[:i], n, nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// PathOf is where a file of an epoch is: in the local directory if it is there, else in this one.
func (s *Store) PathOf(m *Manifest, file string) string {
	if m.Levels != nil {
		for _, place := range levels.Find(s.local, m.Levels.Set) {
			if path := place.Path(m.Epoch, file); isFile(path) {
				return path
			}
		}
	}
	return filepath.Join(s.EpochDir(m.Epoch), file)
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// Dir is the directory.
func (s *Store) Dir() string { return s.dir }

// EpochDir is the directory of an epoch, whether or not it exists.
func (s *Store) EpochDir(epoch int) string {
	return filepath.Join(s.dir, fmt.Sprintf("epoch-%06d", epoch))
}

// ImageName is the name of a rank's image in the directory of its epoch.
func ImageName(rank int) string { return ImagePrefix(rank) + ".ckpt" }

// ImagePrefix begins the names of all files of a rank in the directory of an epoch.
func ImagePrefix(rank int) string { return fmt.Sprintf("rank-%05d", rank) }

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

// Committed tells whether the epoch can be restarted from, as far as its manifest tells. An epoch that was found lost
// is committed, and counts no more.
func (e *Epoch) Committed() bool { return e.Manifest != nil }

// Lost tells whether an epoch was committed, and a restart has found that it cannot be had any more.
func (e *Epoch) Lost() bool { return e.Manifest != nil && e.Manifest.Lost() != "" }

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

// ErrLost is wrapped when epochs were committed, and restarts have found each of them lost.
var ErrLost = errors.New("every committed checkpoint was found lost")

// NewestSound is the newest committed epoch whose manifest can be used and that no restart has found lost, and the newer
// ones that it passes over, newest first. It wraps ErrNone when nothing was ever committed.
func (s *Store) NewestSound() (epoch int, passed []Epoch, err error) {
	list, err := s.Epochs()
	if err != nil {
		return 0, nil, err
	}
	for _, e := range slices.Backward(list) {
		switch {
		case e.Err != nil && !manifestLost(e.Err): // another libckpt may read it, or another user
			return 0, passed, e.Err
		case e.Committed() && !e.Lost():
			return e.Number, passed, nil
		case e.Committed(), e.Err != nil:
			passed = append(passed, e)
		}
	}
	for _, e := range passed {
		if e.Err != nil {
			return 0, passed, fmt.Errorf("%w; no other epoch is committed", e.Err)
		}
	}
	if len(passed) > 0 {
		e := passed[0]
		return 0, passed, fmt.Errorf("%s: %w: epoch %d: %s; name an epoch, as %s@%d, to have it tried again", s.dir, ErrLost, e.Number, e.Manifest.Lost(), s.dir, e.Number)
	}
	return 0, nil, fmt.Errorf("%s: %w (%d incomplete)", s.dir, ErrNone, len(list))
}

// manifestLost tells whether a manifest is damaged: it is not one of another version, nor one that may not be read.
func manifestLost(err error) bool {
	var corrupt *image.CorruptError
	return errors.As(err, &corrupt) || errors.Is(err, unix.EIO) || regular.IsOther(err)
}

// Newest is the number of the newest committed epoch. It wraps ErrNone when there is none. When the newest manifest is
// damaged it fails and says which epoch there is instead.
func (s *Store) Newest() (int, error) {
	epoch, passed, err := s.NewestSound()
	for _, e := range passed {
		if e.Err != nil && err == nil {
			return 0, fmt.Errorf("%w; the newest epoch before it is %s@%d", e.Err, s.dir, epoch)
		}
	}
	return epoch, err
}

// Next is a number for the next epoch: one more than any there is, committed or not, or was before Fence.
func (s *Store) Next() (int, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return 0, fmt.Errorf("checkpoint directory: %w", err)
	}
	next := 1
	for _, d := range entries {
		if n, ok := epochNumber(strings.TrimSuffix(d.Name(), fencedSuffix)); ok {
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
	switch is, err := pending(path); {
	case err != nil:
		return nil, err
	case is:
		return nil, fmt.Errorf("%s: %w: epoch %d is being committed", s.dir, ErrNone, epoch)
	}
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
