// SPDX-License-Identifier: Apache-2.0

package shm

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/libckpt/libckpt/ckpt/image"
)

// Section is the section of an image that lists the segments of the process.
const Section = "segments"

// Saved is a segment as an image has it.
type Saved struct {
	Spec
	Start uint64 `json:"start"` // where the program got it
	// Holders are the processes that had it when the image was made: the first one has its content.
	Holders []int `json:"holders"`
}

// regionName is what a region of a segment is called in an image.
func regionName(name string) string { return "[shared " + name + "]" }

// RegionOf is the name of the segment that a region of an image is part of; "" for none.
func RegionOf(r *image.Region) string {
	name, is := strings.CutPrefix(r.Name, "[shared ")
	name, ends := strings.CutSuffix(name, "]")
	if !is || !ends || r.Flags&image.FlagShared == 0 || r.Flags&image.FlagAnonymous == 0 {
		return ""
	}
	return name
}

// Held names the segments of this process, for Save. A name here is one of the job's: it tells segments of one name
// apart.
func (s *Segments) Held() []string {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, one := range s.all {
		if one.at != 0 {
			names = append(names, one.path)
		}
	}
	sort.Strings(names)
	return names
}

// Save turns regions that are parts of segments into what a restart makes them of, and lists the segments. held is
// what Held says in each process, all of which are stopped. The first one of those that have a segment saves its
// content. Obstacles say why that is not possible now.
func (s *Segments) Save(regions []image.Region, held [][]string) (saved []Saved, obstacles []string) {
	if s == nil {
		return nil, nil
	}
	if obstacles = s.Busy(); len(obstacles) > 0 {
		return nil, obstacles
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		out := Saved{Spec: one.Spec, Start: one.at}
		for process, names := range held {
			if slices.Contains(names, one.path) {
				out.Holders = append(out.Holders, process)
			}
		}
		saves := len(out.Holders) > 0 && out.Holders[0] == s.net.Rank()
		if whole := mark(regions, one, saves); saves && !whole && !one.Zero {
			obstacles = append(obstacles, fmt.Sprintf("shared segment %q: the program has unmapped or moved a part of it, without ckpt_shm_unmap", one.Name))
		}
		saved = append(saved, out)
	}
	slices.SortFunc(saved, func(a, b Saved) int { return strings.Compare(a.Name, b.Name) })
	return saved, obstacles
}

// mark finds the regions of a segment, and tells whether they are all of it.
func mark(regions []image.Region, one *segment, saves bool) (whole bool) {
	var have uint64 // the regions ascend, and so do their offsets, unless somebody has moved them
	for i := range regions {
		r := &regions[i]
		if r.Flags&image.FlagShared == 0 || r.Path != one.path+" (deleted)" {
			continue
		}
		r.Flags, r.Path, r.Name = image.FlagShared|image.FlagAnonymous, "", regionName(one.Name)
		if !saves || one.Zero {
			r.Flags |= image.FlagNoData
		}
		if r.Offset == have {
			have += r.Bytes()
		}
	}
	return have == one.mapped()
}

// Encode is the section, Decode reads it; a process without segments has none.
func Encode(saved []Saved) ([]byte, error) { return json.Marshal(saved) }

// Decode reads what Encode wrote, for process rank of size.
func Decode(b []byte, rank, size int) ([]Saved, error) {
	var saved []Saved
	if err := json.Unmarshal(b, &saved); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for i := range saved {
		one := &saved[i]
		if err := one.check(rank, size); err != nil {
			return nil, err
		}
		if seen[one.Name] {
			return nil, fmt.Errorf("shared segment %q is there twice", one.Name)
		}
		seen[one.Name] = true
		holders := Spec{Name: one.Name, Bytes: one.Bytes, Processes: one.Holders}
		if err := holders.check(rank, size); err != nil {
			return nil, err
		}
	}
	return saved, nil
}
