// SPDX-License-Identifier: Apache-2.0

package sparse

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/pagemap"
	"github.com/libckpt/libckpt/internal/regular"
)

const (
	page = 4096
	// Least is the size of a mapping from which it is worth asking: of smaller ones Held says that all of them may hold data.
	Least = 256 << 10
	// most is how much memory mincore is asked about at a time: it wants one byte of room for each page.
	most = 1 << 30
)

// Mapping is a line of /proc/self/maps.
type Mapping struct {
	Start, End, Offset uint64
	Device, Inode      uint64 // of the file; as stat has them, but for file systems that have several devices (btrfs, overlayfs)
	Path               string
}

// Finder answers for the mappings of this process as they were when it was made.
type Finder struct {
	mappings map[uint64]Mapping // by start
	memory   uint64             // the device of files that are memory; 0: not known
	links    bool               // /proc/self/map_files may be opened, which needs a privilege
}

// New looks at the mappings of this process.
func New() (*Finder, error) {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	f := &Finder{mappings: map[uint64]Mapping{}, links: true}
	for line := range strings.Lines(string(b)) {
		m, ok := Parse(line)
		if !ok {
			return nil, fmt.Errorf("/proc/self/maps: cannot read the line %q", line)
		}
		f.mappings[m.Start] = m
	}
	if fd, err := unix.MemfdCreate("libckpt-sparse", unix.MFD_CLOEXEC); err == nil {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil {
			f.memory = st.Dev
		}
		_ = unix.Close(fd)
	}
	return f, nil
}

// Parse reads "start-end rwxp offset major:minor inode path".
func Parse(line string) (m Mapping, ok bool) {
	f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 6)
	if len(f) < 5 {
		return m, false
	}
	from, to, is := strings.Cut(f[0], "-")
	major, minor, are := strings.Cut(f[3], ":")
	var errs [6]error
	var big, small uint64
	m.Start, errs[0] = strconv.ParseUint(from, 16, 64)
	m.End, errs[1] = strconv.ParseUint(to, 16, 64)
	m.Offset, errs[2] = strconv.ParseUint(f[2], 16, 64)
	big, errs[3] = strconv.ParseUint(major, 16, 32)
	small, errs[4] = strconv.ParseUint(minor, 16, 32)
	m.Inode, errs[5] = strconv.ParseUint(f[4], 10, 64)
	m.Device = unix.Mkdev(uint32(big), uint32(small))
	if len(f) == 6 {
		m.Path = strings.TrimLeft(f[5], " ")
	}
	return m, is && are && errors.Join(errs[:]...) == nil && m.Start < m.End
}

// Held lists, in ascending order, the pages of a shared mapping that may hold data. The others are zeros, or lie behind the end of
// the file. That of which the kernel cannot say it may hold data. Nobody writes there meanwhile.
//
// It opens the file and closes it again, which takes the POSIX locks on it from whoever shares the caller's table of descriptors.
func (f *Finder) Held(start, end uint64) []pagemap.Extent {
	whole := []pagemap.Extent{{Start: start, End: end}}
	m, is := f.mappings[start]
	if !is || m.End != end || end-start < Least {
		return whole
	}
	if file := f.open(m); file != nil {
		defer file.Close()
		if list, err := inFile(file, m); err == nil {
			return list
		}
	}
	// mincore knows of memory what is there, and of other files what is in the cache.
	if f.memory == 0 || m.Device != f.memory {
		return whole
	}
	list, err := resident(start, end)
	if err != nil || swapped(start, end) {
		return whole
	}
	return list
}

// open opens the file that is mapped, if it can be told to be that one and is of a file system that says where data are, those
// written to a mapping and not yet to the disk among them; nil: it is not. Those of FUSE do not know the latter.
func (f *Finder) open(m Mapping) *os.File {
	var file *os.File
	if f.links {
		var err error
		if file, err = regular.Open(fmt.Sprintf("/proc/self/map_files/%x-%x", m.Start, m.End), os.O_RDONLY); err != nil {
			f.links = !errors.Is(err, unix.EPERM)
		}
	}
	if file == nil {
		var err error
		if !strings.HasPrefix(m.Path, "/") {
			return nil
		}
		if file, err = regular.Open(m.Path, os.O_RDONLY); err != nil {
			return nil
		}
		var st unix.Stat_t
		if unix.Fstat(int(file.Fd()), &st) != nil || st.Dev != m.Device || st.Ino != m.Inode {
			_ = file.Close()
			return nil
		}
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(int(file.Fd()), &fs) == nil {
		switch fs.Type {
		case unix.TMPFS_MAGIC, unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC:
			return file
		}
	}
	_ = file.Close()
	return nil
}

// inFile lists the pages of a mapping where its file has data.
func inFile(file *os.File, m Mapping) (list []pagemap.Extent, err error) {
	fd, bytes := int(file.Fd()), m.End-m.Start
	if m.Offset > math.MaxInt64-bytes {
		return nil, unix.EOVERFLOW
	}
	for at := int64(m.Offset); at < int64(m.Offset+bytes); {
		data, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // no more
			break
		}
		if err != nil {
			return nil, err
		}
		hole, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		if data < at || hole <= data {
			return nil, fmt.Errorf("%s: data from %d to %d, looked for from %d on", file.Name(), data, hole, at)
		}
		from := max(uint64(data)&^(page-1), m.Offset)
		to := min((uint64(hole)+page-1)&^(page-1), m.Offset+bytes)
		if from < to {
			list = add(list, pagemap.Extent{Start: m.Start + from - m.Offset, End: m.Start + to - m.Offset})
		}
		at = hole
	}
	return list, nil
}

// add is pagemap.Append for ranges that may overlap the last one: blocks of a file may be smaller than pages.
func add(list []pagemap.Extent, e pagemap.Extent) []pagemap.Extent {
	if n := len(list); n > 0 {
		e.Start = max(e.Start, list[n-1].End)
	}
	if e.Start >= e.End {
		return list
	}
	return pagemap.Append(list, e)
}

// resident lists the pages that are in memory. The kernel says so of all where it will not tell.
func resident(start, end uint64) (list []pagemap.Extent, err error) {
	in := make([]byte, min(end-start, most)/page)
	for at := start; at < end; at += most {
		to := min(at+most, end)
		_, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(at), uintptr(to-at), uintptr(unsafe.Pointer(unsafe.SliceData(in))))
		if e != 0 {
			return nil, e
		}
		for i := range in[:(to-at)/page] {
			if in[i]&1 != 0 {
				list = pagemap.Append(list, pagemap.Extent{Start: at + uint64(i)*page, End: at + uint64(i+1)*page})
			}
		}
	}
	return list, nil
}

// swapped tells whether pages of a mapping may be on swap space, where mincore does not see them. It is asked afterwards: pages
// that nobody uses only go there.
func swapped(start, end uint64) bool {
	if b, err := os.ReadFile("/proc/swaps"); err == nil && strings.Count(string(b), "\n") <= 1 {
		return false // there is none
	}
	b, err := os.ReadFile("/proc/self/smaps")
	return err != nil || swapOf(string(b), start, end) != "0 kB"
}

// swapOf is what smaps says of a mapping's swap; "" when it does not.
func swapOf(smaps string, start, end uint64) string {
	here := false
	for line := range strings.Lines(smaps) {
		if m, ok := Parse(line); ok {
			here = m.Start == start && m.End == end
		} else if rest, is := strings.CutPrefix(line, "Swap:"); is && here {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
