// SPDX-License-Identifier: Apache-2.0

package shm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// What an error is of; test with errors.Is.
var (
	ErrArgument = errors.New("an argument is wrong")
	ErrState    = errors.New("not now")
	ErrSystem   = errors.New("the operating system refused")
	ErrPeer     = errors.New("another process is lost")
	ErrNodes    = errors.New("processes of several nodes")
)

// Error is one of these, with a sentence.
type Error struct {
	Kind error
	Text string
}

func (e *Error) Error() string { return e.Text }
func (e *Error) Unwrap() error { return e.Kind }

func failed(kind error, name, format string, args ...any) *Error {
	return &Error{kind, fmt.Sprintf("shared segment %q: ", name) + fmt.Sprintf(format, args...)}
}

// MaxName is how long a name may be.
const MaxName = 63

// pageSize is the unit of mappings.
const pageSize = 4096

// maxBytes is more than the program's part of memory has.
const maxBytes = 1 << 46

// Spec is what the program asks for, the same in all processes of a segment.
type Spec struct {
	Name      string `json:"name"`
	Bytes     uint64 `json:"bytes"`
	Processes []int  `json:"processes"` // ascending; the first one leads
	Zero      bool   `json:"zero,omitempty"`
}

// mapped is Bytes in whole pages.
func (s *Spec) mapped() uint64 { return (s.Bytes + pageSize - 1) &^ (pageSize - 1) }

// CheckName says what is wrong with a name.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName {
		return failed(ErrArgument, name, "a name has 1 to %d characters, this one %d", MaxName, len(name))
	}
	for _, c := range []byte(name) {
		if !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", rune(c)) {
			return failed(ErrArgument, name, "a name is made of letters, digits, and the characters . _ -")
		}
	}
	return nil
}

// check says what is wrong with s by itself, in process rank of size.
func (s *Spec) check(rank, size int) error {
	if err := CheckName(s.Name); err != nil {
		return err
	}
	if s.Bytes == 0 || s.Bytes > maxBytes {
		return failed(ErrArgument, s.Name, "%d bytes: it must have some, and at most 2^46", s.Bytes)
	}
	if len(s.Processes) == 0 {
		return failed(ErrArgument, s.Name, "its list of processes is empty")
	}
	for i, p := range s.Processes {
		if p < 0 || p >= size {
			return failed(ErrArgument, s.Name, "there is no process %d among %d", p, size)
		}
		if i > 0 && p <= s.Processes[i-1] {
			return failed(ErrArgument, s.Name, "its list of processes must ascend: %d comes after %d", p, s.Processes[i-1])
		}
	}
	if !slices.Contains(s.Processes, rank) {
		return failed(ErrArgument, s.Name, "its list of processes, %s, lacks this one, %d", list(s.Processes), rank)
	}
	return nil
}

// differs says how the leader's call differs from this process's, "" when it does not.
func (s *Spec) differs(leader *Spec, rank int) string {
	lead := leader.Processes[0]
	switch {
	case s.Bytes != leader.Bytes:
		return fmt.Sprintf("process %d asks for %d bytes, process %d for %d", lead, leader.Bytes, rank, s.Bytes)
	case !slices.Equal(s.Processes, leader.Processes):
		return fmt.Sprintf("process %d shares it among processes %s, process %d among %s", lead, list(leader.Processes), rank, list(s.Processes))
	case s.Zero != leader.Zero:
		return fmt.Sprintf("CKPT_SHM_ZERO is set in process %d or in process %d, and not in both", lead, rank)
	}
	return ""
}

// list writes numbers for people.
func list(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = fmt.Sprint(n)
	}
	if len(words) > 16 {
		words = append(words[:15], "...")
	}
	return strings.Join(words, ", ")
}
