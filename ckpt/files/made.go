// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
	Known   uint32 // madeThen, or when is unknown, or madeBegins, or madeNamed
	Length  uint32 // of the path
	Thread  uint32
}

// madeNamed is that of a spoiltNamed.
const madeNamed = 1 << 31

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

// sized tells whether a size stands before the path, alone.
func (m *made) sized() bool { return m.Known >= madeAppends && !m.spoilt() }

// spoilt tells whether a struct made_spoilt stands before the path.
func (m *made) spoilt() bool { return m.Known >= spoiltContent }

// size of a sized record and its path, which may be missing.
func (m *made) size(payload string) (int64, string) {
	return int64(binary.LittleEndian.Uint64([]byte(payload))), payload[8:]
}

// madeTicks is by how much the time of a file system may lag.
const madeTicks = 20 * time.Millisecond

// memoryFolder is where files are memory, which nobody keeps for its content.
const memoryFolder = "/dev/shm/"

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
		case m.Length == 0 || m.Length > uint32(spoiltBytes)+2*unix.PathMax || m.sized() && m.Length < 8 || m.spoilt() && m.Length < uint32(spoiltBytes) ||
			m.Known > madeBegins && (m.Known < madeAppends || m.Known > spoiltAgain|madeThen || m.Known&^madeThen%madeAppends != 0):
			return damaged
		}
		b := make([]byte, m.Length)
		if _, err := io.ReadFull(in, b); err != nil { // the process was killed meanwhile
			return nil
		}
		if m.spoilt() {
			if _, err := parseSpoilt(&m, string(b)); err != nil {
				return damaged
			}
			do(&m, string(b))
			continue
		}
		path, size := string(b), int64(0)
		if m.sized() {
			size, path = m.size(path)
		}
		if size < 0 || size >= noEnd || !(filepath.IsAbs(path) || m.sized() && path == "") || strings.ContainsRune(path, 0) {
			return damaged
		}
		do(&m, string(b))
	}
}

// aside moves it out of the way, if it is this one: a file gets newerSuffix, as PutBack does it, and one in memory is removed. Another one
// that has the name since then stays.
func (u *Undoing) aside(m *made, path string) (is bool, err error) {
	var st unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME|unix.STATX_TYPE, &st)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	of := u.original(whichIs(&st))
	born, at := time.Unix(of.Seconds, int64(of.Nanos)), time.Unix(m.Seconds, int64(m.Nanos))
	says := st.Mask&unix.STATX_BTIME != 0
	switch {
	case m.Known == madeBegins && m.Ino == 0, m.Known == madeNamed && says:
		if !says || born.Before(at.Add(-madeTicks)) {
			return false, nil
		}
	case m.Known == madeThen:
		if !u.same(Which{Ino: m.Ino, Seconds: m.Seconds, Nanos: m.Nanos}, whichIs(&st)) {
			return false, nil
		}
	case !u.same(Which{Ino: m.Ino}, whichIs(&st)):
		return false, nil
	}
	if strings.HasPrefix(path, memoryFolder) && st.Mode&unix.S_IFMT == unix.S_IFREG {
		return true, os.Remove(path)
	}
	return true, moveNewer(path)
}

// moveNewer makes a name free: what has it gets newerSuffix.
func moveNewer(path string) error {
	var is, there unix.Stat_t
	if err := unix.Lstat(path, &is); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	to := path + newerSuffix
	if is.Mode&unix.S_IFMT == unix.S_IFDIR { // it cannot replace one that holds something
		for n := 2; n < 1000; n++ {
			if _, err := os.Lstat(to); err != nil {
				break
			}
			to = path + newerSuffix + strconv.Itoa(n)
		}
	}
	if unix.Lstat(to, &there) == nil && there.Ino == is.Ino { // two names of one file, of which rename takes none away
		return os.Remove(path)
	}
	if err := os.Rename(path, to); err != nil && missing(path) { // another process has done it
		return nil
	} else if err != nil {
		return fmt.Errorf("what was made after the checkpoint stays: %w", err)
	}
	return nil
}
