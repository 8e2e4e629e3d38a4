// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Flags of regions. The numbers are part of the format and never reused.
const (
	FlagShared    uint32 = 1 << 0 // MAP_SHARED
	FlagAnonymous uint32 = 1 << 1 // no file behind it
	FlagFile      uint32 = 1 << 2 // a file behind it; pages that are not present are those of the file
	FlagStack     uint32 = 1 << 3 // grows down
	FlagNoData    uint32 = 1 << 4 // recorded without content (rebuilt by others)
	FlagMayWrite  uint32 = 1 << 5 // a file that was opened to write, too: mprotect may allow that
	flagsKnown           = 1<<6 - 1
)

// Region is a mapping: the addresses from Start up to End, both multiples of PageSize.
type Region struct {
	Start, End uint64
	Prot       uint32 // PROT_*
	Flags      uint32 // Flag*
	Offset     uint64 // in the file Path
	Path       string // of the file behind it; "" when there is none
	Name       string // for people: "[heap]", "[stack]", ...

	// These are used only for writing. Copied is the content when it was copied beforehand, as for shared mappings, which
	// others may change while the process is frozen; nil: the content comes from Input.Memory. Held lists which pages
	// of such a region may hold data, in ascending order, where Input.Memory does not know; nil: all.
	Copied Copied
	Held   []Extent
}

// Bytes is the length of the region.
func (r *Region) Bytes() uint64 { return r.End - r.Start }

func (r *Region) String() string {
	s := fmt.Sprintf("0x%x-0x%x", r.Start, r.End)
	if r.Name != "" {
		return s + " " + r.Name
	}
	if r.Path != "" {
		return s + " " + r.Path
	}
	return s
}

// checkRegions says what is wrong with a list of regions, which must ascend without overlap, in whole
// pages.
func checkRegions(regions []Region) error {
	var last uint64
	for i := range regions {
		r := &regions[i]
		switch {
		case r.Start%PageSize != 0 || r.End%PageSize != 0:
			return fmt.Errorf("region %d (%v) is not made of whole pages", i, r)
		case r.End <= r.Start:
			return fmt.Errorf("region %d (%v) is empty", i, r)
		case r.Start < last:
			return fmt.Errorf("region %d (%v) begins before the end of the one before, 0x%x", i, r, last)
		case r.End > math.MaxInt64:
			return fmt.Errorf("region %d (%v) lies in the kernel's half of the address space", i, r)
		case r.Flags&^flagsKnown != 0:
			return fmt.Errorf("region %d (%v) has unknown flags 0x%x", i, r, r.Flags&^flagsKnown)
		}
		last = r.End
	}
	return nil
}

// The section "regions" has a count, then one entry per region, then the strings.
const (
	regionsHead  = 16 // count u64, bytes of one entry u32, zero u32
	regionsEntry = 56
)

func encodeRegions(regions []Region) []byte {
	le := binary.LittleEndian
	p := make([]byte, regionsHead+regionsEntry*len(regions))
	le.PutUint64(p[0:], uint64(len(regions)))
	le.PutUint32(p[8:], regionsEntry)
	for i := range regions {
		r := &regions[i]
		// p grows behind the entries, so the entry is looked up each time.
		path, name := len(p), len(p)+len(r.Path)
		p = append(append(p, r.Path...), r.Name...)
		e := p[regionsHead+i*regionsEntry:]
		le.PutUint64(e[0:], r.Start)
		le.PutUint64(e[8:], r.End)
		le.PutUint64(e[16:], r.Offset)
		le.PutUint32(e[24:], r.Prot)
		le.PutUint32(e[28:], r.Flags)
		le.PutUint32(e[32:], uint32(path))
		le.PutUint32(e[36:], uint32(len(r.Path)))
		le.PutUint32(e[40:], uint32(name))
		le.PutUint32(e[44:], uint32(len(r.Name)))
	}
	return p
}

func decodeRegions(p []byte) ([]Region, error) {
	le := binary.LittleEndian
	if len(p) < regionsHead {
		return nil, fmt.Errorf("%d bytes are too few for a list of regions", len(p))
	}
	n, entry := le.Uint64(p[0:]), le.Uint32(p[8:])
	if entry != regionsEntry || le.Uint32(p[12:]) != 0 {
		return nil, fmt.Errorf("an entry has %d bytes, expected %d, and zero behind that number", entry, regionsEntry)
	}
	if n > uint64(len(p)-regionsHead)/regionsEntry {
		return nil, fmt.Errorf("%d regions do not fit in %d bytes", n, len(p))
	}
	text := func(at, length uint32) (string, error) {
		if uint64(at)+uint64(length) > uint64(len(p)) {
			return "", fmt.Errorf("a text at %d of %d bytes lies outside", at, length)
		}
		return string(p[at : at+length]), nil
	}
	regions := make([]Region, n)
	for i := range regions {
		r, e := &regions[i], p[regionsHead+i*regionsEntry:]
		r.Start, r.End, r.Offset = le.Uint64(e[0:]), le.Uint64(e[8:]), le.Uint64(e[16:])
		r.Prot, r.Flags = le.Uint32(e[24:]), le.Uint32(e[28:])
		if le.Uint64(e[48:]) != 0 {
			return nil, fmt.Errorf("region %d: reserved bytes are not zero", i)
		}
		var err error
		if r.Path, err = text(le.Uint32(e[32:]), le.Uint32(e[36:])); err != nil {
			return nil, fmt.Errorf("region %d: %w", i, err)
		}
		if r.Name, err = text(le.Uint32(e[40:]), le.Uint32(e[44:])); err != nil {
			return nil, fmt.Errorf("region %d: %w", i, err)
		}
	}
	return regions, checkRegions(regions)
}
