// SPDX-License-Identifier: Apache-2.0

package vid

import (
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"
)

// News of a communicator with a reserved id, which the runtime put into its ring (capi/news.h).
type News struct {
	ID       ID
	Identity uint64
	Members  []int32 // who takes part in collective calls
	Gone     bool    // it is freed already: these tables never knew it, and ID may be another one's by now
	Calls    uint64  // collective calls that were made on it, when it is gone
}

const ringRecords = 64

// States of a record.
const (
	newsMade  = 1
	newsGone  = 2
	newsTaken = 3
)

// newsRecord is struct news.
type newsRecord struct {
	state            uint32
	id               ID
	identity         uint64
	calls            uint64
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
// them, and f hears of all, in the order in which they were made. It must not call TakeNews.
func (t *Tables) TakeNews(f func(News)) {
	r := t.ring.Load()
	if r == nil {
		return
	}
	t.taking.Lock()
	defer t.taking.Unlock()
	for next := r.taken; next != atomic.LoadUint32(&r.put); next++ {
		f(t.take(&r.of[next%ringRecords]))
		atomic.StoreUint32(&r.taken, next+1) // the runtime may use the record again
	}
}

func (t *Tables) take(r *newsRecord) News {
	n := News{ID: r.id, Identity: r.identity, Members: numbers(r.members, r.nmembers)}
	if atomic.CompareAndSwapUint32(&r.state, newsMade, newsTaken) {
		t.adoptComm(r)
	} else { // the runtime was first
		n.Gone, n.Calls = true, r.calls
	}
	return n
}

// adoptComm makes an object of a communicator whose slot and counters the runtime uses already.
func (t *Tables) adoptComm(r *newsRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.mem.slot(r.id)
	o := &object{id: r.id, live: true, seq: t.seq, order: r.identity,
		desc: slices.Clone(unsafe.Slice((*byte)(r.descriptor), r.bytes)),
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

// Tell is what a runtime does with a new communicator whose id is reserved, with counters for room peers. The slot is
// filled already. It returns false when the ring is full: TakeNews makes room.
func (r *Ring) Tell(id ID, identity uint64, descriptor []byte, peers, members []int32, room int) bool {
	if r.put-atomic.LoadUint32(&r.taken) == ringRecords {
		return false
	}
	r.of[r.put%ringRecords] = newsRecord{state: newsMade, id: id, identity: identity,
		descriptor: unsafe.Pointer(unsafe.SliceData(descriptor)), bytes: uint64(len(descriptor)),
		peers: unsafe.Pointer(unsafe.SliceData(peers)), npeers: int32(len(peers)),
		members: unsafe.Pointer(unsafe.SliceData(members)), nmembers: int32(len(members)), room: int32(room)}
	atomic.StoreUint32(&r.put, r.put+1)
	return true
}

// Gone is what a runtime does when a communicator was freed on which so many collective calls were made. False: the
// tables know it, and it is freed there.
func (r *Ring) Gone(id ID, calls uint64) bool {
	for i := uint32(1); i <= min(r.put, ringRecords); i++ {
		if x := &r.of[(r.put-i)%ringRecords]; x.id == id && atomic.LoadUint32(&x.state) == newsMade {
			x.calls = calls
			return atomic.CompareAndSwapUint32(&x.state, newsMade, newsGone)
		}
	}
	return false
}
