// SPDX-License-Identifier: Apache-2.0

package posixshm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/libckpt/libckpt/ckpt/image"
)

// SectionName is that of the section of an image.
const SectionName = "posix"

// Saved is a file as an image has it.
type Saved struct {
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
	Path   string `json:"path"`             // the name it had, also before that was removed
	Named  bool   `json:"named,omitempty"`  // it had it still
	Memory bool   `json:"memory,omitempty"` // of memfd_create
	Bytes  int64  `json:"bytes"`            // its size; without a name, up to where it is mapped
	Mode   uint32 `json:"mode"`             // permission bits
	UID    uint32 `json:"uid,omitempty"`
	GID    uint32 `json:"gid,omitempty"`
	Mtime  int64  `json:"mtime,omitempty"` // nanoseconds
	// Pieces are the parts, from and to, that this process has mapped.
	Pieces [][2]uint64 `json:"pieces"`
}

// Section is what an image says of the files of its process.
type Section struct {
	Boot  string  `json:"boot"` // of the kernel, whose numbers Dev and Ino are
	Files []Saved `json:"files"`
}

func (s *Saved) String() string {
	switch {
	case s.Memory:
		return fmt.Sprintf("the memory file %q", s.Path)
	case s.Named:
		return "the file in memory " + s.Path
	}
	return fmt.Sprintf("the mapped file without a name (it was %s)", s.Path)
}

// Mark turns regions of such files into memory that is shared by number, without content where another process has it, and
// describes the files. All programs are stopped; reports are those of Look, by rank. Obstacles say why one cannot be
// saved now; sealed tells which files may not be written to any more.
func Mark(regions []image.Region, rank int, reports []*Report, sealed func(dev, ino uint64) bool) (s *Section, obstacles []string, err error) {
	shared := func(r *image.Region) bool {
		return r.Flags&image.FlagShared != 0 && r.Flags&image.FlagFile != 0 && r.Flags&image.FlagNoData == 0
	}
	if !slices.ContainsFunc(regions, func(r image.Region) bool { return shared(&r) }) {
		return nil, nil, nil
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, nil, err
	}
	l := &looker{behind: map[uint64]mapping{}}
	eachShared(maps, func(start, _, _ uint64, _ bool, m mapping) { l.behind[start] = m })
	s = &Section{}
	for i := range regions {
		r := &regions[i]
		if !shared(r) {
			continue
		}
		one, err := l.look(r)
		if err != nil {
			return nil, nil, err
		}
		if one == nil {
			continue
		}
		if sealed(one.Dev, one.Ino) {
			obstacles = append(obstacles, fmt.Sprintf("%s is mapped, and sealed against writing (F_SEAL_WRITE): unmap it before the checkpoint", one))
			continue
		}
		n := slices.IndexFunc(s.Files, func(f Saved) bool { return f.Dev == one.Dev && f.Ino == one.Ino })
		if n < 0 {
			n = len(s.Files)
			s.Files = append(s.Files, *one)
		} else if !one.Named {
			s.Files[n].Bytes = max(s.Files[n].Bytes, one.Bytes)
		}
		s.Files[n].Pieces = append(s.Files[n].Pieces, [2]uint64{r.Offset, r.Offset + r.Bytes()})
		r.Flags = image.FlagShared | image.FlagAnonymous
		r.Path, r.Name = "", regionName(n)
		if saved(reports, rank, mapping{one.Dev, one.Ino}, r) {
			r.Flags |= image.FlagNoData
		}
	}
	if len(s.Files) == 0 || len(obstacles) > 0 {
		return nil, obstacles, nil
	}
	if s.Boot, err = boot(); err != nil {
		return nil, nil, err
	}
	return s, nil, nil
}

// covers tells whether pieces are all of a part of a file.
func covers(pieces [][2]uint64, from, to uint64) bool {
	pieces = slices.Clone(pieces)
	slices.SortFunc(pieces, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) })
	for _, p := range pieces {
		if p[0] <= from {
			from = max(from, p[1])
		}
	}
	return from >= to
}

func regionName(n int) string { return "[" + SectionName + " " + strconv.Itoa(n) + "]" }

// fileOf is which file of the section a region is of; false: of none.
func fileOf(r *image.Region) (int, bool) {
	name, is := strings.CutPrefix(r.Name, "["+SectionName+" ")
	name, ends := strings.CutSuffix(name, "]")
	if !is || !ends || r.Flags&image.FlagShared == 0 || r.Flags&image.FlagAnonymous == 0 {
		return 0, false
	}
	n, err := strconv.Atoi(name)
	return n, err == nil && n >= 0
}

// Names lists the paths of files that have one, and whether this process has all of each mapped.
func (s *Section) Names() map[string]bool {
	names := map[string]bool{}
	for i := range s.Files {
		if one := &s.Files[i]; one.Named {
			names[one.Path] = covers(one.Pieces, 0, uint64(one.Bytes))
		}
	}
	return names
}

// Encode is the section.
func (s *Section) Encode() ([]byte, error) { return json.Marshal(s) }

// maxBytes bounds a file, as memory does.
const maxBytes = 1 << 46

// Decode reads the section of an image.
func Decode(b []byte) (Section, error) {
	var s Section
	if err := json.Unmarshal(b, &s); err != nil {
		return s, err
	}
	seen := map[[2]uint64]bool{}
	for i := range s.Files {
		one := &s.Files[i]
		switch {
		case one.Bytes < 0 || one.Bytes > maxBytes:
			return s, fmt.Errorf("a file of %d bytes", one.Bytes)
		case one.Mode&^0o7777 != 0:
			return s, fmt.Errorf("a file of mode %o", one.Mode)
		case strings.ContainsRune(one.Path, 0):
			return s, fmt.Errorf("a file with the name %q", one.Path)
		case !one.Memory && (!path.IsAbs(one.Path) || path.Clean(one.Path) != one.Path || one.Path == "/"):
			return s, fmt.Errorf("a file with the name %q", one.Path)
		case one.Memory && one.Named:
			return s, fmt.Errorf("a memory file with a name, %q", one.Path)
		case seen[[2]uint64{one.Dev, one.Ino}]:
			return s, fmt.Errorf("the file %d of device %#x is there twice", one.Ino, one.Dev)
		}
		seen[[2]uint64{one.Dev, one.Ino}] = true
	}
	return s, nil
}

const pageSize = image.PageSize

// mapped is its size in whole pages.
func (s *Saved) mapped() uint64 { return (uint64(s.Bytes) + pageSize - 1) &^ (pageSize - 1) }
