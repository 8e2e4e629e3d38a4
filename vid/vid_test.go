// SPDX-License-Identifier: Apache-2.0

package vid

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const testWindow = 240 << 20

func open(t testing.TB) *Tables {
	t.Helper()
	tb, err := Open(0, testWindow)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tb.Close(); err != nil {
			t.Error(err)
		}
	})
	return tb
}

func mustNew(t testing.TB, tb *Tables, k Kind, real uint64, desc string, needs []ID, order uint64) ID {
	t.Helper()
	id, err := tb.New(k, real, []byte(desc), needs, order)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestObjectLivesAndBecomesStale(t *testing.T) {
	tb := open(t)
	id := mustNew(t, tb, Datatype, 7, "vector", nil, 0)
	if id.Kind() != Datatype || id.IsPredefined() {
		t.Fatalf("id %#x", uint32(id))
	}
	if got := tb.Find(Datatype, 7); got != id {
		t.Errorf("Find = %#x, want %#x", got, id)
	}
	if real, err := tb.Real(id); err != nil || real != 7 {
		t.Errorf("Real = %d, %v", real, err)
	}
	if err := tb.Free(id); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"Free": tb.Free(id), "Name": tb.Name(id, "x"),
		"Describe": tb.Describe(id, nil, nil)} {
		if !errors.Is(err, ErrStale) {
			t.Errorf("%s of a freed object: %v, want ErrStale", what, err)
		}
	}
	if got := tb.Find(Datatype, 7); got != None {
		t.Errorf("Find finds a freed object: %#x", got)
	}
}

// What C does with a reserved id, and what of it is saved.
func TestReservedIDs(t *testing.T) {
	tb := open(t)
	ids, err := tb.Reserve(Datatype, 3)
	if err != nil || len(ids) != 3 {
		t.Fatalf("Reserve: %v, %v", ids, err)
	}
	other := mustNew(t, tb, Datatype, 9, "other", nil, 0)
	for i, id := range ids {
		if id == other || id.Kind() != Datatype || id.IsPredefined() || slices.Contains(ids[:i], id) {
			t.Fatalf("reserved %#x, the other object is %#x", ids, other)
		}
	}
	if err := tb.Adopt(ids[0], nil, nil); !errors.Is(err, ErrStale) {
		t.Errorf("Adopt of an id whose slot is not live: %v, want ErrStale", err)
	}
	for i, id := range ids { // C makes them live
		*tb.mem.slot(id) = slot{real: uint64(20 + i), generation: 1, a: 8}
	}
	if got := tb.Find(Datatype, 20); got != None {
		t.Errorf("Find finds %#x, which was not adopted", got)
	}
	if err := tb.Adopt(ids[0], []byte("inner"), nil); err != nil {
		t.Fatal(err)
	}
	if err := tb.Adopt(ids[1], []byte("outer"), []ID{ids[0]}); err != nil {
		t.Fatal(err)
	}
	if err := tb.Adopt(ids[1], nil, nil); !errors.Is(err, ErrStale) {
		t.Errorf("a second Adopt: %v, want ErrStale", err)
	}
	if got := tb.Find(Datatype, 21); got != ids[1] {
		t.Errorf("Find = %#x, want %#x", got, ids[1])
	}
	tb.mem.slot(ids[2]).generation++ // C freed it: nobody hears of it
	if err := tb.Free(ids[0]); err != nil {
		t.Fatal(err)
	}
	fresh := open(t)
	if err := fresh.Load(tb.Save()); err != nil {
		t.Fatal(err)
	}
	made := map[ID]string{}
	if err := fresh.Rebuild(func(_ Kind, id ID, desc []byte, _ uint64) (uint64, error) {
		made[id] = string(desc)
		return uint64(id), nil
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[ID]string{other: "other", ids[1]: "outer"}, made); diff != "" {
		t.Errorf("rebuilt (-want +got):\n%s", diff)
	}
	if d, err := fresh.Descriptor(ids[0]); err != nil || string(d) != "inner" {
		t.Errorf("what the outer one needs: %q, %v", d, err)
	}
	again, err := fresh.Reserve(Datatype, 1)
	if err != nil || !slices.Contains([]ID{ids[2]}, again[0]) && again[0].Index() <= other.Index() {
		t.Errorf("Reserve after Load: %#x, %v", again, err)
	}
}

func TestOneRealHandleMayGetANewID(t *testing.T) {
	tb := open(t)
	a := mustNew(t, tb, Op, 5, "", nil, 0)
	b := mustNew(t, tb, Op, 5, "", nil, 0) // the MPI reused its handle before the free arrived here
	if err := tb.Free(a); err != nil {
		t.Fatal(err)
	}
	if got := tb.Find(Op, 5); got != b {
		t.Errorf("Find = %#x, want the live object %#x", got, b)
	}
}

func TestNeededDescriptorsOutliveTheirObjects(t *testing.T) {
	tb := open(t)
	inner := mustNew(t, tb, Datatype, 1, "inner", nil, 0)
	outer := mustNew(t, tb, Datatype, 2, "outer", []ID{inner}, 0)
	if err := tb.Free(inner); err != nil {
		t.Fatal(err)
	}
	if d, err := tb.Descriptor(inner); err != nil || string(d) != "inner" {
		t.Errorf("descriptor of a needed object: %q, %v", d, err)
	}
	if err := tb.Free(outer); err != nil {
		t.Fatal(err)
	}
	if _, err := tb.Descriptor(inner); !errors.Is(err, ErrStale) {
		t.Errorf("descriptor that nobody needs is still there: %v", err)
	}
	if _, err := tb.New(Datatype, 3, nil, []ID{inner}, 0); !errors.Is(err, ErrStale) {
		t.Errorf("New with a need that is gone: %v", err)
	}
}

func TestCreateAndFreeDoesNotLeak(t *testing.T) {
	tb := open(t)
	world := make([]int32, 64)
	var before uintptr
	for i := range 20000 {
		inner := mustNew(t, tb, Datatype, uint64(i), "inner", nil, 0)
		outer := mustNew(t, tb, Datatype, uint64(i)+1<<32, "outer", []ID{inner}, 0)
		c := mustNew(t, tb, Comm, uint64(i), "comm", nil, uint64(i+1))
		if err := tb.SetComm(c, CommInfo{Size: 64, World: world}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []ID{inner, outer, c} {
			if err := tb.Free(id); err != nil {
				t.Fatal(err)
			}
		}
		if i == 1000 {
			before = tb.mem.next
		}
	}
	if tb.mem.next != before {
		t.Errorf("the window grew from %d to %d bytes", before, tb.mem.next)
	}
	if len(tb.objects) != 0 {
		t.Errorf("%d objects left", len(tb.objects))
	}
}

func TestMillions(t *testing.T) {
	tb := open(t)
	const n = 1 << 20
	for i := range uint64(n) {
		mustNew(t, tb, Datatype, i+1, "", nil, 0)
	}
	for free := pageSlots - Predefined; free < n; free += pageSlots {
		if err := tb.Grow(Request); err != nil {
			t.Fatal(err)
		}
	}
	// Walk the free list as C would: every index once.
	seen := make([]bool, 2*n)
	count := 0
	for i := uint32(tb.mem.header().free[Request] & indexMask); i != 0; i = uint32(tb.mem.slot(MakeID(Request, i)).extra) {
		if seen[i] {
			t.Fatalf("index %d is on the free list twice", i)
		}
		seen[i] = true
		count++
	}
	if count < n {
		t.Errorf("%d free requests, want at least %d", count, n)
	}
	if got := tb.Live(Datatype); got != n {
		t.Errorf("%d datatypes, want %d", got, n)
	}
}

func TestFullWindowIsAnError(t *testing.T) {
	tb, err := Open(0, MinWindow+pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tb.Close() }()
	for range 10 {
		if err = tb.Grow(Request); err != nil {
			break
		}
	}
	if err == nil {
		t.Fatal("a full window was not noticed")
	}
}

func TestOpenAtATakenAddress(t *testing.T) {
	tb := open(t)
	if other, err := Open(tb.Address(), testWindow); err == nil {
		_ = other.Close()
		t.Fatal("two windows in one place")
	}
}

func TestConcurrentUse(t *testing.T) {
	tb := open(t)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				id, err := tb.New(Datatype, uint64(g*1000+i+1), []byte("d"), nil, 0)
				if err != nil {
					t.Error(err)
					return
				}
				_ = tb.Find(Datatype, uint64(i))
				_ = tb.Bookmarks()
				if i%50 == 0 {
					_ = tb.Save()
				}
				if err := tb.Free(id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// fill makes one of everything that Save keeps.
func fill(t testing.TB, tb *Tables) (live, dead ID) {
	world := MakeID(Comm, 1)
	if err := tb.Bind(world, 1); err != nil {
		t.Fatal(err)
	}
	if err := tb.SetComm(world, CommInfo{Rank: 1, Size: 3, Identity: 1, World: []int32{0, 1, 2}}); err != nil {
		t.Fatal(err)
	}
	grid := mustNew(t, tb, Comm, 2, "cart", nil, 99)
	if err := tb.SetComm(grid, CommInfo{Rank: 0, Size: 2, Identity: 99, World: []int32{2, -1}}); err != nil {
		t.Fatal(err)
	}
	if err := tb.Name(grid, "grid"); err != nil {
		t.Fatal(err)
	}
	*tb.bookmark(tb.objects[grid].comm, 0) = bookmark{5, 3}
	tb.counters(tb.objects[world].comm).children = 8
	dead = mustNew(t, tb, Datatype, 3, "inner", nil, 0)
	live = mustNew(t, tb, Datatype, 4, "outer", []ID{dead}, 0)
	if err := tb.Free(dead); err != nil {
		t.Fatal(err)
	}
	if err := tb.Free(mustNew(t, tb, Op, 5, "gone", nil, 0)); err != nil {
		t.Fatal(err)
	}
	return live, dead
}

func TestSaveAndLoad(t *testing.T) {
	for _, bound := range []bool{false, true} {
		t.Run(fmt.Sprintf("bound before load: %v", bound), func(t *testing.T) {
			a, b := open(t), open(t)
			live, dead := fill(t, a)
			if bound {
				world := MakeID(Comm, 1)
				if err := b.Bind(world, 77); err != nil {
					t.Fatal(err)
				}
				if err := b.SetComm(world, CommInfo{Rank: 1, Size: 3, Identity: 1, World: []int32{0, 1, 2}}); err != nil {
					t.Fatal(err)
				}
			}
			saved := a.Save()
			if err := b.Load(saved); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(a.Bookmarks(), b.Bookmarks()); diff != "" {
				t.Errorf("bookmarks (-saved +loaded):\n%s", diff)
			}
			if diff := cmp.Diff(saved, b.Save()); diff != "" {
				t.Errorf("saved again differs:\n%s", diff)
			}
			if got := b.counters(b.objects[MakeID(Comm, 1)].comm).children; got != 8 {
				t.Errorf("children = %d, want 8", got)
			}
			if d, err := b.Descriptor(dead); err != nil || string(d) != "inner" {
				t.Errorf("needed descriptor: %q, %v", d, err)
			}
			if err := b.Free(live); err != nil {
				t.Error(err)
			}
			if len(b.objects) != 2 {
				t.Errorf("%d objects left, want the two communicators", len(b.objects))
			}
			if id := mustNew(t, b, Datatype, 9, "", nil, 0); id == live {
				t.Errorf("a fresh id equals one just freed: %#x", uint32(id))
			}
		})
	}
}

func TestRebuildSequence(t *testing.T) {
	tb := open(t)
	var ids []ID
	add := func(k Kind, name string, needs []ID, order uint64) ID {
		id := mustNew(t, tb, k, 0, name, needs, order)
		ids = append(ids, id)
		return id
	}
	late := add(Comm, "comm 9", nil, 9)
	inner := add(Datatype, "inner", nil, 0)
	add(Win, "window on 9", []ID{late}, 1)
	early := add(Comm, "comm 3", nil, 3)
	outer := add(Datatype, "outer", []ID{inner}, 0)
	add(Session, "local on comm 3", []ID{early, outer}, 0)
	if err := tb.Describe(inner, []byte("inner"), nil); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := tb.Rebuild(func(_ Kind, _ ID, desc []byte, real uint64) (uint64, error) {
		got = append(got, string(desc))
		return uint64(100 + len(got)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"inner", "outer", "comm 3", "comm 9", "window on 9", "local on comm 3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sequence (-want +got):\n%s", diff)
	}
	if id := tb.Find(Comm, 103); id != early {
		t.Errorf("the new real handle of %#x is not found", uint32(early))
	}
	_ = ids
}

func TestRebuildReportsTheObject(t *testing.T) {
	tb := open(t)
	id := mustNew(t, tb, Op, 0, "x", nil, 0)
	bad := errors.New("no such function")
	err := tb.Rebuild(func(Kind, ID, []byte, uint64) (uint64, error) { return 0, bad })
	if !errors.Is(err, bad) || !cmp.Equal(err.Error(), fmt.Sprintf("vid: cannot make op %#x again: no such function", uint32(id))) {
		t.Errorf("%v", err)
	}
}

func TestLongChainsOfNeeds(t *testing.T) {
	tb := open(t)
	const n = 200000
	last := mustNew(t, tb, Datatype, 0, "0", nil, 0)
	all := []ID{last}
	for range n {
		last = mustNew(t, tb, Datatype, 0, "d", []ID{last}, 0)
		all = append(all, last)
	}
	if err := tb.Rebuild(func(Kind, ID, []byte, uint64) (uint64, error) { return 1, nil }); err != nil {
		t.Fatal(err)
	}
	for _, id := range all {
		if err := tb.Free(id); err != nil {
			t.Fatal(err)
		}
	}
	if len(tb.objects) != 0 {
		t.Errorf("%d objects left", len(tb.objects))
	}
}

func TestLoadRefusesDamage(t *testing.T) {
	a := open(t)
	fill(t, a)
	saved := a.Save()
	check := func(name string, b []byte) {
		tb, err := Open(0, MinWindow+1<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tb.Close() }()
		if err := tb.Load(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", name, err)
		}
	}
	for n := range len(saved) {
		check(fmt.Sprintf("cut to %d bytes", n), saved[:n])
	}
	check("one byte more", append(slices.Clone(saved), 0))
	other := slices.Clone(saved)
	other[4] = 3
	check("another version", other)
}

// TestPortsAreSaved: only a job that had ports is saved in the second version, which has one kind more; a port comes
// back with the descriptor that it has last, a closed one does not, and the first version can have none.
func TestPortsAreSaved(t *testing.T) {
	a := open(t)
	fill(t, a)
	if v := a.Save()[4]; v != 1 {
		t.Errorf("without ports: version %d, want 1", v)
	}
	kept := mustNew(t, a, Port, 1, "one", nil, 0)
	if err := a.Free(mustNew(t, a, Port, 2, "closed", nil, 0)); err != nil {
		t.Fatal(err)
	}
	if err := a.Describe(kept, []byte("other"), nil); err != nil {
		t.Fatal(err)
	}
	saved := a.Save()
	if saved[4] != 2 {
		t.Errorf("with a port: version %d, want 2", saved[4])
	}
	b := open(t)
	if err := b.Load(saved); err != nil {
		t.Fatal(err)
	}
	made := map[ID]string{}
	err := b.Rebuild(func(k Kind, id ID, desc []byte, _ uint64) (uint64, error) {
		if k == Port {
			made[id] = string(desc)
		}
		return uint64(id), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(made) != 1 || made[kept] != "other" {
		t.Errorf("made again: %v, want only %#x as %q", made, uint32(kept), "other")
	}
	if id := mustNew(t, b, Port, 99, "new", nil, 0); id == kept {
		t.Errorf("the id %#x was given out again", uint32(id))
	}
	// The same with the first version's number and without the mark of ports: the object is none that it can have.
	old := slices.Clone(saved)
	old[4] = 1
	if err := open(t).Load(old); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a port in version 1: %v, want ErrCorrupt", err)
	}
}

// FuzzLoad: bytes that Load accepts come back from Save in a form that Load accepts again.
func FuzzLoad(f *testing.F) {
	a := open(f)
	fill(f, a)
	f.Add(a.Save())
	empty := open(f)
	f.Add(empty.Save())
	mustNew(f, a, Port, 6, "port", nil, 0)
	f.Add(a.Save())
	f.Fuzz(func(t *testing.T, b []byte) {
		tb, err := Open(0, MinWindow+16<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tb.Close() }()
		if tb.Load(b) != nil {
			return
		}
		again, err := Open(0, MinWindow+16<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = again.Close() }()
		if err := again.Load(tb.Save()); err != nil {
			t.Errorf("what was loaded cannot be saved and loaded: %v", err)
		}
	})
}

// TestTask: a communicator counts for one local task, which is saved with it.
func TestTask(t *testing.T) {
	a, err := Open(0, 1<<24)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	var ids []ID
	for task := range 3 {
		id, err := a.New(Comm, uint64(task+1), []byte("x"), nil, 0)
		if err == nil && task > 0 {
			err = a.SetTask(id, task)
		}
		if err == nil {
			err = a.SetComm(id, CommInfo{Rank: task, Size: 3, Identity: 9, World: []int32{0, 1, 2}})
		}
		if err != nil {
			t.Fatal(err)
		}
		*a.bookmark(a.objects[id].comm, 0) = bookmark{sent: uint64(10 + task)}
		a.counters(a.objects[id].comm).clock = clock{call: 5, ret: 5}
		ids = append(ids, id)
	}
	if err := a.SetTask(ids[2], 1); !errors.Is(err, ErrOwned) {
		t.Errorf("another task: %v", err)
	}
	if err := a.SetTask(ids[2], 2); err != nil {
		t.Errorf("the same task: %v", err)
	}
	if err := a.SetTask(MakeID(Group, Predefined), 1); err == nil {
		t.Error("a group has a task")
	}
	b, err := Open(0, 1<<24)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if err := b.Load(a.Save()); err != nil {
		t.Fatal(err)
	}
	for task, id := range ids {
		if got := b.TaskOf(id); got != task {
			t.Errorf("%#x is the view of task %d, was %d", uint32(id), got, task)
		}
	}
	for i, m := range b.Bookmarks() {
		if m.Task != i || m.Sent != uint64(10+i) {
			t.Errorf("%+v", m)
		}
	}
	if n := b.Tasks(); n != 3 {
		t.Errorf("%d tasks", n)
	}
	b.ForgetCalls()
	if got := CallsOf(b, map[ID]bool{ids[1]: true}); len(got) != 1 || got[0] != (Calls{Comm: ids[1]}) {
		t.Errorf("counts %+v after they were forgotten", got)
	}
}
