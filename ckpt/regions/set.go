// SPDX-License-Identifier: Apache-2.0

package regions

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Set is the memory of the ranks that live in this process now. Any thread may call any method.
type Set struct {
	program Program

	mu    sync.Mutex
	spans map[int][]Span // by rank, each by address
}

// NewSet begins with nobody. program is this process's.
func NewSet(program Program) *Set { return &Set{program: program, spans: map[int][]Span{}} }

// Add gives memory to a rank. It must be mapped.
func (s *Set) Add(rank int, span Span) error {
	if rank < 0 {
		return fmt.Errorf("there is no rank %d", rank)
	}
	if err := span.check(); err != nil {
		return err
	}
	if span.Code {
		if err := s.program.CheckCode(); err != nil {
			return err
		}
	}
	if err := mapped(span); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, list := range s.spans {
		for _, o := range list {
			if span.Base < o.End() && o.Base < span.End() {
				return fmt.Errorf("memory %v of rank %d overlaps %v of rank %d", span, rank, o, other)
			}
		}
	}
	list := append(s.spans[rank], span)
	slices.SortFunc(list, func(a, b Span) int { return compare(a.Base, b.Base) })
	s.spans[rank] = list
	return nil
}

// mapped refuses memory that is not there: its pages would be missing in the image, and nobody would notice.
func mapped(span Span) error {
	const step = 1 << 30
	for at := span.Base; at < span.End(); at += step {
		n := min(step, span.End()-at)
		there := make([]byte, n/4096)
		if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(at), uintptr(n), addressOf(there)); e != 0 {
			return fmt.Errorf("memory %v is not mapped in this process: %w", span, e)
		}
	}
	return nil
}

// ErrUnknown says that there is no such memory.
var ErrUnknown = errors.New("no memory of that rank begins there")

// Remove takes the span that begins at base from a rank.
func (s *Set) Remove(rank int, base uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.spans[rank]
	i := slices.IndexFunc(list, func(o Span) bool { return o.Base == base })
	if i < 0 {
		return fmt.Errorf("rank %d, 0x%x: %w", rank, base, ErrUnknown)
	}
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(s.spans, rank)
	} else {
		s.spans[rank] = list
	}
	return nil
}

// Holder is the rank whose memory has this address.
func (s *Set) Holder(address uint64) (rank int, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank, list := range s.spans {
		for _, o := range list {
			if address >= o.Base && address < o.End() {
				return rank, true
			}
		}
	}
	return 0, false
}

// Has tells whether the rank has memory here.
func (s *Set) Has(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.spans[rank]) > 0
}

// Table is the set as an image has it.
func (s *Set) Table(answers bool) *Table {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &Table{Program: s.program, Answers: answers}
	for rank, list := range s.spans {
		t.Tasks = append(t.Tasks, Task{rank, slices.Clone(list)})
	}
	slices.SortFunc(t.Tasks, func(a, b Task) int { return a.Rank - b.Rank })
	return t
}
