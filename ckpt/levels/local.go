// SPDX-License-Identifier: Apache-2.0

package levels

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/fault"
)

// Place is a node's local directory, for the epochs of one checkpoint directory.
type Place struct {
	Dir string // the node's own: LOCAL, or LOCAL/node<i>
	Set string
}

// NodeName names the node of a process: its host or, where size is not 0, the number of the node when each has so many
// processes. dir is its local directory.
func NodeName(local, host string, process, size int) (name, dir string) {
	if size == 0 {
		return host, local
	}
	name = fmt.Sprintf("node%d", process/size)
	return name, filepath.Join(local, name)
}

// SetName is a name for the local files of a checkpoint directory. One process finds it and tells the others: the
// directory may have other paths on other nodes.
func SetName(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	sum := blake3.Sum256(fmt.Appendf(nil, "%s\x00%d", path, st.Ino))
	return "set-" + hex.EncodeToString(sum[:8]), nil
}

// validSet keeps names from other processes and from files inside the local directory.
func validSet(name string) bool {
	digits, ok := strings.CutPrefix(name, "set-")
	return ok && len(digits) == 16 && strings.Trim(digits, "0123456789abcdef") == ""
}

// validFile wants the name of a file of an epoch.
func validFile(name string) bool {
	return name != "" && len(name) < 256 && name[0] != '.' && filepath.Base(name) == name && !strings.HasSuffix(name, tempSuffix) &&
		!strings.ContainsAny(name, "\x00\n")
}

const tempSuffix = ".tmp"

// Make makes the directory for the set, for good. It fails where files could not be written.
func (p Place) Make() error {
	dir := filepath.Join(p.Dir, p.Set)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("local directory: %w", err)
	}
	if err := unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("local directory %s: %w", dir, err)
	}
	for _, d := range []string{dir, p.Dir, filepath.Dir(p.Dir)} {
		if err := syncDir(d); err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("local directory: %w", err)
		}
	}
	return nil
}

// Free is how many bytes can still be written.
func (p Place) Free() (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(p.Dir, &st); err != nil {
		return 0, fmt.Errorf("local directory %s: %w", p.Dir, err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}

func epochName(epoch int) string { return fmt.Sprintf("epoch-%06d", epoch) }

// EpochDir is where the files of an epoch are.
func (p Place) EpochDir(epoch int) string { return filepath.Join(p.Dir, p.Set, epochName(epoch)) }

// Path is where a file of an epoch is.
func (p Place) Path(epoch int, file string) string { return filepath.Join(p.EpochDir(epoch), file) }

// Begin makes the directory of an epoch, for good; it may be there.
func (p Place) Begin(epoch int) error {
	if err := fault.Point("levels.begin"); err != nil {
		return err
	}
	if err := os.MkdirAll(p.EpochDir(epoch), 0o700); err != nil {
		return fmt.Errorf("local directory: %w", err)
	}
	return syncDir(filepath.Join(p.Dir, p.Set))
}

// Drop removes a file of an epoch that is given up, and its directory when nothing else is in it.
func (p Place) Drop(epoch int, file string) {
	_ = os.Remove(p.Path(epoch, file)) // it may not be there; Keep removes what is left
	_ = os.Remove(p.EpochDir(epoch))
}

// Held is a file that a node has.
type Held struct {
	Epoch int    `json:"e"`
	File  string `json:"f"`
	Bytes int64  `json:"b"`
}

// Inventory lists the files of some epochs.
func (p Place) Inventory(epochs []int) ([]Held, error) {
	var list []Held
	for _, e := range epochs {
		entries, err := os.ReadDir(p.EpochDir(e))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("local directory: %w", err)
		}
		for _, d := range entries {
			st, err := d.Info()
			if err == nil && st.Mode().IsRegular() && validFile(d.Name()) {
				list = append(list, Held{e, d.Name(), st.Size()})
			}
		}
	}
	return list, nil
}

// Keep removes all epochs up to bound but those that are to stay, and what copies that did not come to their end have
// left in those.
func (p Place) Keep(stay []int, bound int) error {
	if !validSet(p.Set) {
		return fmt.Errorf("local directory: %q is not the name of a set", p.Set)
	}
	entries, err := os.ReadDir(filepath.Join(p.Dir, p.Set))
	if err != nil {
		return fmt.Errorf("local directory: %w", err)
	}
	var errs []error
	for _, d := range entries {
		digits, ok := strings.CutPrefix(d.Name(), "epoch-")
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n > bound || slices.Contains(stay, n) {
			continue
		}
		if err := fault.Point("levels.keep"); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, os.RemoveAll(filepath.Join(p.Dir, p.Set, d.Name())))
	}
	return errors.Join(errs...)
}

// Tidy removes the beginnings of files that an earlier process left behind. Nobody may be writing.
func (p Place) Tidy() {
	left, _ := filepath.Glob(filepath.Join(p.Dir, p.Set, "epoch-*", "*"+tempSuffix)) // the pattern is well formed
	for _, path := range left {
		_ = os.Remove(path)
	}
}

// Find lists the places of a set that can be seen from here, in a local directory of one node or of several.
func Find(local, set string) []Place {
	if local == "" || !validSet(set) {
		return nil
	}
	var list []Place
	dirs, _ := filepath.Glob(filepath.Join(local, "node*")) // of a name with special characters: none
	for _, dir := range append([]string{local}, dirs...) {
		if st, err := os.Stat(filepath.Join(dir, set)); err == nil && st.IsDir() {
			list = append(list, Place{dir, set})
		}
	}
	return list
}

// newFile is a file that gets its name when it is complete and on stable storage.
type newFile struct {
	*os.File
	path string
}

func create(path string) (*newFile, error) {
	if err := fault.Point("levels.create"); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"+tempSuffix)
	if err != nil {
		return nil, err
	}
	return &newFile{f, path}, nil
}

func (f *newFile) Write(p []byte) (int, error) {
	if err := fault.Point("levels.write"); err != nil {
		n, _ := f.File.Write(p[:len(p)/2]) // as on a full disk: half of it is there
		return n, err
	}
	return f.File.Write(p)
}

// finish gives the file its name. On failure, or with an error given, nothing is left.
func (f *newFile) finish(err error) error {
	if err == nil {
		err = fault.Point("levels.sync")
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fault.Point("levels.rename")
	}
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return syncDir(filepath.Dir(f.path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
