// SPDX-License-Identifier: Apache-2.0

package vid

import (
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"
)

// News of a communicator, which the runtime put into its ring (include/ckpt/private/news.h).
type News struct {
	ID       ID
	Made     bool    // it is new, with Identity and Members; else the tables knew it
	Gone     bool    // it is freed; if it is new, these tables never knew it, and ID may be another one's by now
	Calls    uint64  // collective calls that were made on it, when it is gone
	Identity uint64  // equal on all members
	Members  []int32 // who takes part in collective calls
}

const ringRecords = 512

// States of a record.
const (
	newsMade  = 1
	newsGone  = 2
	newsTaken = 3
	newsFreed = 4
	newsNamed = 5
)

// newsRecord is struct news.
type newsRecord struct {
	state            uint32
	id               ID
	identity         uint64
	calls            uint64
	real             uint64
	descriptor       unsafe.Pointer
	bytes            uint64
	peers, members   unsafe.Pointer
	npeers, nmembers int32
	room, _          int32
}

// Ring is struct news_ring. The back of an MPI has one in C, and writes it there (capi/back/object/untold.c).
type Ring struct {
	put, taken uint32
	of         [ringRecords]newsRecord
}

// ReserveComms reserves ids as Reserve does, for communicators: the slot of each has counters with room for so
// many peers. TakeNews adopts them.
func (t *Tables) ReserveComms(n, peers int) ([]ID, error) {
	if peers < 0 {
		return nil, fmt.Errorf("vid: communicators of %d peers", peers)
	}
	ids, err := t.Reserve(Comm, n)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, id := range ids {
		off, e := t.mem.alloc(commBytes(peers))
		if e != nil {
			for _, rest := range ids[i:] {
				t.kinds[Comm].freed = append(t.kinds[Comm].freed, rest.Index())
			}
			if i == 0 {
				err = e
			}
			ids = ids[:i]
			break
		}
		t.mem.slot(id).extra = uint64(uintptr(t.mem.at(off)))
	}
	return ids, err
}

// ListenTo says where the runtime's ring is, which stays there.
func (t *Tables) ListenTo(ring *Ring) { t.ring.Store(ring) }

// HasNews tells whether there is something in the ring. Any thread may ask, at the price of two loads.
func (t *Tables) HasNews() bool {
	r := t.ring.Load()
	return r != nil && atomic.LoadUint32(&r.put) != atomic.LoadUint32(&r.taken)
}

// TakeNews takes all that is in the ring: communicators that still are become objects here, as New and SetComm make
// them, those that were freed are no more, and f hears of both, in the order in which it happened. It must not call
// TakeNews.
func (t *Tables) TakeNews(f func(News)) {
	r := t.ring.Load()
	if r == nil {
		return
	}
	t.taking.Lock()
	defer t.taking.Unlock()
	for next := r.taken; next != atomic.LoadUint32(&r.put); next++ {
		if n, ok := t.take(&r.of[next%ringRecords]); ok {
			f(n)
		}
		atomic.StoreUint32(&r.taken, next+1) // the runtime may use the record again
	}
}

func (t *Tables) take(r *newsRecord) (News, bool) {
	switch {
	case atomic.LoadUint32(&r.state) == newsNamed:
		// What was freed before it was heard of has no name, and its id is not another one's yet.
		_ = t.Name(r.id, string(r.bytesOf()))
		return News{}, false
	case atomic.LoadUint32(&r.state) == newsFreed:
		t.freeComm(r)
		return News{ID: r.id, Gone: true, Calls: r.calls}, true
	}
	n := News{ID: r.id, Made: true, Identity: r.identity, Members: numbers(r.members, r.nmembers)}
	if atomic.CompareAndSwapUint32(&r.state, newsMade, newsTaken) {
		t.adoptComm(r)
	} else { // the runtime was first
		n.Gone, n.Calls = true, r.calls
	}
	return n, true
}

func (r *newsRecord) bytesOf() []byte { return unsafe.Slice((*byte)(r.descriptor), r.bytes) }

// freeComm forgets a communicator whose slot is stale already.
func (t *Tables) freeComm(r *newsRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.objects[r.id]
	if o == nil || !o.live {
		return // cannot be
	}
	if t.kinds[Comm].real[r.real] == r.id {
		delete(t.kinds[Comm].real, r.real)
	}
	t.mem.slot(r.id).extra = 0
	t.gone(o)
}

// adoptComm makes an object of a communicator whose slot and counters the runtime uses already.
func (t *Tables) adoptComm(r *newsRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.mem.slot(r.id)
	o := &object{id: r.id, live: true, seq: t.seq, order: r.identity,
		desc: slices.Clone(r.bytesOf()),
		comm: &comm{identity: r.identity, world: numbers(r.peers, r.npeers), room: int(r.room),
			counters: t.mem.offset(uintptr(s.extra))}}
	t.seq++
	t.objects[r.id] = o
	if s.real != 0 {
		t.kinds[Comm].real[s.real] = r.id
	}
}

func numbers(p unsafe.Pointer, n int32) []int32 {
	return slices.Clone(unsafe.Slice((*int32)(p), n))
}

// add adds a record. It returns false when the ring is full: TakeNews makes room.
func (r *Ring) add(x newsRecord) bool {
	if r.put-atomic.LoadUint32(&r.taken) == ringRecords {
		return false
	}
	r.of[r.put%ringRecords] = x
	atomic.StoreUint32(&r.put, r.put+1)
	return true
}

// Tell is what a runtime does with a new communicator whose id is reserved, with counters for room peers. The slot is
// filled already. It returns false when the ring is full.
func (r *Ring) Tell(id ID, identity uint64, descriptor []byte, peers, members []int32, room int) bool {
	return r.add(newsRecord{state: newsMade, id: id, identity: identity,
		descriptor: unsafe.Pointer(unsafe.SliceData(descriptor)), bytes: uint64(len(descriptor)),
		peers: unsafe.Pointer(unsafe.SliceData(peers)), npeers: int32(len(peers)),
		members: unsafe.Pointer(unsafe.SliceData(members)), nmembers: int32(len(members)), room: int32(room)})
}

// Gone is what a runtime does first when a communicator was freed on which so many collective calls were made. False:
// the tables know it, and are told with Freed.
func (r *Ring) Gone(id ID, calls uint64) bool {
	for i := uint32(1); i <= min(r.put, ringRecords); i++ {
		if x := &r.of[(r.put-i)%ringRecords]; x.id == id && atomic.LoadUint32(&x.state) == newsMade {
			x.calls = calls
			return atomic.CompareAndSwapUint32(&x.state, newsMade, newsGone)
		}
	}
	return false
}

// Freed tells that a communicator which the tables know is freed, and its slot stale. It returns false when the ring is
// full.
func (r *Ring) Freed(id ID, real, calls uint64) bool {
	return r.add(newsRecord{state: newsFreed, id: id, real: real, calls: calls})
}

// Named tells the name of a communicator. It returns false when the ring is full.
func (r *Ring) Named(id ID, name string) bool {
	return r.add(newsRecord{state: newsNamed, id: id, descriptor: unsafe.Pointer(unsafe.StringData(name)), bytes: uint64(len(name))})
}
