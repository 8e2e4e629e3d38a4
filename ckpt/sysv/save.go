// SPDX-License-Identifier: Apache-2.0

package sysv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/internal/sparse"
)

// SectionName is that of the section of an image. The content of segments is in sections of names that begin with it.
const SectionName = "sysv"

// Saved is a segment in an image.
type Saved struct {
	Virtual int   `json:"virtual"`
	Real    int   `json:"real"`
	Holders []int `json:"holders,omitempty"` // ranks that have it attached
	Leader  int   `json:"leader"`            // the rank whose image has the content
	Known
}

// Section is what an image says of segments: of all that were on the node of its process, as others may be told of an id
// that this process does not know yet.
type Section struct {
	Node     Node    `json:"node"`
	Segments []Saved `json:"segments,omitempty"`
	Taken    []int   `json:"taken,omitempty"` // ids that no new segment of the job may get

	Objects []Object     `json:"objects,omitempty"`
	Kept    [kinds][]int `json:"kept,omitzero"` // as Taken, of semaphores and queues
}

// IsContent tells whether a section has the content of a segment.
func IsContent(section string) bool { return strings.HasPrefix(section, SectionName+"-") }

// content is the name of the section with the content of a segment.
func (s *Saved) content() string { return fmt.Sprintf("%s-%d", SectionName, s.Virtual) }

const pageSize = image.PageSize

// mapped is how long its whole mapping is.
func (k *Known) mapped() uint64 { return (k.Bytes + pageSize - 1) &^ (pageSize - 1) }

func (k *Known) String() string {
	if k.Key == 0 {
		return fmt.Sprintf("%d bytes, private", k.Bytes)
	}
	return fmt.Sprintf("%d bytes, key %#x", k.Bytes, uint32(k.Key))
}

// Match finds out who shares what. Obstacles say why objects of this process cannot be saved.
func (h *Here) Match(rank int, reports []Report) (obstacles []string) {
	h.rank = rank
	job := map[int]bool{}
	taken := map[int]bool{}
	byReal := map[int]*Saved{}
	var order []int
	pieces, made, attached := map[int]int{}, map[int]int{}, map[int]uint64{}
	for r, report := range reports {
		for _, id := range report.Taken {
			taken[id] = true
		}
		if !report.Node.same(h.report.Node) {
			// Ids of other nodes are not told to programs here, but may be when these come here.
			for _, one := range report.Held {
				taken[one.Virtual] = true
			}
			continue
		}
		job[report.PID] = true
		for _, one := range report.Held {
			taken[one.Virtual] = true
			s := byReal[one.Real]
			if s == nil {
				s = &Saved{Virtual: one.Virtual, Real: one.Real, Leader: -1, Known: one.Known}
				byReal[one.Real] = s
				made[one.Real] = -1
				order = append(order, one.Real)
			}
			pieces[one.Real] += one.Pieces
			attached[one.Real] = one.Attached
			if one.Pieces > 0 {
				s.Holders = append(s.Holders, r)
			}
			if one.Made && made[one.Real] < 0 {
				made[one.Real] = r
			}
		}
	}
	for _, one := range h.report.Held {
		byReal[one.Real].Virtual = one.Virtual
	}
	for _, p := range h.pieces {
		if p.huge {
			obstacles = append(obstacles, fmt.Sprintf("System V segment %d is in huge pages (SHM_HUGETLB), which are not saved", byReal[p.Real].Virtual))
		}
	}
	seen := map[int]bool{}
	for _, real := range order {
		s := byReal[real]
		switch {
		case len(s.Holders) > 0:
			s.Leader = s.Holders[0]
		case made[real] >= 0:
			s.Leader = made[real]
		default:
			continue // of strangers, who have to keep it
		}
		if s.Leader == rank && uint64(pieces[real]) < attached[real] {
			obstacles = append(obstacles, s.shared(job))
		}
		if seen[s.Virtual] {
			obstacles = append(obstacles, fmt.Sprintf("two System V segments have the id %d for processes of the job, which were on several nodes: detach one of them", s.Virtual))
		}
		seen[s.Virtual] = true
		h.saved = append(h.saved, *s)
	}
	for id := range taken {
		h.taken = append(h.taken, id)
	}
	slices.Sort(h.taken)
	return append(obstacles, h.matchObjects(rank, reports)...)
}

// shared says who has a segment attached beside the job.
func (s *Saved) shared(job map[int]bool) string {
	who := "by a process outside the job"
	if names := others(s.Real, job); len(names) > 0 {
		who = "by " + strings.Join(names, ", ") + ", outside the job"
	}
	return fmt.Sprintf("System V segment %d (%s) is attached %s, too: it cannot be saved before that detaches it", s.Virtual, &s.Known, who)
}

// regionName is the name of a region in an image that is a part of a segment.
func regionName(virtual int) string { return fmt.Sprintf("[System V segment %d]", virtual) }

func virtualOf(r *image.Region) (int, bool) {
	text, is := strings.CutPrefix(r.Name, "[System V segment ")
	text, ends := strings.CutSuffix(text, "]")
	id, err := strconv.Atoi(text)
	return id, is && ends && err == nil && r.Flags&image.FlagShared != 0 && r.Flags&image.FlagAnonymous != 0
}

// Mark has regions of segments be those of [Restored.Attach]: their content is elsewhere.
func (h *Here) Mark(regions []image.Region) error {
	if h == nil {
		return nil
	}
	for _, p := range h.pieces {
		i := slices.IndexFunc(regions, func(r image.Region) bool { return r.Start == p.Start && r.End == p.End })
		k := slices.IndexFunc(h.saved, func(s Saved) bool { return s.Real == p.Real })
		if i < 0 || k < 0 {
			return fmt.Errorf("the System V segment %d at %#x has changed while the program was stopped", p.Real, p.Start)
		}
		r := &regions[i]
		r.Flags, r.Path, r.Name, r.Offset = image.FlagShared|image.FlagAnonymous|image.FlagNoData, "", regionName(h.saved[k].Virtual), p.Offset
	}
	return nil
}

// Sections are those of this process's image. room gives memory for contents.
func (h *Here) Sections(room func(int) ([]byte, error)) ([]image.Section, error) {
	objects, err := h.contents()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(Section{Node: h.report.Node, Segments: h.saved, Taken: h.taken, Objects: objects, Kept: h.kept})
	if err != nil {
		return nil, err
	}
	list := []image.Section{{Name: SectionName, Data: b}}
	for i := range h.saved {
		s := &h.saved[i]
		if s.Leader != h.rank {
			continue
		}
		memory, err := wholly(s.Real, s, unix.SHM_RDONLY)
		if err != nil {
			return nil, fmt.Errorf("reading the System V segment %d (%s): %w", s.Virtual, &s.Known, err)
		}
		data, err := room(len(memory))
		if err == nil {
			err = copyHeld(data, memory)
			list = append(list, image.Section{Name: s.content(), Data: data})
		}
		if derr := unix.SysvShmDetach(memory); err == nil {
			err = derr
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// heldOf lists what of attached memory may hold data, as places in it. A segment may be large and nearly empty.
func heldOf(memory []byte) (list [][2]uint64, err error) {
	finder, err := sparse.New()
	if err != nil {
		return nil, err
	}
	start := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
	for _, e := range finder.Held(start, start+uint64(len(memory))) {
		list = append(list, [2]uint64{e.Start - start, e.End - start})
	}
	return list, nil
}

// copyHeld copies attached memory to new memory.
func copyHeld(to, memory []byte) error {
	held, err := heldOf(memory)
	for _, e := range held {
		copy(to[e[0]:e[1]], memory[e[0]:e[1]])
	}
	return err
}

// fill gives attached memory its content, and pages to what is not zeros alone.
func fill(memory, content []byte) error {
	held, err := heldOf(memory) // of an earlier restart
	for _, e := range held {
		clear(memory[e[0]:e[1]])
	}
	for at := 0; at < len(content); at += page {
		if p := content[at:min(at+page, len(content))]; !bytes.Equal(p, zeros[:len(p)]) {
			copy(memory[at:], p)
		}
	}
	return err
}

const page = 4096

var zeros [page]byte

// wholly attaches a segment in whole pages: what lies behind its end is memory, too.
func wholly(real int, s *Saved, flags int) ([]byte, error) {
	b, err := unix.SysvShmAttach(real, 0, flags)
	if err != nil {
		return nil, err
	}
	if uint64(len(b)) != s.Bytes {
		_ = unix.SysvShmDetach(b)
		return nil, fmt.Errorf("it has %d bytes", len(b))
	}
	return unsafe.Slice(&b[0], s.mapped()), nil
}

// maxBytes bounds a segment, as memory does.
const maxBytes = 1 << 46

// Decode reads the section of an image of that rank.
func Decode(b []byte, rank, size int) (Section, error) {
	var s Section
	if err := json.Unmarshal(b, &s); err != nil {
		return s, err
	}
	seen := map[int]bool{}
	for i := range s.Segments {
		one := &s.Segments[i]
		switch {
		case one.Virtual < 0 || one.Real < 0 || one.Bytes == 0 || one.Bytes > maxBytes:
			return s, fmt.Errorf("a segment %d (real %d) of %d bytes", one.Virtual, one.Real, one.Bytes)
		case seen[one.Virtual]:
			return s, fmt.Errorf("the segment %d is there twice", one.Virtual)
		case one.Leader < 0 || one.Leader >= size:
			return s, fmt.Errorf("the segment %d is of rank %d of %d", one.Virtual, one.Leader, size)
		case one.Mode&^(0o777|modeDest|modeLocked) != 0:
			return s, fmt.Errorf("the segment %d has the mode %o", one.Virtual, one.Mode)
		}
		for k, r := range one.Holders {
			if r < 0 || r >= size || k > 0 && r <= one.Holders[k-1] {
				return s, fmt.Errorf("the segment %d is attached by ranks %v of %d", one.Virtual, one.Holders, size)
			}
		}
		seen[one.Virtual] = true
	}
	objects := map[[2]int]bool{}
	for i := range s.Objects {
		o := &s.Objects[i]
		if err := o.check(rank, size); err != nil {
			return s, err
		}
		if name := [2]int{int(o.Kind), o.Virtual}; objects[name] {
			return s, fmt.Errorf("the %s is there twice", o)
		} else {
			objects[name] = true
		}
	}
	for _, id := range slices.Concat(append(s.Kept[:], s.Taken)...) {
		if id < 0 {
			return s, fmt.Errorf("the id %d", id)
		}
	}
	return s, nil
}
