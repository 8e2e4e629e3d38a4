// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// made is a name that the application gave to a file: struct made_name of capi/host/hostgo.h, and the path.
type made struct {
	Ino     uint64
	Seconds int64
	Nanos   uint32
	Known   uint32 // madeThen, or when is unknown, or madeBegins
	Length  uint32 // of the path
	Thread  uint32
}

const (
	madeThen   = 1 // the file system says when
	madeBegins = 2 // nothing had the name then, and the thread was about to give it

	// Of files that were there; a size stands before the path, and madeThen may be added.
	madeAppends = 0x10 // it was opened to append
	madeCloses  = 0x20 // and is about to be closed
	madeWrites  = 0x30 // it was opened to write anywhere
	madeCut     = 0x40 // a restart cut it
	madeLost    = 0x50 // more is not known
)

// sized tells whether a size stands before the path.
func (m *made) sized() bool { return m.Known >= madeAppends }

// size of a sized record and its path, which may be missing.
func (m *made) size(payload string) (int64, string) {
	return int64(binary.LittleEndian.Uint64([]byte(payload))), payload[8:]
}

// madeTicks is by how much the time of a file system may lag.
const madeTicks = 20 * time.Millisecond

// memoryFolder is where files are memory, which nobody keeps for its content.
const memoryFolder = "/dev/shm/"

// MoveAside reads a log of names that the application gave to files after an epoch (Host.Made), and moves those files that are still
// there out of the way: the program makes them again. A file gets newerSuffix, as PutBack does it, and one in memory is removed. Another
// one that has the name since then stays. Nobody of the job runs, and PutBack comes later. The log may end within a record.
//
// moved are the old names; problems say what could not be moved.
func MoveAside(log io.Reader) (moved []string, problems []error) {
	aside := func(m *made, path string) {
		switch is, err := m.aside(path); {
		case err != nil:
			problems = append(problems, err)
		case is:
			moved = append(moved, path)
		}
	}
	begun := map[uint32]func(){} // by thread: what it did not come to the end of, or could not do
	err := eachMade(log, func(m *made, path string) {
		if m.sized() {
			return
		}
		if m.Known == madeBegins {
			begun[m.Thread] = func() { aside(m, path) }
			return
		}
		delete(begun, m.Thread)
		aside(m, path)
	})
	for _, thread := range slices.Sorted(maps.Keys(begun)) {
		begun[thread]()
	}
	if err != nil {
		problems = append(problems, err)
	}
	return moved, problems
}

// eachMade calls do with each record and what follows it.
func eachMade(log io.Reader, do func(m *made, payload string)) error {
	damaged := errors.New("a record of files that were made is damaged")
	in := bufio.NewReader(log)
	for {
		var m made
		err := binary.Read(in, binary.LittleEndian, &m)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		case m.Length == 0 || m.Length > 2*unix.PathMax || m.sized() && m.Length < 8 ||
			m.Known > madeBegins && (m.Known < madeAppends || m.Known > madeLost|madeThen || m.Known&^madeThen%madeAppends != 0):
			return damaged
		}
		b := make([]byte, m.Length)
		if _, err := io.ReadFull(in, b); err != nil { // the process was killed meanwhile
			return nil
		}
		path, size := string(b), int64(0)
		if m.sized() {
			size, path = m.size(path)
		}
		if size < 0 || !(filepath.IsAbs(path) || m.sized() && path == "") || strings.ContainsRune(path, 0) {
			return damaged
		}
		do(&m, string(b))
	}
}

// aside moves it, if it is this one.
func (m *made) aside(path string) (is bool, err error) {
	var st unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME|unix.STATX_TYPE, &st)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	born, at := time.Unix(st.Btime.Sec, int64(st.Btime.Nsec)), time.Unix(m.Seconds, int64(m.Nanos))
	says := st.Mask&unix.STATX_BTIME != 0
	switch {
	case m.Known == madeBegins && m.Ino == 0:
		if !says || born.Before(at.Add(-madeTicks)) {
			return false, nil
		}
	case st.Ino != m.Ino, says && m.Known == madeThen && !born.Equal(at):
		return false, nil
	}
	if strings.HasPrefix(path, memoryFolder) && st.Mode&unix.S_IFMT == unix.S_IFREG {
		return true, os.Remove(path)
	}
	to := path + newerSuffix
	if st.Mode&unix.S_IFMT == unix.S_IFDIR { // it cannot replace one that holds something
		for n := 2; n < 1000; n++ {
			if _, err := os.Lstat(to); err != nil {
				break
			}
			to = path + newerSuffix + strconv.Itoa(n)
		}
	}
	var there unix.Stat_t
	if unix.Lstat(to, &there) == nil && there.Ino == st.Ino { // two names of one file, of which rename takes none away
		return true, os.Remove(path)
	}
	if err := os.Rename(path, to); err != nil {
		return false, fmt.Errorf("what was made after the checkpoint stays: %w", err)
	}
	return true, nil
}
