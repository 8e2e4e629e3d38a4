// SPDX-License-Identifier: Apache-2.0

package posixshm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
)

const (
	deleted = " (deleted)"
	memfd   = "/memfd:"
)

// mapping is what the kernel says of the file behind a mapping.
type mapping struct{ dev, ino uint64 }

// mappings reads /proc/PID/maps: files by the address where a mapping begins.
func mappings(maps []byte) map[uint64]mapping {
	out := map[uint64]mapping{}
	sc := bufio.NewScanner(bytes.NewReader(maps))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 6 {
			continue
		}
		from, _, _ := strings.Cut(f[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		major, minor, _ := strings.Cut(f[3], ":")
		hi, err2 := strconv.ParseUint(major, 16, 32)
		lo, err3 := strconv.ParseUint(minor, 16, 32)
		ino, err4 := strconv.ParseUint(f[4], 10, 64)
		if errors.Join(err1, err2, err3, err4) == nil {
			out[start] = mapping{unix.Mkdev(uint32(hi), uint32(lo)), ino}
		}
	}
	return out
}

// looker finds out what the files behind mappings are.
type looker struct {
	behind  map[uint64]mapping
	memory  uint64 // device of files of memfd_create; 0: not asked yet
	folders map[string]map[mapping]string
}

// look describes the file of a shared mapping; nil: it is none of ours. The content of a file on a disk is its own, and what
// the kernel maps for a device has none.
func (l *looker) look(r *image.Region) (*Saved, error) {
	m, is := l.behind[r.Start]
	if !is || m.ino == 0 {
		return nil, nil
	}
	one := &Saved{Dev: m.dev, Ino: m.ino, Path: r.Path, Bytes: int64(r.Offset + r.Bytes()), Mode: 0o600}
	if st := statOf(one.Path, m); st != nil {
		if !inMemory(one.Path) {
			return nil, nil
		}
		one.named(st)
		return one, nil
	}
	name, gone := strings.CutSuffix(r.Path, deleted)
	if !gone {
		return nil, nil
	}
	one.Path = name
	if rest, is := strings.CutPrefix(name, memfd); is {
		dev, err := l.memoryDevice()
		if err != nil || dev != m.dev {
			return nil, err
		}
		one.Path, one.Memory = rest, true
		return one, nil
	}
	dir := filepath.Dir(name)
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil || st.Dev != m.dev {
		return nil, nil // nothing tells that it is a file of this system
	}
	if inMemory(dir) { // sem_open maps a file under a first name, and gives it the other one then
		if other := l.names(dir)[m]; other != "" {
			if st := statOf(other, m); st != nil {
				one.Path = other
				one.named(st)
			}
		}
	}
	return one, nil
}

// statOf is what a path leads to when that is the file of a mapping, and a regular one.
func statOf(path string, m mapping) *unix.Stat_t {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || st.Dev != m.dev || st.Ino != m.ino || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	return &st
}

func (s *Saved) named(st *unix.Stat_t) {
	s.Named, s.Bytes = true, st.Size
	s.Mode, s.UID, s.GID, s.Mtime = st.Mode&0o7777, st.Uid, st.Gid, st.Mtim.Nano()
}

func inMemory(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC)
}

func (l *looker) memoryDevice() (uint64, error) {
	if l.memory != 0 {
		return l.memory, nil
	}
	fd, err := unix.MemfdCreate("device", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("tell which mappings are of memfd_create: %w", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	l.memory = st.Dev
	return l.memory, nil
}

// names lists a folder by what its entries are.
func (l *looker) names(dir string) map[mapping]string {
	if have, is := l.folders[dir]; is {
		return have
	}
	entries, _ := os.ReadDir(dir) // without it the file has no name
	have := map[mapping]string{}
	for _, e := range entries {
		var st unix.Stat_t
		path := filepath.Join(dir, e.Name())
		if unix.Lstat(path, &st) == nil {
			have[mapping{st.Dev, st.Ino}] = path
		}
	}
	if l.folders == nil {
		l.folders = map[string]map[mapping]string{}
	}
	l.folders[dir] = have
	return have
}
