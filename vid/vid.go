// SPDX-License-Identifier: Apache-2.0

package vid

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// ErrStale marks a call with an id that names no live object.
var ErrStale = errors.New("stale or unknown id")

// ErrOwned marks a communicator that counts for another local task already.
var ErrOwned = errors.New("vid: the view of another task")

// object is what Go knows of one id. Saved whole, but for real (which lies in the slot).
type object struct {
	id    ID
	live  bool   // false: freed, kept because refs > 0
	refs  int    // how many objects need this one; rebuilt from needs
	seq   uint64 // age: grows with every object made
	order uint64 // 0: local; else place in the global order of collective objects
	desc  []byte // nil: nothing to rebuild
	needs []ID
	name  string
	comm  *comm // communicators only
	task  int   // communicators only: the local task whose view it is
}

// comm is what Go knows of a communicator.
type comm struct {
	identity uint64
	world    []int32 // world rank per peer, -1 for one outside the job
	counters uintptr // offset of its ckpt_comm_counters in the window; rebuilt
	room     int     // peers that these have room for, when more than there are
}

func (c *comm) bytes() uintptr { return commBytes(max(len(c.world), c.room)) }

func commBytes(peers int) uintptr {
	return unsafe.Sizeof(counters{}) + uintptr(peers)*unsafe.Sizeof(bookmark{})
}

// ids gives out the indices of one kind: fresh ones up to the high-water mark, then the one freed
// longest ago, so that a stale id stays recognizable as long as possible.
type ids struct {
	next  uint32 // high-water mark
	freed []uint32
	real  map[uint64]ID // live objects by real handle
}

// Tables is one job's table of virtual ids. All methods may be called by any goroutine.
type Tables struct {
	mu      sync.Mutex
	mem     window
	kinds   [kinds]ids
	objects map[ID]*object
	seq     uint64

	ring   atomic.Pointer[Ring] // the runtime's, in memory of C; nil: it has none
	taking sync.Mutex           // held by the one who takes from it; before mu
}

// Open reserves a window of size bytes at addr (anywhere when addr is 0) and makes empty tables in
// it. On failure nothing stays mapped.
func Open(addr, size uintptr) (*Tables, error) {
	if size < MinWindow {
		return nil, fmt.Errorf("vid: a window of %d bytes is too small, at least %d are needed", size, uintptr(MinWindow))
	}
	mem, err := reserve(addr, size)
	if err != nil {
		return nil, err
	}
	t := &Tables{mem: mem, objects: make(map[ID]*object)}
	if err := t.mem.format(); err != nil {
		return nil, errors.Join(err, t.mem.release())
	}
	for k := range t.kinds {
		t.kinds[k] = ids{next: Predefined, real: make(map[uint64]ID)}
		if Kind(k).givenOutByC() {
			t.mem.push(Kind(k), Predefined, pageSlots-1)
			t.kinds[k].next = pageSlots
		}
	}
	return t, nil
}

// Close unmaps the window. Nobody may use the tables any more, C included.
func (t *Tables) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mem.release()
}

// Address is the address of ckpt_tables.
func (t *Tables) Address() uintptr { return uintptr(t.mem.base) }

// SetPending sets the word that the hot path looks at: CKPT_PENDING_* of tables.h, or 0.
func (t *Tables) SetPending(v uint32) { atomic.StoreUint32(&t.mem.header().pending, v) }

// Attend sets bits of the word that ckpt_poll looks at (CKPT_ATTEND_* of tables.h); Ignore takes them back.
func (t *Tables) Attend(bits uint32) { atomic.OrUint32(&t.mem.header().attention, bits) }
func (t *Tables) Ignore(bits uint32) { atomic.AndUint32(&t.mem.header().attention, ^bits) }

// New gives an object an id and keeps its descriptor. needs lists the ids that the descriptor
// refers to; order is 0 for an object that is made locally (see the package comment).
func (t *Tables) New(k Kind, real uint64, desc []byte, needs []ID, order uint64) (ID, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !k.valid() || k.givenOutByC() {
		return None, fmt.Errorf("vid: cannot make an object of kind %d (%v) here", k, k)
	}
	if err := t.checkNeeds(needs); err != nil {
		return None, err
	}
	id, err := t.takeIndex(k)
	if err != nil {
		return None, err
	}
	o := &object{id: id, live: true, seq: t.seq, order: order, desc: slices.Clone(desc), needs: slices.Clone(needs)}
	t.seq++
	t.objects[id] = o
	t.hold(o.needs)
	s := t.mem.slot(id)
	g := s.generation
	*s = slot{generation: g + 1}
	t.setReal(id, s, real)
	return id, nil
}

// Reserve takes at most n ids of free indices for a runtime that gives them out itself. An object with such an id
// exists only in its slot, which the runtime makes live and stale, until Adopt makes the object known here. Save
// does not write objects that are not known.
func (t *Tables) Reserve(k Kind, n int) ([]ID, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !k.valid() || k.givenOutByC() {
		return nil, fmt.Errorf("vid: cannot reserve ids of kind %d (%v)", k, k)
	}
	var out []ID
	for len(out) < n {
		id, err := t.takeIndex(k)
		if err != nil {
			if len(out) > 0 {
				break // the last ones there are
			}
			return nil, err
		}
		out = append(out, id)
	}
	return out, nil
}

// Adopt makes an object with a reserved id known. Its slot is live, and stays as it is.
func (t *Tables) Adopt(id ID, desc []byte, needs []ID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.live(id) || id.IsPredefined() || t.objects[id] != nil || id.Kind().givenOutByC() {
		return fmt.Errorf("vid: cannot adopt %v %#x: %w", id.Kind(), uint32(id), ErrStale)
	}
	if err := t.checkNeeds(needs); err != nil {
		return err
	}
	o := &object{id: id, live: true, seq: t.seq, desc: slices.Clone(desc), needs: slices.Clone(needs)}
	t.seq++
	t.objects[id] = o
	t.hold(o.needs)
	if real := t.mem.slot(id).real; real != 0 {
		t.kinds[id.Kind()].real[real] = id
	}
	return nil
}

// Bind binds a predefined object to its real handle.
func (t *Tables) Bind(id ID, real uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !id.Kind().valid() || !id.IsPredefined() {
		return fmt.Errorf("vid: %#x is not a predefined id", uint32(id))
	}
	s := t.mem.slot(id)
	s.generation |= 1
	t.setReal(id, s, real)
	return nil
}

// Describe replaces the descriptor and needs of a live object; a predefined one has none at first,
// and is rebuilt (changed, really) on restart once it has.
func (t *Tables) Describe(id ID, desc []byte, needs []ID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.checkNeeds(needs); err != nil {
		return err
	}
	o, err := t.object(id)
	if err != nil {
		return err
	}
	old := o.needs
	o.desc, o.needs = slices.Clone(desc), slices.Clone(needs)
	t.hold(o.needs)
	t.drop(old)
	return nil
}

// Name keeps the name that people see.
func (t *Tables) Name(id ID, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, err := t.object(id)
	if err == nil {
		o.name = name
	}
	return err
}

// NameOf is what people call an object, "" when it has no name.
func (t *Tables) NameOf(id ID) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.objects[id]; o != nil {
		return o.name
	}
	return ""
}

// CommInfo says who can be reached over a communicator.
type CommInfo struct {
	Rank, Size int     // mine and the local group's
	Identity   uint64  // equal on all members, differs from every other communicator's
	World      []int32 // world rank of each peer that messages are sent to
}

// SetComm gives a communicator its rank, size and counters. Calling it again (a rebuilt
// communicator) keeps the counters when the peers are the same.
func (t *Tables) SetComm(id ID, info CommInfo) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id.Kind() != Comm {
		return fmt.Errorf("vid: %#x is no communicator", uint32(id))
	}
	o, err := t.object(id)
	if err != nil {
		return err
	}
	if o.comm != nil && !slices.Equal(o.comm.world, info.World) {
		return fmt.Errorf("vid: communicator %#x already has %d peers, not these %d", uint32(id), len(o.comm.world), len(info.World))
	}
	if o.comm == nil {
		if err := t.attach(o, &comm{world: slices.Clone(info.World)}); err != nil {
			return err
		}
	}
	o.comm.identity = info.Identity
	s := t.mem.slot(id)
	s.a, s.b = int32(info.Rank), int32(info.Size)
	return nil
}

// SetTask says of which local task a communicator is the view, before SetComm; 0 is said of all others.
func (t *Tables) SetTask(id ID, task int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id.Kind() != Comm {
		return fmt.Errorf("vid: %#x is no communicator", uint32(id))
	}
	o, err := t.object(id)
	if err != nil {
		return err
	}
	if o.comm != nil && o.task != task {
		return fmt.Errorf("%w: communicator %#x, local task %d", ErrOwned, uint32(id), o.task)
	}
	o.task = task
	return nil
}

// Tasks is one more than the highest local task that SetTask said.
func (t *Tables) Tasks() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 1
	for _, o := range t.objects {
		n = max(n, o.task+1)
	}
	return n
}

// TaskOf is what SetTask said.
func (t *Tables) TaskOf(id ID) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.objects[id]; o != nil {
		return o.task
	}
	return 0
}

// attach gives o its counters.
func (t *Tables) attach(o *object, c *comm) error {
	off, err := t.mem.alloc(c.bytes())
	if err != nil {
		return err
	}
	c.counters, o.comm = off, c
	t.mem.slot(o.id).extra = uint64(uintptr(t.mem.at(off)))
	return nil
}

// Free makes the id of a live object stale. Its descriptor stays while others need it.
func (t *Tables) Free(id ID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.objects[id]
	if o == nil || !o.live || id.IsPredefined() {
		return fmt.Errorf("vid: cannot free %v %#x: %w", id.Kind(), uint32(id), ErrStale)
	}
	s := t.mem.slot(id)
	t.setReal(id, s, 0)
	s.generation++
	s.extra = 0
	t.gone(o)
	return nil
}

// Descriptor returns the descriptor of an object that is live or still needed.
func (t *Tables) Descriptor(id ID) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.objects[id]
	if o == nil {
		return nil, fmt.Errorf("vid: no descriptor of %v %#x: %w", id.Kind(), uint32(id), ErrStale)
	}
	return slices.Clone(o.desc), nil
}

// Find returns the id of the live object with this real handle, or None.
func (t *Tables) Find(k Kind, real uint64) ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !k.valid() {
		return None
	}
	if id, ok := t.kinds[k].real[real]; ok {
		return id
	}
	return None
}

// Real returns the real handle of a live object.
func (t *Tables) Real(id ID) (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.live(id) {
		return 0, fmt.Errorf("vid: %v %#x: %w", id.Kind(), uint32(id), ErrStale)
	}
	return t.mem.slot(id).real, nil
}

// Grow adds a page of free slots of a kind whose ids C gives out.
func (t *Tables) Grow(k Kind) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !k.givenOutByC() {
		return fmt.Errorf("vid: the ids of kind %d (%v) are not given out by C", k, k)
	}
	in := &t.kinds[k]
	if in.next/pageSlots >= pagesPerKind {
		return fmt.Errorf("vid: no more ids of kind %v: all %d are in use", k, pagesPerKind*pageSlots)
	}
	if err := t.mem.addPage(k, int(in.next/pageSlots)); err != nil {
		return err
	}
	t.mem.push(k, in.next, in.next+pageSlots-1)
	in.next += pageSlots
	return nil
}

// Live counts the live objects of a kind that Go gave out, predefined ones excluded.
func (t *Tables) Live(k Kind) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for id, o := range t.objects {
		if o.live && id.Kind() == k && !id.IsPredefined() {
			n++
		}
	}
	return n
}

// ---- below: the lock is held ----

func (t *Tables) takeIndex(k Kind) (ID, error) {
	in := &t.kinds[k]
	// A small reserve of freed indices keeps a just-freed id stale for a while.
	if len(in.freed) > 64 || (len(in.freed) > 0 && in.next/pageSlots >= pagesPerKind) {
		i := in.freed[0]
		in.freed = in.freed[1:]
		return MakeID(k, i), nil
	}
	if in.next/pageSlots >= pagesPerKind {
		return None, fmt.Errorf("vid: no more ids of kind %v: all %d are in use", k, pagesPerKind*pageSlots)
	}
	if err := t.ensurePage(k, in.next); err != nil {
		return None, err
	}
	in.next++
	return MakeID(k, in.next-1), nil
}

func (t *Tables) ensurePage(k Kind, index uint32) error {
	if n := index / pageSlots; t.mem.directory(k)[n] == 0 {
		return t.mem.addPage(k, int(n))
	}
	return nil
}

func (t *Tables) setReal(id ID, s *slot, real uint64) {
	m := t.kinds[id.Kind()].real
	if m[s.real] == id {
		delete(m, s.real)
	}
	s.real = real
	if real != 0 {
		m[real] = id
	}
}

func (t *Tables) live(id ID) bool {
	k := id.Kind()
	if !k.valid() || t.mem.directory(k)[id.Index()/pageSlots] == 0 {
		return false
	}
	return t.mem.slot(id).generation&1 == 1
}

// object returns the record of a live object, made on demand for predefined ones.
func (t *Tables) object(id ID) (*object, error) {
	if !t.live(id) {
		return nil, fmt.Errorf("vid: %v %#x: %w", id.Kind(), uint32(id), ErrStale)
	}
	if o := t.objects[id]; o != nil {
		return o, nil
	}
	if !id.IsPredefined() {
		return nil, fmt.Errorf("vid: %v %#x has no record: its id was given out by C", id.Kind(), uint32(id))
	}
	o := &object{id: id, live: true, seq: t.seq}
	t.seq++
	t.objects[id] = o
	return o, nil
}

func (t *Tables) checkNeeds(needs []ID) error {
	for _, id := range needs {
		if !id.IsPredefined() && t.objects[id] == nil {
			return fmt.Errorf("vid: a descriptor needs %v %#x: %w", id.Kind(), uint32(id), ErrStale)
		}
	}
	return nil
}

func (t *Tables) hold(needs []ID) {
	for _, id := range needs {
		if o := t.objects[id]; o != nil {
			o.refs++
		}
	}
}

func (t *Tables) drop(needs []ID) {
	for _, id := range needs {
		if o := t.objects[id]; o != nil {
			o.refs--
			t.retire(o)
		}
	}
}

// gone takes what only a live object has from one whose slot is stale.
func (t *Tables) gone(o *object) {
	o.live = false
	if o.comm != nil {
		t.mem.dealloc(o.comm.counters, o.comm.bytes())
		o.comm = nil
	}
	t.retire(o)
}

// retire forgets an object that is neither live nor needed, and what only it needed. A chain of
// needs may be long, so this is a loop.
func (t *Tables) retire(o *object) {
	todo := []*object{o}
	for len(todo) > 0 {
		o := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if o.live || o.refs > 0 || t.objects[o.id] != o {
			continue
		}
		delete(t.objects, o.id)
		in := &t.kinds[o.id.Kind()]
		in.freed = append(in.freed, o.id.Index())
		for _, id := range o.needs {
			if n := t.objects[id]; n != nil {
				n.refs--
				todo = append(todo, n)
			}
		}
	}
}
