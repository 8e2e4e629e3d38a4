// SPDX-License-Identifier: Apache-2.0

package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// kindError says what is there instead of a regular file.
type kindError struct{ mode fs.FileMode }

func (e kindError) Error() string {
	kind := "something else"
	switch m := e.mode; {
	case m.IsDir():
		kind = "a directory"
	case m&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	case m&fs.ModeSocket != 0:
		kind = "a socket"
	case m&fs.ModeDevice != 0:
		kind = "a device"
	}
	return "is " + kind + ", not a regular file"
}

// IsOther tells whether an error of this package says that something else is there instead of a regular file.
func IsOther(err error) bool {
	var kind kindError
	return errors.As(err, &kind)
}

func check(path string, st os.FileInfo) error {
	if st.Mode().IsRegular() {
		return nil
	}
	return &fs.PathError{Op: "open", Path: path, Err: kindError{st.Mode()}}
}

// Open opens a file; flags are those of os.OpenFile, without os.O_CREATE. It never waits for the other end
// of a pipe.
func Open(path string, flags int) (*os.File, error) {
	// Before it is opened: opening a device can be more than that.
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := check(path, st); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	// And after it: it may have become another one since.
	if st, err = f.Stat(); err == nil {
		err = check(path, st)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// ReadFile reads a whole file, which may have up to most bytes.
func ReadFile(path string, most int64) ([]byte, error) {
	f, err := Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > most {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("has more than %d bytes", most)}
	}
	return b, nil
}
