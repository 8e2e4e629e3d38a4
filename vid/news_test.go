// SPDX-License-Identifier: Apache-2.0

package vid

import (
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// runtimeOf is what a runtime does with reserved ids of communicators.
type runtimeOf struct {
	*Tables
	ring Ring
	ids  []ID
}

func newRuntime(t *testing.T, peers int) *runtimeOf {
	t.Helper()
	tables, err := Open(0, MinWindow+1<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tables.Close() })
	r := &runtimeOf{Tables: tables}
	tables.ListenTo(&r.ring)
	if r.ids, err = tables.ReserveComms(8, peers); err != nil || len(r.ids) != 8 {
		t.Fatalf("%d ids, %v", len(r.ids), err)
	}
	return r
}

// make tells of a communicator of all of some peers.
func (r *runtimeOf) make(t *testing.T, identity uint64, world []int32, room int) ID {
	t.Helper()
	id := r.ids[0]
	r.ids = r.ids[1:]
	s := r.mem.slot(id)
	s.real, s.a, s.b, s.generation = identity*10, 0, int32(len(world)), s.generation+1
	if !r.ring.Tell(id, identity, []byte{byte(identity)}, world, world, room) {
		t.Fatal("the ring is full")
	}
	return id
}

func (r *runtimeOf) taken() (all []News) {
	r.TakeNews(func(n News) { all = append(all, n) })
	return all
}

// TestNews: what is alive becomes an object with all that New and SetComm would have given it; what is gone never was.
func TestNews(t *testing.T) {
	r := newRuntime(t, 5)
	world := []int32{0, 3, 4}
	a, b := r.make(t, 100, world, 5), r.make(t, 200, world, 5)
	if !r.HasNews() || r.Find(Comm, 1000) != None {
		t.Error("the tables know of communicators that they were not told of")
	}
	r.counters(&comm{counters: r.mem.offset(uintptr(r.mem.slot(a).extra))}).clock.call = 7
	if !r.ring.Gone(b, 9) || r.ring.Gone(b, 9) {
		t.Error("what is not taken is not the runtime's, or it is so twice")
	}
	if !r.ring.Named(a, "first") || !r.ring.Named(b, "never heard of") {
		t.Fatal("the ring is full")
	}
	want := []News{{ID: a, Made: true, Identity: 100, Members: world}, {ID: b, Made: true, Identity: 200, Members: world, Gone: true, Calls: 9}}
	if diff := cmp.Diff(want, r.taken()); diff != "" {
		t.Errorf("news (-want +got):\n%s", diff)
	}
	if got := []string{r.NameOf(a), r.NameOf(b)}; !cmp.Equal(got, []string{"first", ""}) {
		t.Errorf("names %q", got)
	}
	if r.HasNews() || len(r.taken()) != 0 || r.ring.Gone(a, 1) {
		t.Error("what was taken is there still")
	}
	if r.Find(Comm, 1000) != a || r.Find(Comm, 2000) != None || r.CallsOn(a) != 7 || r.PeerOf(a, 1) != 3 {
		t.Errorf("found %#x and %#x, %d calls, peer %d", r.Find(Comm, 1000), r.Find(Comm, 2000), r.CallsOn(a), r.PeerOf(a, 1))
	}
	saved := r.Save()
	again, err := Open(0, MinWindow+1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if err := again.Load(saved); err != nil {
		t.Fatal(err)
	}
	if d, err := again.Descriptor(a); err != nil || !cmp.Equal(d, []byte{100}) || again.CallsOn(a) != 7 {
		t.Errorf("saved with descriptor %v (%v) and %d calls", d, err, again.CallsOn(a))
	}
	// A reserved id that nobody used is free after a restart; here it is not.
	if again.Live(Comm) != 1 || r.Live(Comm) != 1 {
		t.Errorf("%d and %d communicators", r.Live(Comm), again.Live(Comm))
	}
}

// TestNewsCounters: the counters of a communicator that is freed serve others of their size, not of its own.
func TestNewsCounters(t *testing.T) {
	r := newRuntime(t, 100)
	id := r.make(t, 100, []int32{0, 1}, 100)
	r.taken()
	at := r.mem.slot(id).extra
	s := r.mem.slot(id)
	s.real, s.generation = 0, s.generation+1
	if !r.ring.Freed(id, 1000, 3) {
		t.Fatal("the ring is full")
	}
	if diff := cmp.Diff([]News{{ID: id, Gone: true, Calls: 3}}, r.taken()); diff != "" {
		t.Errorf("news (-want +got):\n%s", diff)
	}
	if r.Find(Comm, 1000) != None || r.Live(Comm) != 0 || s.extra != 0 {
		t.Errorf("what was freed is there still: %#x, %d live ones", r.Find(Comm, 1000), r.Live(Comm))
	}
	small, err := r.New(Comm, 5, nil, nil, 0)
	if err == nil {
		err = r.SetComm(small, CommInfo{Size: 2, World: []int32{0, 1}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if r.mem.slot(small).extra == at {
		t.Error("two peers have the place of a hundred")
	}
	big, err := r.ReserveComms(1, 100)
	if err != nil {
		t.Fatal(err)
	}
	if r.mem.slot(big[0]).extra != at {
		t.Error("the place of a hundred peers is lost")
	}
	if _, err := r.ReserveComms(1, -1); err == nil {
		t.Error("-1 peers")
	}
}

// TestNewsFull: a ring takes so many, then as many as were taken from it; and a window that is full gives what ids it has
// counters for.
func TestNewsFull(t *testing.T) {
	r := newRuntime(t, 1)
	more, err := r.ReserveComms(3*ringRecords, 1)
	if err != nil {
		t.Fatal(err)
	}
	r.ids = append(r.ids, more...)
	for i := range ringRecords {
		r.make(t, uint64(i+1), []int32{0}, 1)
	}
	if r.ring.Tell(r.ids[0], 1, nil, nil, nil, 0) {
		t.Error("a full ring takes another one")
	}
	if n := len(r.taken()); n != ringRecords {
		t.Errorf("%d of %d", n, ringRecords)
	}
	for i := range 2 * ringRecords {
		r.make(t, uint64(1000+i), []int32{0}, 1)
		if n := r.taken(); len(n) != 1 || n[0].Identity != uint64(1000+i) {
			t.Fatalf("%v", n)
		}
	}
	used := func() int { return int(r.kinds[Comm].next) - len(r.kinds[Comm].freed) }
	before := used()
	peers := int((r.mem.bytes - r.mem.next) / unsafe.Sizeof(bookmark{}) / 3)
	ids, err := r.ReserveComms(100, peers)
	if err != nil || len(ids) == 0 || len(ids) == 100 {
		t.Errorf("%d ids, %v", len(ids), err)
	}
	if none, err := r.ReserveComms(1, peers); err == nil || len(none) != 0 {
		t.Errorf("a full window gives %v", none)
	}
	if used()-before != len(ids) {
		t.Errorf("%d ids are taken for %d communicators", used()-before, len(ids))
	}
}
