// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zeebo/blake3"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/internal/fault"
	"github.com/libckpt/libckpt/internal/regular"
)

// copyMark is in the folder of an epoch that is being copied: it names the manifest, so that a copy that was
// interrupted is gone on with, and nothing else is taken for one. It goes before the epoch is committed.
const copyMark = ".copy"

// Copied says what CopyEpoch has done.
type Copied struct {
	Files   int   // that were copied
	Bytes   int64 // in them
	Kept    int   // files that an interrupted copy had left, and that are sound
	Already bool  // the epoch was there, the same
}

// CopyOptions are the options of CopyEpoch. The zero value is ready for use.
type CopyOptions struct {
	Progress func(done, total int64) // bytes of files
}

// Chain lists an epoch and those that it was built upon (Manifest.Depends), oldest first. All are committed.
func (s *Store) Chain(epoch int) ([]*Manifest, error) { return chainOf(epoch, s.Manifest) }

// chainOf is Chain, wherever manifests are.
func chainOf(epoch int, manifest func(epoch int) (*Manifest, error)) ([]*Manifest, error) {
	chain := map[int]*Manifest{}
	for todo := []int{epoch}; len(todo) > 0; todo = todo[1:] {
		n := todo[0]
		if chain[n] != nil {
			continue
		}
		m, err := manifest(n)
		if err != nil {
			if n != epoch {
				err = fmt.Errorf("epoch %d is built upon epoch %d: %w", epoch, n, err)
			}
			return nil, err
		}
		chain[n] = m
		todo = append(todo, m.Depends()...) // older, or there would be no manifest
	}
	return slices.SortedFunc(maps.Values(chain), func(a, b *Manifest) int { return a.Epoch - b.Epoch }), nil
}

// CopyEpoch copies a committed epoch into another directory, under its number. Each image is read back from there and
// compared with the digests that its manifest and its index have, files beside it with what was read. Then the
// manifest is copied, byte by byte, and the epoch exists there. On failure it does not, and what was copied is removed.
// Images that are in local directories are copied from those that can be seen from here (WithLocal); the manifest then
// says that the epoch has reached the highest level.
// A copy that is interrupted (ctx) or killed leaves a folder that counts for nothing, with which the next call goes on.
//
// The caller owns the directory (Guard).
func (s *Store) CopyEpoch(ctx context.Context, epoch int, to *Store, opt CopyOptions) (done Copied, err error) {
	if _, err := s.Manifest(epoch); err != nil {
		return done, err
	}
	raw, err := regular.ReadFile(filepath.Join(s.EpochDir(epoch), manifestName), maxManifest)
	if err != nil {
		return done, fmt.Errorf("manifest: %w", err)
	}
	m, err := decodeManifest(filepath.Join(s.EpochDir(epoch), manifestName), raw)
	if err != nil {
		return done, err // another one took its place
	}
	fail := func(err error) (Copied, error) {
		return done, fmt.Errorf("copy epoch %d from %s to %s: %w", epoch, s.dir, to.dir, err)
	}
	there := m
	if m.Levels != nil && !m.Levels.Has(levels.Shared) {
		one := *m
		one.Levels = m.Levels.Clone()
		one.Levels.Complete(levels.Shared)
		one.Level, there = one.Levels.Level(), &one
		if raw, err = encodeManifest(there); err != nil {
			return fail(err)
		}
	}
	switch already, err := to.hasCopy(epoch, raw); {
	case err != nil:
		return fail(err)
	case already:
		return Copied{Already: true}, nil
	}
	list, err := s.sources(m)
	if err != nil {
		return fail(err)
	}
	if err := to.beginCopy(epoch, raw); err != nil {
		return fail(err)
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = errors.Join(err, to.Abandon(epoch))
		}
	}()
	if done, err = s.copyFiles(ctx, m, to, list, opt); err != nil {
		return fail(err)
	}
	if err := os.Remove(filepath.Join(to.EpochDir(epoch), copyMark)); err != nil {
		return fail(err)
	}
	if err := to.commitAs(there, raw, nil); err != nil {
		return done, err
	}
	return done, nil
}

// hasCopy tells whether the epoch is there already. Another epoch of that number is an error.
func (s *Store) hasCopy(epoch int, raw []byte) (bool, error) {
	path := filepath.Join(s.EpochDir(epoch), manifestName)
	there, err := regular.ReadFile(path, maxManifest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case string(there) != string(raw):
		return false, fmt.Errorf("%w: %s is another epoch of that number; take another directory", ErrExists, s.EpochDir(epoch))
	}
	return true, nil
}

// filesOf lists what belongs to an epoch but for its manifest: images and what is kept beside them.
func filesOf(dir string) (names []string, total int64, err error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range list {
		if e.Name() == manifestName || strings.HasSuffix(e.Name(), ".tmp") || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		st, err := os.Stat(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, 0, err
		}
		if !st.Mode().IsRegular() {
			return nil, 0, fmt.Errorf("%s is not a regular file, and so not of an epoch; move it away", filepath.Join(dir, e.Name()))
		}
		names, total = append(names, e.Name()), total+st.Size()
	}
	return names, total, nil
}

// source is a file of an epoch, and where it is.
type source struct {
	name, path string
	bytes      int64
}

// sources lists the files of an epoch. The error names all images that are not here.
func (s *Store) sources(m *Manifest) (list []source, err error) {
	dir := s.EpochDir(m.Epoch)
	names, _, err := filesOf(dir)
	if err != nil {
		return nil, err
	}
	for _, im := range m.Images {
		if !slices.Contains(names, im.File) {
			names = append(names, im.File)
		}
	}
	var missing []error
	for _, name := range names {
		path := filepath.Join(dir, name)
		st, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			path = s.PathOf(m, name)
			st, err = os.Stat(path)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, elsewhere(m, name, fmt.Errorf("image of rank %d, %s, is missing: %w", m.RankOf(name), name, fs.ErrNotExist)))
		case err != nil:
			return nil, err
		default:
			list = append(list, source{name, path, st.Size()})
		}
	}
	if n := len(missing); n > maxMissing {
		missing = append(missing[:maxMissing], fmt.Errorf("and %d more", n-maxMissing))
	}
	return list, errors.Join(missing...)
}

// maxMissing bounds how many images are named.
const maxMissing = 8

// beginCopy makes the folder, or takes that of an interrupted copy of the same epoch.
func (s *Store) beginCopy(epoch int, raw []byte) error {
	sum := blake3.Sum256(raw)
	want := hex.EncodeToString(sum[:]) + "\n"
	mark := filepath.Join(s.EpochDir(epoch), copyMark)
	err := s.Begin(epoch)
	if errors.Is(err, ErrExists) {
		have, rerr := regular.ReadFile(mark, 1<<10)
		switch {
		case errors.Is(rerr, fs.ErrNotExist):
			return fmt.Errorf("%w: %s is incomplete, and not from a copy; `ckptctl gc` removes it when it is old, or take another directory", ErrExists, s.EpochDir(epoch))
		case rerr != nil:
			return rerr
		case string(have) == want:
			return s.removeTemps(epoch)
		}
		if err := s.Abandon(epoch); err != nil { // what was copied then is another epoch by now
			return err
		}
		err = s.Begin(epoch)
	}
	if err != nil {
		return err
	}
	temp, err := writeTemp(mark, []byte(want), "store.copy.mark")
	if err == nil {
		err = os.Rename(temp, mark)
	}
	if err != nil {
		return errors.Join(err, s.Abandon(epoch))
	}
	return nil
}

// removeTemps removes files that a copy was writing when it was killed.
func (s *Store) removeTemps(epoch int) error {
	list, err := filepath.Glob(filepath.Join(s.EpochDir(epoch), "*.tmp"))
	for _, path := range list {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

func (s *Store) copyFiles(ctx context.Context, m *Manifest, to *Store, list []source, opt CopyOptions) (done Copied, err error) {
	var sofar, total int64
	for _, one := range list {
		total += one.bytes
	}
	tell := func(n int64) {
		sofar += n
		if opt.Progress != nil {
			opt.Progress(sofar, total)
		}
	}
	for _, one := range list {
		name, dest := one.name, filepath.Join(to.EpochDir(m.Epoch), one.name)
		n := slices.IndexFunc(m.Images, func(im Image) bool { return im.File == name })
		if n >= 0 {
			if st, err := os.Stat(dest); err == nil && to.checkCopy(ctx, m, n) == nil {
				done.Kept++
				tell(st.Size())
				continue
			}
		}
		_ = os.Remove(dest)
		size, err := copyFile(ctx, one.path, dest, tell)
		if err != nil {
			return done, err
		}
		if n >= 0 {
			if err := to.checkCopy(ctx, m, n); err != nil {
				// Whose fault is it?
				if own := s.checkCopy(ctx, m, n); own != nil {
					return done, fmt.Errorf("it is damaged: %w", own)
				}
				return done, fmt.Errorf("the copy is not what was copied: %w", err)
			}
		}
		done.Files, done.Bytes = done.Files+1, done.Bytes+size
	}
	return done, nil
}

// checkCopy checks every byte of an image against its manifest.
func (s *Store) checkCopy(ctx context.Context, m *Manifest, n int) error {
	return s.VerifyImage(ctx, m, n, false, nil)
}

// copyFile copies a regular file, for good, and compares what is there then with what was read. The copy has its name
// only when it is whole.
func copyFile(ctx context.Context, from, dest string, tell func(int64)) (size int64, err error) {
	in, err := regular.Open(from, os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer func() { _ = in.Close() }()
	if err := fault.Point("store.copy.create"); err != nil {
		return 0, err
	}
	out, err := os.CreateTemp(filepath.Dir(dest), filepath.Base(dest)+".*.tmp")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			_ = out.Close()
			_ = os.Remove(out.Name())
		}
	}()
	read, wrote := blake3.New(), blake3.New()
	buf := make([]byte, 4<<20)
	for {
		if ctx.Err() != nil {
			return size, context.Cause(ctx)
		}
		n, rerr := in.Read(buf)
		if n > 0 {
			_, _ = read.Write(buf[:n])
			if err := fault.Point("store.copy.write"); err != nil {
				return size, err
			}
			if _, err := out.Write(buf[:n]); err != nil {
				return size, err
			}
			size += int64(n)
			tell(int64(n))
		}
		if errors.Is(rerr, io.EOF) {
			break
		}
		if rerr != nil {
			return size, rerr
		}
	}
	if err := out.Sync(); err != nil {
		return size, err
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return size, err
	}
	if _, err := io.CopyBuffer(wrote, onlyReader{out}, buf); err != nil {
		return size, err
	}
	if a, b := hex.EncodeToString(read.Sum(nil)), hex.EncodeToString(wrote.Sum(nil)); a != b {
		return size, &image.CorruptError{File: dest, Section: "file", What: "digest of the copy", Expected: a, Found: b}
	}
	if err := out.Close(); err != nil {
		return size, err
	}
	return size, os.Rename(out.Name(), dest)
}

// onlyReader hides what would make io.Copy take another way than through its buffer.
type onlyReader struct{ io.Reader }
