// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/internal/sparse"
)

// LargeFile is the size from which a mapping of a file that is only read is not saved. Smaller ones are, so that a restart on
// another machine does not depend on files of its system.
const LargeFile = 64 << 20

// Readers lists the shared mappings of files that the program reads and does not write to, at least not there.
func Readers(regions []image.Region) (list []*image.Region) {
	for i := range regions {
		if r := &regions[i]; r.Flags == image.FlagFile|image.FlagShared && r.Prot&unix.PROT_WRITE == 0 {
			list = append(list, r)
		}
	}
	return list
}

// Refer sets FlagNoData for those of the list whose files have their names still, and returns these: their content is in the file,
// which a restart maps again, so that the program goes on to see there what is written to it.
func Refer(list []*image.Region) (referred []*image.Region, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return nil, fmt.Errorf("which files are mapped: %w", err)
	}
	byStart := map[uint64]*image.Region{}
	for _, r := range list {
		byStart[r.Start] = r
	}
	var at sparse.Mapping
	for line := range strings.Lines(string(smaps)) {
		if m, is := sparse.Parse(line); is {
			at = m
			continue
		}
		letters, is := strings.CutPrefix(line, "VmFlags:")
		if r := byStart[at.Start]; is && r != nil && r.End == at.End && r.Path == at.Path && hasName(&at) {
			r.Flags |= image.FlagNoData
			if slices.Contains(strings.Fields(letters), "mw") {
				r.Flags |= image.FlagMayWrite
			}
			r.Copied, r.Held = nil, nil
			referred = append(referred, r)
		}
	}
	return referred, nil
}

// What package unix does not have.
const overlayMagic = 0x794c7630

// hasName tells whether a restart finds the file by the name that the kernel has for it.
func hasName(m *sparse.Mapping) bool {
	var st unix.Stat_t
	if unix.Stat(m.Path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Ino != m.Inode || unix.Access(m.Path, unix.R_OK) != nil {
		return false
	}
	if st.Dev == m.Device {
		return true
	}
	var fs unix.Statfs_t // these have devices that mappings do not show
	return unix.Statfs(m.Path, &fs) == nil && (fs.Type == unix.BTRFS_SUPER_MAGIC || fs.Type == overlayMagic)
}

// refers tells whether the content of a region is that of its file.
func refers(r *image.Region) bool {
	return r.Flags&^image.FlagMayWrite == image.FlagFile|image.FlagShared|image.FlagNoData
}

// mapReferred maps such a region again.
func mapReferred(r *image.Region) error {
	mode := os.O_RDONLY
	if r.Flags&image.FlagMayWrite != 0 {
		mode = os.O_RDWR
	}
	file, err := openMapped(r, mode)
	if err != nil {
		return err
	}
	defer file.Close()
	return mapAt(r.Start, r.Bytes(), int(r.Prot), unix.MAP_SHARED, int(file.Fd()), int64(r.Offset))
}
