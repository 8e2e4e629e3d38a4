// SPDX-License-Identifier: Apache-2.0

package vid

// The types below mirror include/ckpt/tables.h; layout_test.go compares every offset with C.

// Kind is the kind of an object. The numbers are part of images and never reused.
type Kind uint32

// Kinds of objects.
const (
	Comm       Kind = 1
	Group      Kind = 2
	Datatype   Kind = 3
	Op         Kind = 4
	Message    Kind = 5
	Errhandler Kind = 6
	Request    Kind = 7
	Info       Kind = 8
	Win        Kind = 9
	File       Kind = 10
	Keyval     Kind = 11
	Session    Kind = 12
	Port       Kind = 13

	kinds = 16
)

var kindNames = [kinds]string{Comm: "communicator", Group: "group", Datatype: "datatype", Op: "op",
	Message: "message", Errhandler: "errhandler", Request: "request", Info: "info", Win: "window",
	File: "file", Keyval: "keyval", Session: "session", Port: "port"}

func (k Kind) String() string {
	if k.valid() {
		return kindNames[k]
	}
	return "unknown kind"
}

func (k Kind) valid() bool { return k >= Comm && k <= Port }

// givenOutByC tells whether C gives out the ids of this kind, from Tables.free.
func (k Kind) givenOutByC() bool { return k == Request || k == Message }

// ID is a virtual id: kind in the upper 4 bits, index in the lower 28.
type ID uint32

// None is no id at all.
const None ID = 1<<32 - 1

// Predefined is the first index that is given out; those below are fixed (0 is the null handle).
const Predefined = 256

const indexMask = 1<<28 - 1

// MakeID composes an id.
func MakeID(k Kind, index uint32) ID { return ID(uint32(k)<<28 | index&indexMask) }

// Kind returns the kind of id.
func (id ID) Kind() Kind { return Kind(id >> 28) }

// Index returns the index of id within its kind.
func (id ID) Index() uint32 { return uint32(id) & indexMask }

// IsPredefined tells whether id is one of the fixed ones.
func (id ID) IsPredefined() bool { return id.Index() < Predefined }

const (
	tablesMagic   = 0x31424154544b5043
	tablesVersion = 1
	pageSlots     = 4096
	pagesPerKind  = 65536
)

// header is ckpt_tables.
type header struct {
	magic          uint64
	version, bytes uint32
	pending        uint32
	attention      uint32
	pages          [kinds]uintptr
	free           [kinds]uint64
}

// slot is ckpt_slot.
type slot struct {
	real       uint64
	generation uint32
	clock      uint32
	a, b       int32
	extra      uint64
}

// bookmark is ckpt_bookmark.
type bookmark struct{ sent, received uint64 }

// clock is ckpt_clock.
type clock struct {
	call, ret uint64
	name      uintptr // C's alone
}

// counters is the head of ckpt_comm_counters; its bookmarks follow.
type counters struct {
	children uint64
	clock    clock
}
