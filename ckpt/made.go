// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/internal/regular"
)

// Names that the program gives to files after a checkpoint are noted in a log of each process, in the folder "made" of the checkpoint
// directory: so a restart can move out of the way what was not there at the epoch that it takes (capi/host/made.c). An image says
// where the log ended then. The log goes on from one run to the next, and what is before all epochs that are left is
// given back to the disk.

const (
	madeFolder = "made"
	madeMagic  = "ckptmade" // so no place in a log is 0
	// madeBatch is how much is given back at a time.
	madeBatch = 4 << 20
)

// madeLog is the log of this process.
type madeLog struct {
	file  *os.File
	tried bool
	ends  map[int]int64 // by epoch of which this is known
	freed int64
}

func (j *Job) madePath(s *store.Store) string {
	return filepath.Join(s.Dir(), madeFolder, store.ImagePrefix(j.meta.Rank))
}

// noteMade has names noted from now on, and returns where the log ends; 0: there is none.
func (j *Job) noteMade(s *store.Store) int64 {
	l := &j.made
	if !j.options.KeepsFiles() || j.regional != nil {
		return 0
	}
	if !l.tried {
		l.tried = true
		var err error
		if l.file, err = openMade(j.madePath(s)); err != nil {
			j.log.Warn("files that the program makes after this are not moved out of the way by a restart", zap.Error(err))
			return 0
		}
		j.host.Made(int(l.file.Fd()))
	}
	if l.file == nil {
		return 0
	}
	st, err := l.file.Stat()
	if err == nil && st.Size() < j.meta.Made { // a power cut has taken its end, of which nothing was made durable
		if err = l.file.Truncate(j.meta.Made); err == nil {
			return j.meta.Made
		}
	}
	if err != nil {
		return 0
	}
	return st.Size()
}

func openMade(path string) (*os.File, error) {
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	switch {
	case err != nil:
	case !st.Mode().IsRegular():
		err = fmt.Errorf("%s is not a regular file", path)
	case st.Size() == 0:
		_, err = f.WriteString(madeMagic)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// madeAt remembers where the log ended at an epoch, and frees what no epoch needs.
func (j *Job) madeAt(epoch int, end int64) {
	l := &j.made
	if l.file == nil || end == 0 {
		return
	}
	if l.ends == nil {
		l.ends = map[int]int64{}
	}
	l.ends[epoch] = end
	if end-l.freed < madeBatch {
		return
	}
	list, err := j.store.Epochs()
	if err != nil {
		return
	}
	for _, e := range list {
		at, known := l.ends[e.Number]
		if !known {
			return
		}
		end = min(end, at)
	}
	// A file system that cannot keeps it.
	if unix.Fallocate(int(l.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, end) == nil {
		l.freed = end
	}
}

// moveAside moves what this process made after the epoch out of the way.
func (j *Job) moveAside(s *store.Store) {
	if j.meta.Made == 0 || !j.options.KeepsFiles() {
		return
	}
	f, err := regular.Open(j.madePath(s), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) { // a copy of the epoch
		return
	}
	if err == nil {
		defer f.Close()
		_, err = f.Seek(j.meta.Made, io.SeekStart)
	}
	if err != nil {
		j.log.Warn("files that were made after the checkpoint are not moved out of the way", zap.Error(err))
		return
	}
	moved, problems := files.MoveAside(f)
	for _, p := range problems {
		j.log.Warn("a file that was made after the checkpoint", zap.Error(p))
	}
	if len(moved) > 0 {
		j.log.Warn("files that were made after the checkpoint have other names now (.newer)", zap.Int("files", len(moved)), zap.String("first", moved[0]))
	}
}
