// SPDX-License-Identifier: Apache-2.0

package regions

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/libckpt/libckpt/ckpt/image"
)

// Named is memory that a program names by a number of its own (MPIX_Checkpoint_protect).
type Named struct {
	ID    int    `json:"id"`
	Bytes uint64 `json:"bytes"`
	At    uint64 `json:"at"` // where it begins in the image, whose addresses are those of no process
	// Block: it is a part of an array that is spread over all ranks; nil: it is this rank's own.
	Block *Block `json:"block,omitempty"`
}

// apart is the distance between the beginnings of two regions in an image.
const apart = 1 << 40

const (
	// MaxNamed is the most regions that a rank can have, MaxBytes the most bytes of one.
	MaxNamed = 1 << 20
	MaxBytes = apart
)

// pages is the bytes of a region in an image.
func (n *Named) pages() uint64 {
	return (n.Bytes + image.PageSize - 1) / image.PageSize * image.PageSize
}

// State is the section "protected" of an image: what its rank had named.
type State struct {
	Version int     `json:"version"` // stateVersion
	Regions []Named `json:"regions"` // by id
}

const stateVersion = 1

// NewState gives each region its place. The order of the regions becomes that of their ids.
func NewState(list []Named) (*State, error) {
	s := &State{Version: stateVersion, Regions: list}
	slices.SortFunc(s.Regions, func(a, b Named) int { return compareInt(a.ID, b.ID) })
	for i := range s.Regions {
		s.Regions[i].At = uint64(i+1) * apart
	}
	return s, s.check()
}

func compareInt(a, b int) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Encode returns the section.
func (s *State) Encode() ([]byte, error) { return json.Marshal(s) }

// DecodeState reads the section.
func DecodeState(b []byte) (*State, error) {
	s := new(State)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, err
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("has version %d, this libckpt reads %d", s.Version, stateVersion)
	}
	return s, s.check()
}

func (s *State) check() error {
	if len(s.Regions) > MaxNamed {
		return fmt.Errorf("%d regions are more than the %d that a rank can have", len(s.Regions), MaxNamed)
	}
	for i := range s.Regions {
		r := &s.Regions[i]
		switch {
		case i > 0 && r.ID == s.Regions[i-1].ID:
			return fmt.Errorf("region %d is there twice", r.ID)
		case i > 0 && r.ID < s.Regions[i-1].ID:
			return fmt.Errorf("region %d is listed behind region %d", r.ID, s.Regions[i-1].ID)
		case r.Bytes > MaxBytes:
			return fmt.Errorf("region %d of %d bytes is larger than the %d that one can have", r.ID, r.Bytes, uint64(MaxBytes))
		case r.At != uint64(i+1)*apart:
			return fmt.Errorf("region %d begins at 0x%x", r.ID, r.At)
		}
		if r.Block != nil {
			if err := r.Block.Check(r.Bytes); err != nil {
				return fmt.Errorf("region %d: %w", r.ID, err)
			}
		}
	}
	return nil
}

// Find is the region with that id; nil: there is none.
func (s *State) Find(id int) *Named {
	i, ok := slices.BinarySearchFunc(s.Regions, id, func(r Named, id int) int { return compareInt(r.ID, id) })
	if !ok {
		return nil
	}
	return &s.Regions[i]
}

// Images is the same for an image: private memory of whole pages. Regions without content are not there.
func (s *State) Images() []image.Region {
	var list []image.Region
	for i := range s.Regions {
		if r := &s.Regions[i]; r.Bytes > 0 {
			list = append(list, image.Region{Start: r.At, End: r.At + r.pages(), Prot: protReadWrite, Flags: image.FlagAnonymous,
				Name: fmt.Sprintf("[region %d]", r.ID)})
		}
	}
	return list
}

// CheckRegions says why an image with these regions is not one that the section describes.
func (s *State) CheckRegions(have []image.Region) error { return sameRegions(s.Images(), have) }

// Memory is the content of named regions, as an image reads it: data has that of each region of the state, in order.
type Memory struct {
	state *State
	data  [][]byte
}

// NewMemory reads from data, which stays as it is until the image is written.
func NewMemory(s *State, data [][]byte) *Memory { return &Memory{s, data} }

// ReadAt implements image.Memory. Behind the end of a region are zeros, up to a whole page.
func (m *Memory) ReadAt(p []byte, addr uint64) error {
	i := int(addr/apart) - 1
	if i < 0 || i >= len(m.data) {
		return fmt.Errorf("no region is at 0x%x", addr)
	}
	n, at := 0, addr-m.state.Regions[i].At
	if at < uint64(len(m.data[i])) {
		n = copy(p, m.data[i][at:])
	}
	clear(p[n:])
	return nil
}

// Present implements image.Memory: pages of zeros are found when they are read.
func (m *Memory) Present(start, end uint64) ([]image.Extent, error) {
	return []image.Extent{{Start: start, End: end}}, nil
}
