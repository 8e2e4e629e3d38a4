// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// errThere says that nothing is replaced that nobody said shall be.
var errThere = errors.New("it is there already; take another name")

// orForce is for commands that have --force.
func orForce(err error) error {
	if errors.Is(err, errThere) {
		return fmt.Errorf("%w, or --force", err)
	}
	return err
}

// mayWrite looks whether writeOutput has a chance.
func mayWrite(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("writing %s: %w", path, errThere)
	}
	if st, err := os.Stat(filepath.Dir(path)); err != nil || !st.IsDir() {
		return fmt.Errorf("writing %s: there is no directory %s", path, filepath.Dir(path))
	}
	return nil
}

// writeOutput makes a file that is there as a whole or not at all. What is there already is refused, or with replace
// replaced, if it is a regular file.
func writeOutput(path string, p []byte, replace bool) error {
	fail := func(err error) error {
		var at *fs.PathError
		if errors.As(err, &at) { // it names a file that nobody knows
			err = at.Err
		}
		return fmt.Errorf("writing %s: %w", path, err)
	}
	switch st, err := os.Lstat(path); {
	case err == nil && !st.Mode().IsRegular():
		return fail(errors.New("it is there, and is not a regular file"))
	case err == nil && !replace:
		return fail(errThere)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(p)
	if err == nil {
		err = f.Sync() // a full disk may say so only now
	}
	if err == nil {
		err = f.Chmod(0o666 &^ umask())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fail(err)
	}
	return place(f.Name(), path, replace, fail)
}

// place gives a file or directory its name.
func place(temp, path string, replace bool, fail func(error) error) error {
	if !replace {
		err := unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
		if err == nil {
			return nil
		}
		if errors.Is(err, unix.EEXIST) {
			return fail(errThere)
		}
		if !errors.Is(err, unix.EINVAL) {
			return fail(err)
		}
		// A file system without the flag: somebody may take the name in between.
		if _, err := os.Lstat(path); err == nil {
			return fail(errThere)
		}
	}
	if err := os.Rename(temp, path); err != nil {
		return fail(err)
	}
	return nil
}

func umask() fs.FileMode {
	old := unix.Umask(0)
	unix.Umask(old)
	return fs.FileMode(old)
}
