// SPDX-License-Identifier: Apache-2.0

package vid

import (
	"cmp"
	"slices"
	"sync/atomic"
	"unsafe"
)

// Bookmark is what this rank sent to and received from one peer over one communicator.
type Bookmark struct {
	Comm     uint64 // identity of the communicator
	Name     string // its name, "" when it has none
	Task     int    // whose view of the communicator it is (SetTask)
	Peer     int32  // world rank
	Sent     uint64
	Received uint64
}

// Bookmarks lists all counters that are not zero, by communicator, then peer.
func (t *Tables) Bookmarks() []Bookmark {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Bookmark
	for _, o := range t.objects {
		if o.comm == nil {
			continue
		}
		for i := range o.comm.world {
			b := t.bookmark(o.comm, i)
			sent, received := atomic.LoadUint64(&b.sent), atomic.LoadUint64(&b.received)
			if sent|received != 0 {
				all = append(all, Bookmark{o.comm.identity, o.name, o.task, o.comm.world[i], sent, received})
			}
		}
	}
	slices.SortFunc(all, func(x, y Bookmark) int {
		return cmp.Or(cmp.Compare(x.Comm, y.Comm), cmp.Compare(x.Task, y.Task), cmp.Compare(x.Peer, y.Peer))
	})
	return all
}

// PeerOf is the world rank behind a rank of a communicator (of its remote group), -1 when there is none.
func (t *Tables) PeerOf(comm ID, rank int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.objects[comm]; o != nil && o.comm != nil && rank >= 0 && rank < len(o.comm.world) {
		return int(o.comm.world[rank])
	}
	return -1
}

// Calls is what this rank's threads counted of the collective calls on one communicator.
type Calls struct {
	Comm           ID
	Made, Returned uint64
}

// Calls lists the counts of all communicators.
func (t *Tables) Calls() []Calls {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Calls
	for _, o := range t.objects {
		all = t.appendCalls(all, o)
	}
	return all
}

// CallsOf lists the counts of those communicators that are keys of a map.
func CallsOf[V any](t *Tables, comms map[ID]V) []Calls {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Calls, 0, len(comms))
	for id := range comms {
		all = t.appendCalls(all, t.objects[id])
	}
	return all
}

// appendCalls reads counts while the program runs: Returned first, so that no call counts as returned that was not
// made.
func (t *Tables) appendCalls(all []Calls, o *object) []Calls {
	if o == nil || o.comm == nil {
		return all
	}
	c := &t.counters(o.comm).clock
	returned := atomic.LoadUint64(&c.ret)
	return append(all, Calls{o.id, atomic.LoadUint64(&c.call), returned})
}

// ForgetCalls has the collective calls of all communicators counted from 0.
func (t *Tables) ForgetCalls() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.objects {
		if o.comm != nil {
			t.counters(o.comm).clock = clock{}
		}
	}
}

// CallsOn is how many collective calls were made on one communicator; 0 for what has no counters.
func (t *Tables) CallsOn(comm ID) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.objects[comm]; o != nil && o.comm != nil {
		return atomic.LoadUint64(&t.counters(o.comm).clock.call)
	}
	return 0
}

func (t *Tables) counters(c *comm) *counters { return (*counters)(t.mem.at(c.counters)) }

func (t *Tables) bookmark(c *comm, peer int) *bookmark {
	return (*bookmark)(t.mem.at(c.counters + unsafe.Sizeof(counters{}) + uintptr(peer)*unsafe.Sizeof(bookmark{})))
}
