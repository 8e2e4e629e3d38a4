// SPDX-License-Identifier: Apache-2.0

package regions

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/libckpt/libckpt/ckpt/image"
)

// Span is memory of a rank: whole pages.
type Span struct {
	Base  uint64 `json:"base"`
	Bytes uint64 `json:"bytes"`
	// Code: it holds addresses of code, as stacks do, so it means something to the same program only.
	Code bool `json:"code,omitempty"`
}

// End is the address behind it.
func (s Span) End() uint64 { return s.Base + s.Bytes }

func (s Span) String() string { return fmt.Sprintf("0x%x-0x%x", s.Base, s.End()) }

func (s Span) check() error {
	switch {
	case s.Base == 0 || s.Base%image.PageSize != 0 || s.Bytes%image.PageSize != 0:
		return fmt.Errorf("memory at 0x%x of %d bytes is not made of whole pages", s.Base, s.Bytes)
	case s.Bytes == 0:
		return fmt.Errorf("memory at 0x%x is empty", s.Base)
	case s.Base > math.MaxInt64 || s.Bytes > math.MaxInt64-s.Base:
		return fmt.Errorf("memory at 0x%x of %d bytes lies in the kernel's half of the address space", s.Base, s.Bytes)
	}
	return nil
}

// Task is a rank, and its memory by address.
type Task struct {
	Rank  int    `json:"rank"`
	Spans []Span `json:"spans"`
}

// Table is the section "tasks" of an image: whose memory its pages are.
type Table struct {
	Version int     `json:"version"` // tableVersion
	Program Program `json:"program"`
	// Answers: the programs had called for the checkpoint, on all ranks; else others asked for it.
	Answers bool   `json:"answers"`
	Tasks   []Task `json:"tasks"` // by rank
}

const tableVersion = 1

// Encode returns the section.
func (t *Table) Encode() ([]byte, error) {
	t.Version = tableVersion
	if err := t.check(); err != nil {
		return nil, err
	}
	return json.Marshal(t)
}

// Decode reads the section.
func Decode(b []byte) (*Table, error) {
	t := new(Table)
	if err := json.Unmarshal(b, t); err != nil {
		return nil, err
	}
	if t.Version != tableVersion {
		return nil, fmt.Errorf("has version %d, this libckpt reads %d", t.Version, tableVersion)
	}
	return t, t.check()
}

func (t *Table) check() error {
	last := -1
	for _, task := range t.Tasks {
		if task.Rank <= last {
			return fmt.Errorf("rank %d is listed behind rank %d", task.Rank, last)
		}
		last = task.Rank
		if len(task.Spans) == 0 {
			return fmt.Errorf("rank %d has no memory", task.Rank)
		}
		for _, s := range task.Spans {
			if err := s.check(); err != nil {
				return fmt.Errorf("rank %d: %w", task.Rank, err)
			}
			if s.Code && t.Program.Build == "" {
				return fmt.Errorf("rank %d has stacks, and there is no name of the program's build", task.Rank)
			}
		}
	}
	all := t.owners()
	for i := 1; i < len(all); i++ {
		if all[i].span.Base < all[i-1].span.End() {
			return fmt.Errorf("memory of rank %d (%v) and of rank %d (%v) overlap", all[i-1].rank, all[i-1].span, all[i].rank, all[i].span)
		}
	}
	return nil
}

type owner struct {
	rank int
	span Span
}

// owners lists all spans by address.
func (t *Table) owners() []owner {
	var all []owner
	for _, task := range t.Tasks {
		for _, s := range task.Spans {
			all = append(all, owner{task.Rank, s})
		}
	}
	slices.SortFunc(all, func(a, b owner) int { return compare(a.span.Base, b.span.Base) })
	return all
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Ranks lists the ranks.
func (t *Table) Ranks() []int {
	list := make([]int, len(t.Tasks))
	for i, task := range t.Tasks {
		list[i] = task.Rank
	}
	return list
}

// Spans is the memory of a rank; nil: it is not here.
func (t *Table) Spans(rank int) []Span {
	i, ok := slices.BinarySearchFunc(t.Tasks, rank, func(a Task, r int) int { return a.Rank - r })
	if !ok {
		return nil
	}
	return t.Tasks[i].Spans
}

// Regions is the same for an image: private memory, by address.
func (t *Table) Regions() []image.Region {
	all := t.owners()
	list := make([]image.Region, len(all))
	for i, o := range all {
		list[i] = image.Region{Start: o.span.Base, End: o.span.End(), Prot: protReadWrite, Flags: image.FlagAnonymous,
			Name: fmt.Sprintf("[rank %d]", o.rank)}
	}
	return list
}

const protReadWrite = 1 | 2 // PROT_READ, PROT_WRITE

// CheckRegions says why an image with these regions is not one that the table describes.
func (t *Table) CheckRegions(have []image.Region) error { return sameRegions(t.Regions(), have) }

func sameRegions(want, have []image.Region) error {
	if len(have) != len(want) {
		return fmt.Errorf("lists %d pieces of memory, the image has %d", len(want), len(have))
	}
	for i := range want {
		if w, h := &want[i], &have[i]; w.Start != h.Start || w.End != h.End || h.Prot != w.Prot || h.Flags != w.Flags {
			return fmt.Errorf("lists memory %v, the image has %v", w, h)
		}
	}
	return nil
}
