// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/ckpt/objects"
)

// Epochs in an object store (package objects). They have the names that they have in a directory, and the manifest, which
// is put last, says of each file how long it is and what its digest is. A manifest may be in a directory whose files
// are in the object store alone: a restart gets them.

// Objects says where an epoch is in an object store.
type Objects struct {
	Place string          `json:"place"` // s3://BUCKET/PREFIX, for people: one that was copied is the same epoch
	Files []levels.Stored `json:"files"` // images, and files that were kept beside them
}

// File finds one of its files.
func (o *Objects) File(name string) (levels.Stored, bool) {
	if o == nil {
		return levels.Stored{}, false
	}
	i := slices.IndexFunc(o.Files, func(f levels.Stored) bool { return f.Name == name })
	if i < 0 {
		return levels.Stored{}, false
	}
	return o.Files[i], true
}

// AsObject is a file as package objects knows it.
func AsObject(f levels.Stored) objects.File {
	return objects.File{Name: f.Name, Bytes: f.Bytes, Digest: f.Digest}
}

// AsStored is the reverse of AsObject.
func AsStored(f objects.File) levels.Stored {
	return levels.Stored{File: levels.File{Name: f.Name, Bytes: f.Bytes}, Digest: f.Digest}
}

// checkObjects wants all images in the object store, each file once.
func (m *Manifest) checkObjects() error {
	if m.Objects == nil {
		return nil
	}
	if _, err := objects.ParsePlace(m.Objects.Place); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, f := range m.Objects.Files {
		if err := AsObject(f).Check(); err != nil {
			return err
		}
		if seen[f.Name] || f.Name == manifestName {
			return fmt.Errorf("%q is there twice", f.Name)
		}
		seen[f.Name] = true
	}
	for i := range m.Images {
		im := &m.Images[i]
		if f, ok := m.Objects.File(im.File); !ok || f.Bytes != im.Bytes {
			return fmt.Errorf("image %d, %q of %d bytes, is not among them", i, im.File, im.Bytes)
		}
	}
	return nil
}

// Beside lists the files of an epoch in this directory that are no images: what is kept with it.
func (s *Store) Beside(m *Manifest) ([]string, error) {
	names, _, err := filesOf(s.EpochDir(m.Epoch))
	return slices.DeleteFunc(names, func(name string) bool { return m.RankOf(name) >= 0 }), err
}

// Encode is the file of a manifest, which is checked.
func (m *Manifest) Encode() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return encodeManifest(m)
}

// ObjectsFree says whether an epoch can be put into an object store: one of another job with its number is in the way,
// with an error that wraps ErrExists.
func ObjectsFree(ctx context.Context, to *objects.Store, m *Manifest) error {
	switch there, err := ObjectManifest(ctx, to, m.Epoch); {
	case err == nil && !there.Same(m):
		return fmt.Errorf("%s: %w: it is of another job (%s of %s); give each job a prefix of its own",
			to.URL(m.Epoch, manifestName), ErrExists, there.Program, there.Time.Format("2006-01-02 15:04:05"))
	case err != nil && !errors.Is(err, ErrNone) && !isDamage(err):
		return err
	}
	return nil
}

// PutManifest makes an epoch exist in an object store that has its files. Another epoch of that number is an error
// that wraps ErrExists.
func PutManifest(ctx context.Context, to *objects.Store, m *Manifest) error {
	raw, err := m.Encode()
	if err != nil {
		return err
	}
	if err := ObjectsFree(ctx, to, m); err != nil {
		return err
	}
	return to.PutBytes(ctx, m.Epoch, manifestName, raw)
}

// isDamage tells whether a manifest is there and cannot be used.
func isDamage(err error) bool {
	var corrupt *image.CorruptError
	var version *image.VersionError
	return errors.As(err, &corrupt) || errors.As(err, &version)
}

// ObjectManifest gets the manifest of an epoch from an object store. It wraps ErrNone when there is no such epoch, and is a
// *image.CorruptError when the manifest is damaged.
func ObjectManifest(ctx context.Context, from *objects.Store, epoch int) (*Manifest, error) {
	raw, err := from.GetBytes(ctx, epoch, manifestName, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: epoch %d is not there, or has no manifest yet", from, ErrNone, epoch)
	}
	if err != nil {
		return nil, err
	}
	url := from.URL(epoch, manifestName)
	m, err := decodeManifest(url, raw)
	if err == nil && m.Epoch != epoch {
		err = corruptManifest(url, 0, "epoch", epoch, m.Epoch)
	}
	if err == nil && m.Objects == nil {
		err = corruptManifest(url, 0, "content", "a manifest that lists objects", "one that does not")
	}
	if err != nil {
		return nil, err
	}
	m.Objects.Place = from.String() // it may have been copied
	return m, nil
}

// Same tells whether two manifests are of the same epoch, wherever its files are.
func (m *Manifest) Same(other *Manifest) bool {
	return m.Epoch == other.Epoch && m.Time.Equal(other.Time) && m.Program == other.Program &&
		slices.EqualFunc(m.Images, other.Images, func(a, b Image) bool { return a.Digest == b.Digest && a.Bytes == b.Bytes })
}

// ObjectEpochs lists the epochs of an object store, committed or not, in ascending order. Dir is a URL.
func ObjectEpochs(ctx context.Context, from *objects.Store) ([]Epoch, error) {
	numbers, err := from.Epochs(ctx)
	if err != nil {
		return nil, err
	}
	var list []Epoch
	for _, n := range numbers {
		e := Epoch{Number: n, Dir: from.URL(n, "")}
		m, err := ObjectManifest(ctx, from, n)
		switch {
		case err == nil:
			e.Manifest, e.Changed = m, m.Time
		case !errors.Is(err, ErrNone) && !isDamage(err):
			return nil, err // it does not answer
		case !errors.Is(err, ErrNone):
			e.Err = err
		default:
			if files, ferr := from.Files(ctx, n); ferr == nil && len(files) > 0 {
				e.Changed = files[len(files)-1].Changed
			}
		}
		list = append(list, e)
	}
	return list, nil
}

// RetireObjects removes old epochs from an object store, as Retire does from a directory: what is left of uploads that
// did not come to their end, too. busy epochs stay.
func RetireObjects(ctx context.Context, from *objects.Store, keep int, busy ...int) (removed []int, err error) {
	list, err := ObjectEpochs(ctx, from)
	if err != nil {
		return nil, err
	}
	r := planRetire(list, max(keep, 1))
	var errs []error
	for i := len(r.Remove) - 1; i >= 0; i-- {
		n := r.Remove[i]
		if slices.Contains(busy, n) {
			continue
		}
		if err := from.Remove(ctx, n, manifestName); err != nil {
			errs = append(errs, err)
			break // what it was built upon stays
		}
		removed = append(removed, n)
	}
	slices.Sort(removed)
	return removed, errors.Join(errs...)
}

// PlanRetireObjects says what RetireObjects would do.
func PlanRetireObjects(ctx context.Context, from *objects.Store, keep int) (Retirement, error) {
	list, err := ObjectEpochs(ctx, from)
	return planRetire(list, max(keep, 1)), err
}

// Import makes an epoch exist here whose files are in an object store. The same epoch may be here already: it
// is the object store's from then on. The caller owns the directory (Guard).
func (s *Store) Import(m *Manifest) error {
	switch have, err := s.Manifest(m.Epoch); {
	case err == nil && !have.Same(m):
		return fmt.Errorf("%w: %s is another epoch than that of %s; name another directory with --dir", ErrExists, s.EpochDir(m.Epoch), m.Objects.Place)
	case err == nil && have.Lost() == "" && have.Objects != nil:
		return nil
	case err == nil:
		return s.Change(m.Epoch, func(have *Manifest) error { *have = *m; return nil })
	case isDamage(err):
		if err := s.remove(m.Epoch, "store.import"); err != nil {
			return err
		}
	case !errors.Is(err, ErrNone):
		return err
	}
	if _, err := os.Stat(s.EpochDir(m.Epoch)); err == nil { // left by a job that was killed
		if err := s.Abandon(m.Epoch); err != nil {
			return err
		}
	}
	if err := s.Begin(m.Epoch); err != nil {
		return err
	}
	if err := s.Commit(m.Epoch, m, nil); err != nil {
		return errors.Join(err, s.Abandon(m.Epoch))
	}
	return nil
}

// CopyToObjects copies a committed epoch to an object store, under its number; the manifest is put last. Images are
// checked before. On failure the epoch is not there; what was copied stays, and the next call goes on with it.
func (s *Store) CopyToObjects(ctx context.Context, epoch int, to *objects.Store, opt CopyOptions) (done Copied, err error) {
	fail := func(err error) (Copied, error) {
		return done, fmt.Errorf("copy epoch %d from %s to %s: %w", epoch, s.dir, to, err)
	}
	m, err := s.Manifest(epoch)
	if err != nil {
		return done, err
	}
	if there, err := ObjectManifest(ctx, to, epoch); err == nil && there.Same(m) {
		return Copied{Already: true}, nil
	}
	names, total, err := filesOf(s.EpochDir(epoch))
	if err != nil {
		return fail(err)
	}
	for i := range m.Images {
		if err := s.checkCopy(ctx, m, i); err != nil {
			return fail(err)
		}
		if !slices.Contains(names, m.Images[i].File) { // it is in a local directory
			names, total = append(names, m.Images[i].File), total+m.Images[i].Bytes
		}
	}
	list := Objects{Place: to.String()}
	for _, name := range names {
		f, err := to.Put(ctx, epoch, s.PathOf(m, name))
		if err != nil {
			return fail(err)
		}
		list.Files = append(list.Files, AsStored(f))
		done.Files, done.Bytes = done.Files+1, done.Bytes+f.Bytes
		if opt.Progress != nil {
			opt.Progress(done.Bytes, total)
		}
	}
	m.Objects = &list
	if err := PutManifest(ctx, to, m); err != nil {
		return fail(err)
	}
	return done, nil
}

// CopyFromObjects copies an epoch of an object store into this directory, with every byte checked; the manifest comes
// last. On failure the epoch is not there, and what was copied is removed. The caller owns the directory (Guard).
func (s *Store) CopyFromObjects(ctx context.Context, from *objects.Store, m *Manifest, opt CopyOptions) (done Copied, err error) {
	fail := func(err error) (Copied, error) {
		return done, fmt.Errorf("copy epoch %d from %s to %s: %w", m.Epoch, from, s.dir, err)
	}
	if have, err := s.Manifest(m.Epoch); err == nil {
		if !have.Same(m) {
			return fail(fmt.Errorf("%w: %s is another epoch of that number; take another directory", ErrExists, s.EpochDir(m.Epoch)))
		}
		return Copied{Already: true}, nil
	}
	if err := s.Begin(m.Epoch); err != nil {
		return fail(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Abandon(m.Epoch))
		}
	}()
	var total int64
	for _, f := range m.Objects.Files {
		total += f.Bytes
	}
	for _, f := range m.Objects.Files {
		if err := from.Get(ctx, m.Epoch, AsObject(f), filepath.Join(s.EpochDir(m.Epoch), f.Name)); err != nil {
			return fail(err)
		}
		done.Files, done.Bytes = done.Files+1, done.Bytes+f.Bytes
		if opt.Progress != nil {
			opt.Progress(done.Bytes, total)
		}
	}
	here := *m
	here.Objects = nil
	if here.Levels != nil { // all files are in the directory now
		here.Levels = here.Levels.Clone()
		here.Levels.Complete(levels.Shared)
		here.Level = here.Levels.Level()
	}
	if err := s.Commit(m.Epoch, &here, nil); err != nil {
		return fail(err)
	}
	for i := range here.Images {
		if err := s.checkCopy(ctx, &here, i); err != nil {
			return fail(errors.Join(err, os.Remove(filepath.Join(s.EpochDir(m.Epoch), manifestName))))
		}
	}
	return done, nil
}

// ObjectChain is Chain for an object store.
func ObjectChain(ctx context.Context, from *objects.Store, epoch int) ([]*Manifest, error) {
	return chainOf(epoch, func(n int) (*Manifest, error) { return ObjectManifest(ctx, from, n) })
}

// RemoveObjects removes one epoch from an object store, as Remove does from a directory.
func RemoveObjects(ctx context.Context, from *objects.Store, epoch int) error {
	list, err := ObjectEpochs(ctx, from)
	if err != nil {
		return err
	}
	if err := mayRemove(list, epoch, from.String()); err != nil {
		return err
	}
	return from.Remove(ctx, epoch, manifestName)
}
