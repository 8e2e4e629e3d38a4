// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
)

// The arena, as capi/host/arena.h lays it out. layout_test.go compares.
const (
	ArenaStart = 0x100000000000
	ArenaEnd   = 0x10c000000000
	// LowEnd: what lies below belongs to a program with fixed addresses.
	LowEnd = 1 << 31

	// GatePage is made anew by every ckptrun.
	GatePage    = ArenaStart
	GatePageEnd = ArenaStart + 4096
	// Tables is the window of the virtual ids; saved as a section, not as memory.
	Tables      = ArenaStart + 16<<20
	TablesBytes = 240 << 20
	// What the kernel calls [stack] and [heap] in a process of its own making, and cannot know here.
	stackStart, stackEnd = ArenaStart + 256<<20, ArenaStart + 512<<20
	heapStart, heapEnd   = ArenaStart + 1<<30, ArenaStart + 65<<30
)

// upper tells whether the addresses belong to what is saved as memory.
func upper(start, end uint64) bool {
	if start < LowEnd {
		return end <= LowEnd
	}
	if start < ArenaStart || end > ArenaEnd {
		return false
	}
	return start >= GatePageEnd && !(start >= Tables && end <= Tables+TablesBytes)
}

// Upper is upper, for others.
func Upper(start, end uint64) bool { return upper(start, end) }

// Regions lists the mappings of the upper half of this process.
func Regions() ([]image.Region, error) {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	return parseMaps(b)
}

func parseMaps(b []byte) ([]image.Region, error) {
	var out []image.Region
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		r, err := parseLine(sc.Text())
		if err != nil {
			return nil, err
		}
		if !upper(r.Start, r.End) {
			continue
		}
		if r.Flags == image.FlagAnonymous && r.Name == "" {
			r.Name = windowName(r.Start, r.End)
		}
		// Neighbours that differ in nothing are one region: the kernel keeps them apart for reasons of
		// its own, such as advice.
		if n := len(out); n > 0 && out[n-1].End == r.Start && mergeable(&out[n-1], &r) {
			out[n-1].End = r.End
			continue
		}
		out = append(out, r)
	}
	return out, sc.Err()
}

// windowName names memory by where it lies, for people.
func windowName(start, end uint64) string {
	switch {
	case start >= stackStart && end <= stackEnd:
		return "[stack]"
	case start >= heapStart && end <= heapEnd:
		return "[heap]"
	}
	return ""
}

// Names of files that ranks share as memory of a window (capi/back/window/window_share.c). Each rank saves
// its own; the runtime maps all of them again.
const (
	ownShared  = "/dev/shm/libckpt-own-"
	peerShared = "/dev/shm/libckpt-peer-"
)

// Own turns the shared mappings whose starts and ends are in addresses into memory of this process alone: a restart
// restores them without sharing, whatever file they were of.
func Own(regions []image.Region, addresses []uint64) {
	for i := range regions {
		r := &regions[i]
		for k := 0; k+1 < len(addresses); k += 2 {
			if r.Flags&image.FlagShared != 0 && r.Start >= addresses[k] && r.End <= addresses[k+1] {
				r.Flags, r.Path, r.Name, r.Offset = image.FlagShared|image.FlagAnonymous, "", "[window]", 0
			}
		}
	}
}

func mergeable(a, b *image.Region) bool {
	return a.Prot == b.Prot && a.Flags == b.Flags && a.Flags == image.FlagAnonymous && a.Name == b.Name
}

// parseLine reads "start-end rwxp offset dev inode path".
func parseLine(line string) (image.Region, error) {
	bad := func() (image.Region, error) {
		return image.Region{}, fmt.Errorf("/proc/self/maps: cannot read the line %q", line)
	}
	f := strings.SplitN(line, " ", 6)
	if len(f) < 5 || len(f[1]) != 4 {
		return bad()
	}
	from, to, ok := strings.Cut(f[0], "-")
	start, err1 := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	offset, err3 := strconv.ParseUint(f[2], 16, 64)
	if !ok || err1 != nil || err2 != nil || err3 != nil || end <= start {
		return bad()
	}
	r := image.Region{Start: start, End: end, Offset: offset}
	for i, p := range []uint32{unix.PROT_READ, unix.PROT_WRITE, unix.PROT_EXEC} {
		if f[1][i] != '-' {
			r.Prot |= p
		}
	}
	if f[1][3] == 's' {
		r.Flags |= image.FlagShared
	}
	name := ""
	if len(f) == 6 {
		name = strings.TrimLeft(f[5], " ")
	}
	switch {
	case strings.HasPrefix(name, ownShared), strings.HasPrefix(name, peerShared):
		r.Name = "[shared window]"
		r.Flags |= image.FlagAnonymous
		if strings.HasPrefix(name, peerShared) {
			r.Flags |= image.FlagNoData
		}
		r.Offset = 0
	case strings.HasPrefix(name, "/"):
		r.Path = name
		r.Flags |= image.FlagFile
		if r.Flags&image.FlagShared != 0 && strings.HasPrefix(name, "/dev/zero (deleted)") {
			r.Flags = r.Flags&^image.FlagFile | image.FlagAnonymous
			r.Path = ""
			r.Offset = 0
		}
	default:
		r.Name = name
		r.Flags |= image.FlagAnonymous
		r.Offset = 0
	}
	return r, nil
}
