// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/fault"
)

// Begin makes the directory of a new epoch, which Commit makes durable: the program may be stopped now. The error wraps ErrExists when there is one already; take
// another number then (Next). On failure nothing is left behind that counts for anything, and Begin
// may be tried again.
func (s *Store) Begin(epoch int) error {
	if epoch < 1 || epoch > MaxEpoch {
		return fmt.Errorf("epoch %d: numbers go from 1 to %d", epoch, MaxEpoch)
	}
	dir := s.EpochDir(epoch)
	if err := s.mayChange(); err != nil {
		return fmt.Errorf("begin epoch %d: %w", epoch, err)
	}
	if err := fault.Point("store.begin.mkdir"); err != nil {
		return fmt.Errorf("begin epoch %d: %w", epoch, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%w: %s", ErrExists, dir)
		}
		return fmt.Errorf("begin epoch %d: %w", epoch, err)
	}
	return nil
}

// Commit makes the epoch exist. Every image must have been written by image.Write, which leaves it
// on stable storage, and be listed in m with the size and digest that were reported; Commit sets
// Format, Epoch and, unless given, Time.
//
// On success the epoch is on stable storage. On failure the epoch does not exist, older epochs are
// as they were, and Commit may be tried again or the epoch given up with Abandon. (When the disk
// fails so that the manifest can neither be made durable nor be removed, the epoch may exist after
// all; it is whole then.) last, when not nil, is called just before the manifest gets its name: the last moment at
// which anything but the disk can keep the epoch from existing. Readers see no epoch before it is on stable
// storage, where the file system has locks; elsewhere they may see one for as long as a failing fsync takes.
func (s *Store) Commit(epoch int, m *Manifest, last func() error) error {
	m.Format, m.Epoch = ManifestFormat, epoch
	if m.Time.IsZero() {
		m.Time = time.Now().UTC().Truncate(time.Millisecond)
	}
	p, err := encodeManifest(m)
	if err != nil {
		return fmt.Errorf("commit epoch %d in %s: %w", epoch, s.dir, err)
	}
	return s.commitAs(m, p, last)
}

// commitAs is Commit of a manifest that is encoded already.
func (s *Store) commitAs(m *Manifest, p []byte, last func() error) error {
	epoch := m.Epoch
	fail := func(what string, err error) error {
		return fmt.Errorf("commit epoch %d in %s: %s: %w", epoch, s.dir, what, err)
	}
	dir := s.EpochDir(epoch)
	final := filepath.Join(dir, manifestName)
	// 1. What is promised must be there.
	if err := m.check(); err != nil {
		return fail("manifest", err)
	}
	if _, err := os.Lstat(final); err == nil {
		return fail("manifest", ErrExists)
	}
	for _, im := range m.Images {
		if m.Levels != nil || m.Objects != nil {
			break // they are on nodes; each rank has said that its own is. Or they are brought here when they are needed
		}
		st, err := os.Stat(filepath.Join(dir, im.File))
		if err != nil {
			return fail(fmt.Sprintf("image of rank %d", im.Rank), err)
		}
		if st.Size() != im.Bytes {
			return fail(fmt.Sprintf("image of rank %d", im.Rank),
				fmt.Errorf("%s has %d bytes, expected %d", im.File, st.Size(), im.Bytes))
		}
	}
	for _, n := range m.Depends() {
		if _, err := s.Manifest(n); err != nil {
			return fail("an epoch that it was built upon", err)
		}
	}
	// 2. The names of the images and of all directories reach the disk before the manifest has its name, and so does what is in that. Their
	// order does not matter, and a disk flushes all of them in the time of one.
	temp, err := s.beforeName(dir, final, p)
	if err != nil {
		return fmt.Errorf("commit epoch %d in %s: %w", epoch, s.dir, err)
	}
	// 3. The manifest gets its name, and counts for nobody as long as it is locked. If the directory is taken over between the question and the rename,
	// Fence takes the epoch's folder away.
	unlock := lockPending(temp)
	defer unlock()
	err = s.mayChange()
	if err == nil && last != nil {
		err = last()
	}
	if err == nil {
		err = fault.Point("store.commit.rename")
	}
	if err == nil {
		err = os.Rename(temp, final)
	}
	if err != nil {
		_ = os.Remove(temp)
		return fail("rename", err)
	}
	// 4. A power cut does not take it away any more: from unlock on the epoch exists.
	if err = syncDir(dir, "store.commit.syncmanifest"); err != nil {
		_ = os.Remove(final) // not durable, so not committed
		return fail("fsync of the directory", err)
	}
	return nil
}

// beforeName makes durable all that an epoch in dir is made of, and writes p for good beside final. It returns under which name.
func (s *Store) beforeName(dir, final string, p []byte) (temp string, err error) {
	var g errgroup.Group
	step := func(what string, do func() error) {
		g.Go(func() error {
			if err := do(); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		})
	}
	step("fsync of the images' names", func() error { return syncDir(dir, "store.commit.syncimages") })
	step("fsync of the epoch's name", func() error { return syncDir(s.dir, "store.commit.syncdir") })
	above, err := above(s.dir)
	if err != nil {
		return "", fmt.Errorf("directories above: %w", err)
	}
	for _, up := range above {
		step("fsync of the directories above", func() error { return syncName(up) })
	}
	step("manifest", func() (err error) {
		temp, err = writeTemp(final, p, "store.commit")
		return err
	})
	if err = g.Wait(); err != nil && temp != "" {
		_ = os.Remove(temp)
	}
	return temp, err
}

// Change writes the manifest of a committed epoch anew, as change has made it. Readers see the old one or the new one.
// On failure the old one stays. (When the directory cannot be synced the new one may be seen, and may be gone after a
// power cut.)
func (s *Store) Change(epoch int, change func(m *Manifest) error) error {
	fail := func(err error) error {
		return fmt.Errorf("manifest of epoch %d in %s stays as it was: %w", epoch, s.dir, err)
	}
	m, err := s.Manifest(epoch)
	if err != nil {
		return fail(err)
	}
	if err := change(m); err != nil {
		return fail(err)
	}
	if err := m.check(); err != nil {
		return fail(err)
	}
	p, err := encodeManifest(m)
	if err != nil {
		return fail(err)
	}
	dir := s.EpochDir(epoch)
	if err := syncDir(dir, "store.change.syncimages"); err != nil {
		return fail(err)
	}
	final := filepath.Join(dir, manifestName)
	temp, err := writeTemp(final, p, "store.change")
	if err != nil {
		return fail(err)
	}
	err = s.mayChange()
	if err == nil {
		err = fault.Point("store.change.rename")
	}
	if err == nil {
		err = os.Rename(temp, final)
	}
	if err != nil {
		_ = os.Remove(temp)
		return fail(err)
	}
	return syncDir(dir, "store.change.syncdir")
}

// Abandon removes an epoch that was not committed. It is no error when there is none.
func (s *Store) Abandon(epoch int) error {
	if _, err := os.Lstat(filepath.Join(s.EpochDir(epoch), manifestName)); err == nil {
		return fmt.Errorf("abandon epoch %d in %s: it is committed; `ckptctl gc` removes old epochs", epoch, s.dir)
	}
	return s.remove(epoch, "store.abandon")
}

// remove removes an epoch. The manifest goes first and for good, so that a committed epoch never
// lacks an image.
func (s *Store) remove(epoch int, point string) error {
	dir := s.EpochDir(epoch)
	fail := func(err error) error { return fmt.Errorf("remove epoch %d in %s: %w", epoch, s.dir, err) }
	if err := s.mayChange(); err != nil {
		return fail(err)
	}
	if err := fault.Point(point + ".manifest"); err != nil {
		return fail(err)
	}
	switch err := os.Remove(filepath.Join(dir, manifestName)); {
	case err == nil:
		if err := syncDir(dir, point+".syncdir"); err != nil {
			return fail(err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return fail(err)
	}
	if err := fault.Point(point + ".images"); err != nil {
		return fail(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fail(err)
	}
	return nil
}

// writeTemp writes p, for good, to a new file beside path, with mode 0600, and returns its name. The
// fault points of its steps begin with point.
func writeTemp(path string, p []byte, point string) (name string, err error) {
	if err := fault.Point(point + ".create"); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := fault.Point(point + ".write"); err != nil {
		// A fault in the middle of the write, as on a full disk: half of it is there.
		_, _ = f.Write(p[:len(p)/2])
		return "", err
	}
	if _, err := f.Write(p); err != nil {
		return "", err
	}
	if err := fault.Point(point + ".sync"); err != nil {
		return "", err
	}
	if err := f.Sync(); err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

func syncDir(dir, point string) error {
	if err := fault.Point(point); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// above are the directories in which dir lies, up to the root of its file system, and which hold its name and
// each other's: an epoch is of no use in a directory that a power cut takes away.
func above(dir string) (list []string, err error) {
	dir, err = filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, err
	}
	for {
		var here, above unix.Stat_t
		up := filepath.Dir(dir)
		if err := errors.Join(unix.Stat(dir, &here), unix.Stat(up, &above)); err != nil {
			return nil, err
		}
		if up == dir || here.Dev != above.Dev {
			return list, nil
		}
		list, dir = append(list, up), up
	}
}

// syncName makes durable which names a directory of above has. What may not be opened is somebody else's and was there before.
func syncName(dir string) error {
	err := syncDir(dir, "store.commit.syncnames")
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}
