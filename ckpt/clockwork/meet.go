// SPDX-License-Identifier: Apache-2.0

package clockwork

import (
	"encoding/json"
	"slices"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/vid"
)

// A meeting is a collective call of ranks that have no communicator of their own yet: only the members
// of its group call MPI_Comm_create_group, and the two sides of MPI_Intercomm_create do not know each
// other. It gets a clock for this one call, which all who come can name:
//
//	MPI_Comm_create_group  parent, tag, members, and how many such calls there were before
//	MPI_Intercomm_create   the leaders tell each other who is on their side, over the signaling network,
//	                       and then their own side who comes
//
// Nobody owes anything while the leaders wait for each other: the call counts from when its members are
// known. So such a wait is ended like any gate, by a stop.
type meeting struct {
	of       *task // who calls
	call     string
	comm     vid.ID
	known    bool // who comes; id and members are good
	plain    bool // they are not all of this job: it has no clock
	id       collclock.ID
	members  []int32
	bridge   Bridge
	n        uint64 // such calls of this side before
	m        uint64 // and between the two leaders
	offered  bool
	awaiting int32 // whose word is waited for
}

// Bridge is what a rank knows of a call of MPI_Intercomm_create. Ranks are those of the world.
type Bridge struct {
	Comm     vid.ID
	Identity uint64  // of the local communicator
	Members  []int32 // of it; nil: not all of them are of this job
	Leader   int32
	// On the leader only.
	Peer   uint64 // identity of the communicator with the other leader
	Remote int32  // the other leader; negative: there is none in this job
	Tag    int
}

// word is a message of w.kinds.Meet: a leader's to the other one, or to its own side.
type word struct {
	Told    bool    `json:"told,omitempty"` // to its own side
	Comm    uint64  `json:"comm"`           // identity: of the peer communicator; to its own side, of theirs
	Tag     int     `json:"tag,omitempty"`
	N       uint64  `json:"n"`
	Clock   []byte  `json:"clock,omitempty"` // to its own side
	Members []int32 `json:"members"`         // none: the call has no clock
}

// meetKey is where a word is kept until it is asked for, and what calls are counted by.
type meetKey struct {
	told bool
	comm uint64
	with int32 // who says it
	tag  int
	n    uint64
}

// meetings are what one rank has heard and counted, under the lock of its Clock.
type meetings struct {
	subsets map[collclock.ID]uint64
	calls   map[meetKey]uint64 // with n = 0
	words   map[meetKey]word
}

func newMeetings() meetings {
	return meetings{subsets: map[collclock.ID]uint64{}, calls: map[meetKey]uint64{}, words: map[meetKey]word{}}
}

func (w *Clock) newMeetingLocked(m *meeting) uint64 {
	w.ticket++
	w.meetings[w.ticket] = m
	return w.ticket
}

func clockOf(identity uint64) collclock.ID { return collclock.Object(collclock.World(), 255, identity) }

// Subset begins a call of MPI_Comm_create_group, of some members of comm only; 0: nobody else takes part.
func (w *Clock) Subset(comm vid.ID, parent uint64, tag int, members []int32, call string) uint64 {
	if w == nil || len(members) < 2 {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.taskOf(comm)
	if !slices.Contains(members, int32(t.rank)) {
		return 0
	}
	every := collclock.Subset(clockOf(parent), tag, members, 0)
	t.meet.subsets[every]++
	m := &meeting{of: t, call: call, comm: comm}
	w.beginLocked(m, collclock.Subset(clockOf(parent), tag, members, t.meet.subsets[every]), members)
	return w.newMeetingLocked(m)
}

// beginLocked makes the clock and counts the call.
func (w *Clock) beginLocked(m *meeting, id collclock.ID, members []int32) {
	m.known, m.id, m.members = true, id, members
	w.stepLocked(m.of, collclock.Created{Clock: id, Group: collclock.Members(members)})
	w.stepLocked(m.of, collclock.Call{Clock: id, Mode: collclock.Blocking, K: 1})
}

// Bridge begins a call of MPI_Intercomm_create. Its ticket, as that of Subset, is for Met and Parted.
func (w *Clock) Bridge(b Bridge, call string) uint64 {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.taskOf(b.Comm)
	if b.Remote == int32(t.rank) { // a wrong argument, which MPI tells about
		b.Remote = -1
	}
	m := &meeting{of: t, call: call, comm: b.Comm, bridge: b, awaiting: b.Leader}
	m.plain = b.Members == nil
	if !m.plain {
		m.n = t.meet.next(meetKey{told: true, comm: b.Identity, with: b.Leader})
	}
	if m.leads() {
		m.awaiting = b.Remote
		if b.Remote >= 0 {
			m.m = t.meet.next(meetKey{comm: b.Peer, with: b.Remote, tag: b.Tag})
		}
	}
	return w.newMeetingLocked(m)
}

func (x *meetings) next(k meetKey) uint64 {
	x.calls[k]++
	return x.calls[k]
}

func (m *meeting) leads() bool { return m.bridge.Leader == int32(m.of.rank) }

// Met tells whether the call may go on into MPI now.
func (w *Clock) Met(ticket uint64) Answer {
	if w == nil {
		return Enter
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.meetings[ticket]
	if m == nil {
		return Enter
	}
	// Calls on the local communicator start in order, also inside of MPI: those that were deferred come
	// first. Their members make them before this call, so all of this side come to it.
	if at, ok := w.ids[m.bridge.Comm]; ok && !m.known && at.of.machine.Deferred(at.id) {
		return Wait
	}
	if !m.known {
		w.gatherLocked(m)
	}
	switch {
	case m.known && m.plain:
		return Enter
	case m.known:
		return w.answer(clockKey{m.of, m.id}, 1)
	}
	return Wait
}

// gatherLocked finds out who comes.
func (w *Clock) gatherLocked(m *meeting) {
	b, heard, me := m.bridge, m.of.meet.words, int32(m.of.rank)
	if !m.leads() {
		if m.plain { // all of this side see that
			m.known = true
			return
		}
		k := meetKey{told: true, comm: b.Identity, with: b.Leader, n: m.n}
		if said, ok := heard[k]; ok {
			delete(heard, k)
			w.agreedLocked(m, said)
		}
		return
	}
	var said word // of the call without a clock
	if b.Remote >= 0 {
		if !m.offered {
			m.offered = true
			w.sayLocked(m.of, b.Remote, word{Comm: b.Peer, Tag: b.Tag, N: m.m, Members: b.Members})
		}
		k := meetKey{comm: b.Peer, with: b.Remote, tag: b.Tag, n: m.m}
		other, ok := heard[k]
		if !ok {
			return
		}
		delete(heard, k)
		if !m.plain && len(other.Members) > 0 {
			said = union(b, me, other.Members, m.m)
		}
	}
	said.Told, said.Comm, said.N = true, b.Identity, m.n
	for _, r := range b.Members {
		if r != me {
			w.sayLocked(m.of, r, said)
		}
	}
	w.agreedLocked(m, said)
}

// union is what both leaders come to.
func union(b Bridge, me int32, others []int32, n uint64) word {
	side := func(leader int32, members []int32) collclock.ID {
		return collclock.Subset(clockOf(b.Peer), int(leader), members, n)
	}
	id := collclock.Intercomm(side(me, b.Members), side(b.Remote, others), b.Tag, n)
	members := slices.Concat(b.Members, others)
	slices.Sort(members)
	return word{Clock: id[:], Members: slices.Compact(members)}
}

func (w *Clock) agreedLocked(m *meeting, said word) {
	if len(said.Members) == 0 || len(said.Clock) != len(m.id) {
		m.known, m.plain = true, true
		return
	}
	w.beginLocked(m, collclock.ID(said.Clock), said.Members)
}

// Parted says that the call has returned, and what it made is registered.
func (w *Clock) Parted(ticket uint64) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.meetings[ticket]
	if m == nil {
		return
	}
	delete(w.meetings, ticket)
	if m.plain {
		return
	}
	w.forget(clockKey{m.of, m.id})
	w.stepLocked(m.of, collclock.Freed{Clock: m.id})
	w.stepLocked(m.of, collclock.Return{Clock: m.id, K: 1})
}

func (w *Clock) sayLocked(from *task, to int32, said word) {
	if t := w.by[to]; t != nil {
		t.heardWord(int32(from.rank), said)
		return
	}
	b, _ := json.Marshal(said)
	w.sendLocked(from, to, w.kinds.Meet, b)
}

// heardMeet takes the words of other processes' ranks, which may come before the one here calls.
func (w *Clock) heardMeet(process int, payload []byte) {
	from, to, payload, err := w.opened(process, payload)
	var said word
	if err == nil {
		err = json.Unmarshal(payload, &said)
	}
	if err != nil {
		w.log.Error("who meets in a collective call", zap.Int("from", process), zap.Error(err))
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	to.heardWord(from, said)
}

func (t *task) heardWord(from int32, said word) {
	t.meet.words[meetKey{said.Told, said.Comm, from, said.Tag, said.N}] = said
}
