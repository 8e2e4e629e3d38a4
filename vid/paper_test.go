// SPDX-License-Identifier: Apache-2.0

package vid

// One test per claim of "Implementation-Oblivious Transparent Checkpoint-Restart for MPI" (Xu,
// Belyaev, Jain, Schafer, Skjellum, Cooperman; SC Workshops 2023) about virtual ids. Each name says
// the claim. Where this package does more than the paper, or something else, the test says so.

import (
	"fmt"
	"testing"
	"unsafe"
)

// Handles of MPI are ints in one implementation and pointers in another: the id fits both, as an int,
// and as the first bytes of what a pointer is.
func TestPaperOneIDServesIntAndPointerHandles(t *testing.T) {
	tb := open(t)
	for _, k := range []Kind{Comm, Group, Datatype, Op, Request, Message} {
		id := MakeID(k, 1<<28-1)
		if k.givenOutByC() || k == Group {
			if id.Kind() != k {
				t.Errorf("%v: kind %v", k, id.Kind())
			}
			continue
		}
		id = mustNew(t, tb, k, 1, "", nil, 0)
		asInt := int32(id) // MPICH, and Fortran everywhere
		var asPointer [8]byte
		*(*ID)(unsafe.Pointer(&asPointer)) = id // the object that Open MPI's handle points to
		if ID(asInt) != id || *(*ID)(unsafe.Pointer(&asPointer)) != id {
			t.Errorf("%v: id %#x does not come back", k, uint32(id))
		}
	}
	if unsafe.Sizeof(ID(0)) != unsafe.Sizeof(int32(0)) {
		t.Error("an id is not as large as an int")
	}
}

// The kind is part of the id, so one table serves all kinds, and an id of one is never taken for one of
// another.
func TestPaperTheIDSaysItsKind(t *testing.T) {
	tb := open(t)
	kinds := []Kind{Comm, Datatype, Op, Win, File}
	for _, k := range kinds {
		id := mustNew(t, tb, k, 77, "", nil, 0) // the same real handle for all
		if id.Kind() != k {
			t.Errorf("an id of %v says %v", k, id.Kind())
		}
		for _, other := range kinds {
			want := None
			if other <= k {
				want = MakeID(other, id.Index())
			}
			if got := tb.Find(other, 77); got != want {
				t.Errorf("after %v: Find(%v) = %#x, want %#x", k, other, uint32(got), uint32(want))
			}
		}
	}
}

// A look-up is an index, not a search: with a hundred thousand objects the slot is where the id says.
func TestPaperLookUpIsAnIndex(t *testing.T) {
	tb := open(t)
	for i := range 100_000 {
		id := mustNew(t, tb, Datatype, uint64(i)+1, "", nil, 0)
		page, at := id.Index()/pageSlots, id.Index()%pageSlots
		slots := tb.mem.offset(tb.mem.directory(Datatype)[page])
		s := (*slot)(tb.mem.at(slots + uintptr(at)*unsafe.Sizeof(slot{})))
		if s.real != uint64(i)+1 {
			t.Fatalf("object %d is not where its id says", i)
		}
	}
}

// What an implementation calls MPI_COMM_WORLD or MPI_INT, a constant, an address or the value of a
// function, is known only when it runs: predefined objects have ids that are the same everywhere, and
// are bound at each start.
func TestPaperPredefinedObjectsAreBoundAtEachStart(t *testing.T) {
	world, int32Type := MakeID(Comm, 1), MakeID(Datatype, 7)
	first := open(t)
	for id, real := range map[ID]uint64{world: 0x44000000, int32Type: 0x4c000405} { // ints
		if err := first.Bind(id, real); err != nil {
			t.Fatal(err)
		}
	}
	second := open(t)
	for id, real := range map[ID]uint64{world: 0x7f0000001000, int32Type: 0x7f0000002000} { // addresses
		if err := second.Bind(id, real); err != nil {
			t.Fatal(err)
		}
	}
	if err := second.Load(first.Save()); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[ID]uint64{world: 0x7f0000001000, int32Type: 0x7f0000002000} {
		if got, err := second.Real(id); err != nil || got != want {
			t.Errorf("%#x is %#x after a restart, want %#x (%v)", uint32(id), got, want, err)
		}
	}
}

// An id survives a restart under another implementation; the real handle does not, and no byte of it
// is in the image.
func TestPaperIDsSurviveAnotherImplementation(t *testing.T) {
	first := open(t)
	const real = 0x0123456789abcdef
	id := mustNew(t, first, Comm, real, "members 0 1", nil, 9)
	saved := first.Save()
	for i := 0; i+8 <= len(saved); i++ {
		if *(*uint64)(unsafe.Pointer(&saved[i])) == real {
			t.Fatal("the image holds a real handle")
		}
	}
	second := open(t)
	if err := second.Load(saved); err != nil {
		t.Fatal(err)
	}
	if err := second.Rebuild(func(k Kind, got ID, desc []byte, _ uint64) (uint64, error) {
		if got != id || string(desc) != "members 0 1" {
			t.Errorf("rebuilt %#x from %q", uint32(got), desc)
		}
		return 42, nil
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := second.Real(id); err != nil || got != 42 {
		t.Errorf("the same id is %d, %v", got, err)
	}
}

// An object is made again from what it is, not by replaying the calls that led to it: of a thousand
// communicators of which one is left, one is made.
func TestPaperNoReplayOfCalls(t *testing.T) {
	tb := open(t)
	last := None
	for i := range 1000 {
		if last != None {
			if err := tb.Free(last); err != nil {
				t.Fatal(err)
			}
		}
		last = mustNew(t, tb, Comm, uint64(i)+1, fmt.Sprint("dup ", i), nil, uint64(i)+1)
	}
	fresh := open(t)
	if err := fresh.Load(tb.Save()); err != nil {
		t.Fatal(err)
	}
	made := 0
	if err := fresh.Rebuild(func(Kind, ID, []byte, uint64) (uint64, error) { made++; return 1, nil }); err != nil {
		t.Fatal(err)
	}
	if made != 1 {
		t.Errorf("%d objects are made again, want the one that lives", made)
	}
}

// A datatype is described by its contents down to named types, which are known even when the program
// freed them.
func TestPaperDatatypesAreDecomposed(t *testing.T) {
	tb := open(t)
	row := mustNew(t, tb, Datatype, 1, "contiguous", []ID{MakeID(Datatype, 7)}, 0)
	matrix := mustNew(t, tb, Datatype, 2, "vector", []ID{row}, 0)
	pair := mustNew(t, tb, Datatype, 3, "struct", []ID{matrix, row}, 0)
	for _, id := range []ID{row, matrix} {
		if err := tb.Free(id); err != nil {
			t.Fatal(err)
		}
	}
	fresh := open(t)
	if err := fresh.Load(tb.Save()); err != nil {
		t.Fatal(err)
	}
	made := 0
	if err := fresh.Rebuild(func(_ Kind, id ID, desc []byte, _ uint64) (uint64, error) {
		made++
		for of, want := range map[ID]string{row: "contiguous", matrix: "vector", pair: "struct"} {
			if got, err := fresh.Descriptor(of); err != nil || string(got) != want {
				t.Errorf("the %s inside is %q, %v", want, got, err)
			}
		}
		if id != pair || string(desc) != "struct" {
			t.Errorf("made %#x from %q, want the one that lives", uint32(id), desc)
		}
		return 1, nil
	}); err != nil {
		t.Fatal(err)
	}
	if made != 1 {
		t.Errorf("%d made", made)
	}
}

// Communicators have an identity that all members compute alike (the paper's global group id), and
// are made again in its order. The paper's is a hash of the members, so that duplicates share it;
// ours is given by the runtime and differs.
func TestPaperMembersAgreeOnTheOrder(t *testing.T) {
	var orders [2][]string
	for rank := range orders {
		tb := open(t)
		names := []string{"a", "b", "c"}
		for i := range names { // each rank made them in another sequence
			n := names[(i+rank)%len(names)]
			mustNew(t, tb, Comm, uint64(i)+1, n, nil, uint64(n[0]))
		}
		fresh := open(t)
		if err := fresh.Load(tb.Save()); err != nil {
			t.Fatal(err)
		}
		if err := fresh.Rebuild(func(_ Kind, _ ID, desc []byte, _ uint64) (uint64, error) {
			orders[rank] = append(orders[rank], string(desc))
			return 1, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if fmt.Sprint(orders[0]) != fmt.Sprint(orders[1]) {
		t.Errorf("rank 0 makes %v, rank 1 %v", orders[0], orders[1])
	}
}

// The way back, from a real handle that MPI returns to its id, gives the id that the program has.
func TestPaperRealToVirtual(t *testing.T) {
	tb := open(t)
	ids := map[uint64]ID{}
	for i := range uint64(1000) {
		ids[i+1] = mustNew(t, tb, Comm, i+1, "", nil, i+1)
	}
	for real, id := range ids {
		if got := tb.Find(Comm, real); got != id {
			t.Fatalf("Find(%d) = %#x, want %#x", real, uint32(got), uint32(id))
		}
	}
	if got := tb.Find(Comm, 5000); got != None {
		t.Errorf("a handle that nobody registered is %#x", uint32(got))
	}
}

// Beyond the paper: an id whose object was freed is refused, also when its number is in use again.
func TestPaperStaleIDsAreRefused(t *testing.T) {
	tb := open(t)
	old := mustNew(t, tb, Op, 1, "", nil, 0)
	before := tb.mem.slot(old).generation
	if err := tb.Free(old); err != nil {
		t.Fatal(err)
	}
	if _, err := tb.Real(old); err == nil {
		t.Error("a freed id has a real handle")
	}
	for range 1 << 20 {
		id := mustNew(t, tb, Op, 2, "", nil, 0)
		if id == old {
			if g := tb.mem.slot(id).generation; g == before {
				t.Error("the number is in use again under the same generation")
			}
			return
		}
		if err := tb.Free(id); err != nil {
			t.Fatal(err)
		}
	}
}
