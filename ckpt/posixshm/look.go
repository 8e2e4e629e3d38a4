// SPDX-License-Identifier: Apache-2.0

package posixshm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/shm"
)

const (
	deleted = " (deleted)"
	memfd   = "/memfd:"
)

// mapping is what the kernel says of the file behind a mapping.
type mapping struct{ dev, ino uint64 }

// eachShared reads /proc/PID/maps: shared mappings with a file behind them.
func eachShared(maps []byte, do func(start, end, offset uint64, writable bool, m mapping)) {
	for line := range bytes.Lines(maps) {
		f := bytes.Fields(line)
		if len(f) < 6 || len(f[1]) != 4 || f[1][3] != 's' {
			continue
		}
		from, to, _ := strings.Cut(string(f[0]), "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		offset, err3 := strconv.ParseUint(string(f[2]), 16, 64)
		major, minor, _ := strings.Cut(string(f[3]), ":")
		hi, err4 := strconv.ParseUint(major, 16, 32)
		lo, err5 := strconv.ParseUint(minor, 16, 32)
		ino, err6 := strconv.ParseUint(string(f[4]), 10, 64)
		if errors.Join(err1, err2, err3, err4, err5, err6) == nil && ino != 0 {
			do(start, end, offset, f[1][1] == 'w', mapping{unix.Mkdev(uint32(hi), uint32(lo)), ino})
		}
	}
}

// Report is what a process tells the others before any of them saves: which parts of files it may write to through its memory.
type Report struct {
	Boot  string   `json:"boot"`
	Files []Writes `json:"files"`
}

// Writes are parts of a file, from and to.
type Writes struct {
	Dev    uint64      `json:"dev"`
	Ino    uint64      `json:"ino"`
	Pieces [][2]uint64 `json:"pieces"`
}

// Look is the report of this process, whose program is stopped; nil: it shares nothing. maps is its /proc/self/maps, and upper
// says which addresses are the program's.
func Look(maps []byte, upper func(start, end uint64) bool) (*Report, error) {
	r, any := &Report{}, false
	eachShared(maps, func(start, end, offset uint64, writable bool, m mapping) {
		if !upper(start, end) {
			return
		}
		if any = true; !writable {
			return
		}
		i := slices.IndexFunc(r.Files, func(w Writes) bool { return w.Dev == m.dev && w.Ino == m.ino })
		if i < 0 {
			i = len(r.Files)
			r.Files = append(r.Files, Writes{Dev: m.dev, Ino: m.ino})
		}
		r.Files[i].Pieces = append(r.Files[i].Pieces, [2]uint64{offset, offset + end - start})
	})
	if !any {
		return nil, nil
	}
	var err error
	r.Boot, err = boot()
	return r, err
}

// boot is that of the kernel.
func boot() (string, error) {
	node, err := shm.Here()
	if node.Boot != "" {
		return node.Boot, nil // what is not there is no matter before a restart
	}
	return "", err
}

// saved tells whether other processes save a part of a file: those before this one that may write to it, or any if this one may
// not. So each part is in one image, and whoever fills it after a restart may.
func saved(reports []*Report, rank int, m mapping, r *image.Region) bool {
	if rank >= len(reports) || reports[rank] == nil {
		return false
	}
	mine, writable := reports[rank], r.Prot&unix.PROT_WRITE != 0
	var pieces [][2]uint64
	for p, report := range reports {
		if report == nil || writable && p >= rank || report.Boot != mine.Boot {
			continue
		}
		for _, w := range report.Files {
			if w.Dev == m.dev && w.Ino == m.ino {
				pieces = append(pieces, w.Pieces...)
			}
		}
	}
	return covers(pieces, r.Offset, r.Offset+r.Bytes())
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
