// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Section is the section "messages" of an image: messages that were received and not asked for yet, and requests
// that the program has not got yet. The runtime's back writes and reads the same bytes (capi/back/image), and is
// checked against this package. docs/image-sections.md specifies the bytes. The records (zz_section.go), those in C
// and that part of the page are generated from cmd/mpigen/section.list.
//
// A section without bytes is empty: that of a runtime that drains nothing.
type Section struct {
	Drained  []Message // in order of arrival
	Matched  []Matched
	Requests []Request
	Held     []Held
}

// Matched is a message that the program has matched (MPI_Mprobe) and not received.
type Matched struct {
	ID uint32
	Message
}

// Request is one that the program holds, or that it has freed while it was active.
type Request struct {
	Head
	ByState
	Persistent *Persistent // when the flags say that it is
}

func (h *Head) persistent() bool { return h.Flags&FlagPersistent != 0 }

// claims says which version the section needs: a section without claims and awaited requests is written in the
// older version, which has neither.
func (s *Section) claims() bool {
	return len(s.Held) > 0 || slices.ContainsFunc(s.Requests, func(r Request) bool { return r.State == AwaitedSend })
}

// Kinds of virtual ids (include/ckpt/tables.h).
const (
	kindComm     = 1
	kindDatatype = 3
	kindMessage  = 5
	kindRequest  = 7
	kindWindow   = 9
	kindFile     = 10
)

// predefined is how many ids of a kind are not the program's own.
const predefined = 256

// CorruptError says that the bytes are no section.
type CorruptError struct {
	Offset int
	What   string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("messages and requests, at byte %d: %s", e.Offset, e.What)
}

// writer appends words.
type writer struct{ b []byte }

func (w *writer) word(v int64) { w.b = binary.LittleEndian.AppendUint64(w.b, uint64(v)) }

func (w *writer) words(list []int64) {
	for _, v := range list {
		w.word(v)
	}
}

func (w *writer) bool(v bool) {
	if v {
		w.word(1)
	} else {
		w.word(0)
	}
}

func (w *writer) ids(list []uint32) {
	w.word(int64(len(list)))
	for _, v := range list {
		w.word(int64(v))
	}
}

func (w *writer) data(b []byte) {
	w.word(int64(len(b)))
	w.b = append(append(w.b, b...), make([]byte, -len(b)&7)...)
}

// Append appends the section as an image has it.
func (s *Section) Append(b []byte) []byte {
	w := &writer{b}
	if s.claims() {
		w.word(versionClaims)
	} else {
		w.word(versionPlain)
	}
	w.word(int64(len(s.Drained)))
	for i := range s.Drained {
		s.Drained[i].append(w)
	}
	w.word(int64(len(s.Matched)))
	for i := range s.Matched {
		w.word(int64(s.Matched[i].ID))
		s.Matched[i].append(w)
	}
	w.word(int64(len(s.Requests)))
	for i := range s.Requests {
		r := &s.Requests[i]
		r.Head.append(w)
		if body := r.of(r.State, false); body != nil {
			body.append(w)
		}
		if r.Persistent != nil {
			r.Persistent.append(w)
		}
	}
	if s.claims() {
		w.word(int64(len(s.Held)))
		for i := range s.Held {
			s.Held[i].append(w)
		}
	}
	return w.b
}

// Decode reads a section. The messages' bytes are those of b. It checks everything, and fails with a *CorruptError.
func Decode(b []byte) (*Section, error) {
	s := &Section{}
	if len(b) == 0 {
		return s, nil
	}
	r := &reader{b: b, seen: map[uint32]bool{}}
	version := r.word()
	if r.err == nil && version != versionPlain && version != versionClaims {
		r.fail("version %d, this libckpt reads %d and %d", version, versionPlain, versionClaims)
	}
	for n := r.count(wordsMessage); n > 0 && r.err == nil; n-- {
		var m Message
		m.read(r)
		s.Drained = append(s.Drained, m)
	}
	for n := r.count(1 + wordsMessage); n > 0 && r.err == nil; n-- {
		m := Matched{ID: r.fresh(kindMessage)}
		m.read(r)
		s.Matched = append(s.Matched, m)
	}
	for n := r.count(wordsHead); n > 0 && r.err == nil; n-- {
		s.Requests = append(s.Requests, r.request())
	}
	if version == versionClaims {
		for n := r.count(wordsHeld); n > 0 && r.err == nil; n-- {
			s.Held = append(s.Held, r.held(len(s.Drained)+len(s.Matched)))
		}
	}
	if r.err == nil && s.claims() != (version == versionClaims) {
		r.fail("version %d is not what its claims need", version)
	}
	if r.err == nil && r.at != len(b) {
		r.fail("%d bytes too many", len(b)-r.at)
	}
	if r.err != nil {
		return nil, r.err
	}
	return s, nil
}

// reader reads words until the first that is wrong; from then on, nothing.
type reader struct {
	b    []byte
	at   int
	err  error
	seen map[uint32]bool // ids of the program's own objects
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = &CorruptError{r.at, fmt.Sprintf(format, args...)}
	}
}

func (r *reader) word() int64 {
	if r.err == nil && len(r.b)-r.at < 8 {
		r.fail("it ends too early")
	}
	if r.err != nil {
		return 0
	}
	v := int64(binary.LittleEndian.Uint64(r.b[r.at:]))
	r.at += 8
	return v
}

func (r *reader) within(what string, low, high int64) int64 {
	at := r.at
	v := r.word()
	if r.err == nil && (v < low || v > high) {
		r.at = at
		r.fail("%s is %d, not between %d and %d", what, v, low, high)
	}
	if r.err != nil {
		return 0
	}
	return v
}

// count is a number of items of at least so many words each; what follows must have room for them.
func (r *reader) count(words int) int64 {
	n := r.within("a number of items", 0, int64(len(r.b)/(8*words)))
	if r.err == nil && n > int64((len(r.b)-r.at)/(8*words)) {
		r.fail("%d items in %d bytes", n, len(r.b)-r.at)
		return 0
	}
	return n
}

func (r *reader) id(kind uint32, or ...uint32) uint32 {
	v := uint32(r.within("a virtual id", 0, math.MaxUint32))
	if r.err == nil && v>>28 != kind && !slices.Contains(or, v>>28) {
		r.fail("id %#x is of kind %d, want %d", v, v>>28, kind)
	}
	return v
}

// fresh is the id of an object of the program's own that was not named before.
func (r *reader) fresh(kind uint32) uint32 {
	v := r.id(kind)
	if r.err == nil && (v&(1<<28-1) < predefined || r.seen[v]) {
		r.fail("id %#x is predefined, or named twice", v)
	}
	r.seen[v] = true
	return v
}

// words are n words; nil when there are none.
func (r *reader) words(n int64) []int64 {
	var list []int64
	for ; n > 0 && r.err == nil; n-- {
		list = append(list, r.word())
	}
	return list
}

func (r *reader) ids(kind uint32) []uint32 {
	var list []uint32
	for n := r.count(1); n > 0 && r.err == nil; n-- {
		list = append(list, r.id(kind))
	}
	return list
}

func (r *reader) data(what string) []byte {
	n := int(r.within(what, 0, int64(len(r.b))))
	padded := (n + 7) &^ 7
	if r.err == nil && padded > len(r.b)-r.at {
		r.fail("message of %d bytes, of which %d are there", n, len(r.b)-r.at)
	}
	if r.err != nil {
		return nil
	}
	data := r.b[r.at : r.at+n : r.at+n]
	for _, x := range r.b[r.at+n : r.at+padded] {
		if x != 0 {
			r.fail("padding that is not zero")
		}
	}
	r.at += padded
	return data
}

func (r *reader) held(messages int) Held {
	at := r.at
	var h Held
	h.read(r)
	if r.err == nil && h.Message >= int64(messages) {
		r.at = at
		r.fail("a message's number is %d, there are %d", h.Message, messages)
	}
	if r.err == nil && h.ID == 0 {
		r.fail("a claim without an id")
	}
	return h
}

func (r *reader) request() Request {
	var q Request
	q.Head.read(r)
	if r.err != nil {
		return q
	}
	if q.State != Complete && q.Owner>>28 != kindComm {
		r.fail("request %#x of kind %d is not complete", q.ID, q.Owner>>28)
	}
	if body := q.of(q.State, true); body != nil {
		body.read(r)
	}
	switch {
	case r.err != nil:
		return q
	case q.State == Inactive && !q.persistent():
		r.fail("request %#x is inactive, but not persistent", q.ID)
	case q.State == AwaitedSend && q.Awaited.ID == 0:
		r.fail("request %#x waits for nothing", q.ID)
	case q.State == DeferredStart && len(q.Deferred.Args) == 0:
		r.fail("a deferred call without arguments")
	case q.State == CollectiveOf && q.persistent():
		r.fail("request %#x is a persistent collective and another persistent request", q.ID)
	}
	if q.persistent() {
		q.Persistent = &Persistent{}
		q.Persistent.read(r)
	}
	return q
}
