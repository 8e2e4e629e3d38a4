// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Section is the section "messages" of an image: what was received and not asked for yet, and what the
// program has asked for and not got. The runtime's back writes and reads the same bytes
// (capi/back/image/section.h); this is what both are checked against.
//
// Words are 64 bits, little-endian and signed; the bytes of a message are padded with zeros to a word.
//
//	version
//	drained messages, in order of arrival: how many, then of each
//	    communicator, source, tag, length, bytes
//	matched messages: how many, then of each
//	    id, communicator, source, tag, length, bytes
//	requests: how many, then of each
//	    id, flags, peer, communicator (window, file), state, and by state
//	      inactive: nothing
//	      done:     source, tag, cancelled, length, error class
//	      posted:   order, buffer, count, datatype, source, tag
//	      deferred: number of the call on its communicator, function, number of arguments,
//	        arguments
//	      generalized: the program's part of it, what calls its functions
//	      persistent collective: function, number of arguments, arguments, position of the request,
//	        whether the types are arrays, number of types, types, the request that was started
//	      awaited: id, rank of the receiver in the world
//	    and when it is persistent
//	      mode, six arguments
//	where the version says so, claims on messages: how many, then of each
//	    number of the message, the drained ones first; rank of its sender in the world; id
//
// No bytes at all are an empty section: that of a runtime that drains nothing.
type Section struct {
	Drained  []Message
	Matched  []Matched
	Requests []Request
	Held     []Held
}

// Held is a message that was sent synchronously: whoever receives it tells its sender, whose request
// that waits for this has the same ID.
type Held struct {
	Message int64 // its number: the drained ones come first
	Sender  int32
	ID      uint64
}

// Message is one that draining received.
type Message struct {
	Comm        uint32 // virtual ids, here and below
	Source, Tag int32
	Data        []byte
}

// Matched is a message that the program has matched (MPI_Mprobe) and not received.
type Matched struct {
	ID uint32
	Message
}

// Request is one that the program holds, or that it has freed while it was active.
type Request struct {
	ID         uint32
	Flags      int64
	Peer       int32
	Owner      uint32 // communicator, window or file
	State      State
	Done       *Done
	Awaited    *Awaited
	Posted     *Posted
	Deferred   *Deferred
	Upper      *Upper
	Collective *Collective
	Persistent *Persistent
}

// State is what a request waits for. The numbers are part of images.
type State int64

// States.
const (
	Inactive      State = 0 // a persistent request that was not started
	Complete      State = 1 // the program has not looked yet
	PostedReceive State = 2 // to be posted again, in the order in which they were
	DeferredStart State = 3 // a collective call that no member has started
	Generalized   State = 4 // a generalized request that is complete, but that nobody has waited for
	CollectiveOf  State = 5 // a persistent collective, started or not
	AwaitedSend   State = 6 // a synchronous send whose message is drained, until somebody takes it
)

// FlagPersistent of Request.Flags says that Persistent follows. (capi/back/request/request.h has the others, which
// mean nothing here.)
const FlagPersistent = 4

// Done is the status of a complete request.
type Done struct {
	Source, Tag int32
	Cancelled   bool
	Bytes       int64
	Error       uint8
}

// Awaited names what a synchronous send waits for: that Receiver's program takes the message.
type Awaited struct {
	ID       uint64
	Receiver int32
}

// Posted is what MPI_Irecv was called with.
type Posted struct {
	Order       int64
	Buffer      uint64
	Count       int64
	Type        uint32
	Source, Tag int32
}

// Deferred is a call that will be made.
type Deferred struct {
	Call     int64 // on its communicator: they start in this order
	Function int32
	Args     []int64
}

// Upper is the program's part of a generalized request: two addresses in its memory.
type Upper struct {
	Object, Thunk uint64
}

// Collective is what a persistent collective was made with; Started is the request of the call that
// was started last, the null request when it is inactive.
type Collective struct {
	Function int32
	Args     []int64
	Request  int32
	Arrays   bool
	Types    []uint32
	Started  uint32
}

// Persistent is what a persistent request was made with; mode 0 receives, 1 to 4 are the kinds of send.
type Persistent struct {
	Mode int64
	Args [6]int64
}

// Versions of the format; numbers are never reused. A section without claims and awaited requests is
// written as those were that knew of none.
const (
	sectionVersion = 2
	versionClaims  = 3
)

// claims says which version the section needs.
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

const (
	// predefined is how many ids of a kind are not the program's own.
	predefined = 256
	// maxFunctions and maxArgs bound a persistent collective; a deferred call may have any number of
	// datatypes behind its arguments.
	maxFunctions = 1 << 12
	maxArgs      = 14
)

// CorruptError says that the bytes are no section.
type CorruptError struct {
	Offset int
	What   string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("messages and requests, at byte %d: %s", e.Offset, e.What)
}

// Append appends the section as it stands in an image.
func (s *Section) Append(b []byte) []byte {
	word := func(v int64) { b = binary.LittleEndian.AppendUint64(b, uint64(v)) }
	message := func(m Message) {
		word(int64(m.Comm))
		word(int64(m.Source))
		word(int64(m.Tag))
		word(int64(len(m.Data)))
		b = append(b, m.Data...)
		b = append(b, make([]byte, -len(m.Data)&7)...)
	}
	if s.claims() {
		word(versionClaims)
	} else {
		word(sectionVersion)
	}
	word(int64(len(s.Drained)))
	for _, m := range s.Drained {
		message(m)
	}
	word(int64(len(s.Matched)))
	for _, m := range s.Matched {
		word(int64(m.ID))
		message(m.Message)
	}
	word(int64(len(s.Requests)))
	for _, r := range s.Requests {
		for _, v := range r.words() {
			word(v)
		}
	}
	if s.claims() {
		word(int64(len(s.Held)))
		for _, h := range s.Held {
			word(h.Message)
			word(int64(h.Sender))
			word(int64(h.ID))
		}
	}
	return b
}

func (r *Request) words() []int64 {
	w := []int64{int64(r.ID), r.Flags, int64(r.Peer), int64(r.Owner), int64(r.State)}
	switch d, p := r.Done, r.Posted; r.State {
	case Complete:
		cancelled := int64(0)
		if d.Cancelled {
			cancelled = 1
		}
		w = append(w, int64(d.Source), int64(d.Tag), cancelled, d.Bytes, int64(d.Error))
	case AwaitedSend:
		w = append(w, int64(r.Awaited.ID), int64(r.Awaited.Receiver))
	case PostedReceive:
		w = append(w, p.Order, int64(p.Buffer), p.Count, int64(p.Type), int64(p.Source), int64(p.Tag))
	case DeferredStart:
		w = append(w, r.Deferred.Call, int64(r.Deferred.Function), int64(len(r.Deferred.Args)))
		w = append(w, r.Deferred.Args...)
	case Generalized:
		w = append(w, int64(r.Upper.Object), int64(r.Upper.Thunk))
	case CollectiveOf:
		c, arrays := r.Collective, int64(0)
		if c.Arrays {
			arrays = 1
		}
		w = append(append(w, int64(c.Function), int64(len(c.Args))), c.Args...)
		w = append(w, int64(c.Request), arrays, int64(len(c.Types)))
		for _, t := range c.Types {
			w = append(w, int64(t))
		}
		w = append(w, int64(c.Started))
	}
	if p := r.Persistent; p != nil {
		w = append(append(w, p.Mode), p.Args[:]...)
	}
	return w
}

// Decode reads a section. The messages' bytes are those of b. It takes nothing for granted, and fails
// with a *CorruptError.
func Decode(b []byte) (*Section, error) {
	s := &Section{}
	if len(b) == 0 {
		return s, nil
	}
	r := &reader{b: b}
	version := r.word()
	if r.err == nil && version != sectionVersion && version != versionClaims {
		r.fail("version %d, this libckpt reads %d and %d", version, sectionVersion, versionClaims)
	}
	seen := map[uint32]bool{}
	for n := r.count(4); n > 0; n-- {
		s.Drained = append(s.Drained, r.message())
	}
	for n := r.count(5); n > 0; n-- {
		s.Matched = append(s.Matched, Matched{r.fresh(kindMessage, seen), r.message()})
	}
	for n := r.count(5); n > 0; n-- {
		s.Requests = append(s.Requests, r.request(seen))
	}
	if version == versionClaims {
		for n := r.count(3); n > 0 && r.err == nil; n-- {
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
	b   []byte
	at  int
	err error
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

func (r *reader) int32(what string) int32 {
	return int32(r.within(what, math.MinInt32, math.MaxInt32))
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
func (r *reader) fresh(kind uint32, seen map[uint32]bool) uint32 {
	v := r.id(kind)
	if r.err == nil && (v&(1<<28-1) < predefined || seen[v]) {
		r.fail("id %#x is predefined, or named twice", v)
	}
	seen[v] = true
	return v
}

func (r *reader) message() Message {
	m := Message{Comm: r.id(kindComm), Source: r.int32("a source"), Tag: r.int32("a tag")}
	n := int(r.within("a message's length", 0, int64(len(r.b))))
	padded := (n + 7) &^ 7
	if r.err == nil && padded > len(r.b)-r.at {
		r.fail("message of %d bytes, of which %d are there", n, len(r.b)-r.at)
	}
	if r.err != nil {
		return m
	}
	m.Data = r.b[r.at : r.at+n : r.at+n]
	for _, x := range r.b[r.at+n : r.at+padded] {
		if x != 0 {
			r.fail("padding that is not zero")
		}
	}
	r.at += padded
	return m
}

func (r *reader) held(messages int) Held {
	h := Held{Message: r.within("a message's number", 0, int64(messages)-1), Sender: int32(r.within("a rank", 0, math.MaxInt32)), ID: uint64(r.word())}
	if r.err == nil && h.ID == 0 {
		r.fail("a claim without an id")
	}
	return h
}

func (r *reader) request(seen map[uint32]bool) Request {
	q := Request{ID: r.fresh(kindRequest, seen), Flags: r.word(), Peer: r.int32("a peer"),
		Owner: r.id(kindComm, kindWindow, kindFile)}
	q.State = State(r.within("a request's state", int64(Inactive), int64(AwaitedSend)))
	persistent := q.Flags&FlagPersistent != 0
	if q.State != Complete && q.Owner>>28 != kindComm {
		r.fail("request %#x of kind %d is not complete", q.ID, q.Owner>>28)
	}
	switch q.State {
	case Inactive:
		if !persistent {
			r.fail("request %#x is inactive, but not persistent", q.ID)
		}
	case Complete:
		q.Done = &Done{Source: r.int32("a source"), Tag: r.int32("a tag"), Cancelled: r.within("cancelled", 0, 1) == 1,
			Bytes: r.within("a length", 0, math.MaxInt64), Error: uint8(r.within("an error class", 0, math.MaxUint8))}
	case AwaitedSend:
		q.Awaited = &Awaited{ID: uint64(r.word()), Receiver: int32(r.within("a rank", 0, math.MaxInt32))}
		if r.err == nil && q.Awaited.ID == 0 {
			r.fail("request %#x waits for nothing", q.ID)
		}
	case PostedReceive:
		q.Posted = &Posted{Order: r.word(), Buffer: uint64(r.word()), Count: r.within("a count", 0, math.MaxInt64),
			Type: r.id(kindDatatype), Source: r.int32("a source"), Tag: r.int32("a tag")}
	case DeferredStart:
		q.Deferred = &Deferred{Call: r.word(), Function: int32(r.within("a function", 0, maxFunctions-1))}
		n := r.count(1)
		if r.err == nil && n == 0 {
			r.fail("a deferred call without arguments")
		}
		for ; n > 0 && r.err == nil; n-- {
			q.Deferred.Args = append(q.Deferred.Args, r.word())
		}
	case Generalized:
		q.Upper = &Upper{Object: uint64(r.word()), Thunk: uint64(r.word())}
	case CollectiveOf:
		if persistent {
			r.fail("request %#x is a persistent collective and another persistent request", q.ID)
		}
		c := &Collective{Function: int32(r.within("a function", 0, maxFunctions-1))}
		for n := r.within("a number of arguments", 2, maxArgs); n > 0; n-- {
			c.Args = append(c.Args, r.word())
		}
		c.Request = int32(r.within("the request's position", 0, int64(max(len(c.Args), 1)-1)))
		c.Arrays = r.within("arrays", 0, 1) == 1
		for n := r.count(1); n > 0; n-- {
			c.Types = append(c.Types, r.id(kindDatatype))
		}
		c.Started = r.id(kindRequest)
		q.Collective = c
	}
	if persistent {
		p := &Persistent{Mode: r.within("a mode", 0, 4)}
		for i := range p.Args {
			p.Args[i] = r.word()
		}
		q.Persistent = p
	}
	return q
}
