// SPDX-License-Identifier: Apache-2.0

package published

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/libckpt/libckpt/collclock"
)

// Messages; all go to or from rank 0 but for update.
const (
	msgShare   = collclock.MsgPrivate + iota // the count of a group (its ID is in Clock) is A
	msgShared                                // that were A of them
	msgTarget                                // the target of a group is A
	msgTargets                               // that were A of them
	msgUpdate                                // a member has raised the target to A
	msgReport                                // A-th report: B is 1 when all targets are reached
)

// Config says who a machine is, and which of the known implementation's additions it has.
type Config struct {
	Rank, Ranks int
	// ResetOnCreate sets the clock of a group to 0 whenever a communicator over it is made.
	ResetOnCreate bool
	// DropUnknown ignores targets of groups that this rank has no communicator of yet.
	DropUnknown bool
	// ForgetOnFree forgets the clock when the last communicator over a group is freed.
	ForgetOnFree bool
}

type phase uint8

const (
	idle phase = iota
	raised
	sharing // waiting for the targets
	paying
	stopped
)

type waiter struct {
	clock collclock.ID
	k     uint64
}

// Machine is one rank. Its Step is that of collclock.Machine.
type Machine struct {
	cfg    Config
	phase  phase
	epoch  uint32
	group  map[collclock.ID]collclock.ID // of each communicator
	people map[collclock.ID][]int32      // of each group
	users  map[collclock.ID]int          // communicators of each group
	calls  map[collclock.ID]uint64       // of each communicator
	seq    map[collclock.ID]uint64       // the clocks, by group
	target map[collclock.ID]uint64
	wait   []waiter
	inside int

	expect, got int // targets
	reports     uint64
	last        uint64 // what the last report said, plus 1

	// Rank 0.
	most    map[collclock.ID]uint64
	shares  []int // still to come from each rank
	reached []report

	out []collclock.Action
}

type report struct{ n, ok uint64 }

// New returns the machine of one rank.
func New(cfg Config) *Machine {
	m := &Machine{cfg: cfg,
		group: map[collclock.ID]collclock.ID{}, people: map[collclock.ID][]int32{},
		users: map[collclock.ID]int{}, calls: map[collclock.ID]uint64{},
		seq: map[collclock.ID]uint64{}, target: map[collclock.ID]uint64{}}
	m.create(collclock.World(), collclock.Everybody(cfg.Ranks))
	return m
}

// Step takes one event and returns what is to be done now.
func (m *Machine) Step(e collclock.Event) []collclock.Action {
	m.out = m.out[:0]
	switch e := e.(type) {
	case collclock.Call:
		m.calls[e.Clock]++
		m.wait = append(m.wait, waiter{e.Clock, m.calls[e.Clock]})
		m.try()
	case collclock.Return:
		m.inside--
		m.try()
	case collclock.Created:
		m.create(e.Clock, e.Group)
	case collclock.Freed:
		m.free(e.Clock)
	case collclock.Request:
		m.raise(m.epoch + 1)
	case collclock.Snapshot:
		m.share()
	case collclock.Resume:
		m.resume()
	case collclock.Received:
		m.received(int(e.From), e.Message)
	}
	return m.out
}

func (m *Machine) send(to int, kind collclock.MessageKind, g collclock.ID, a, b uint64) {
	msg := collclock.Message{Kind: kind, Epoch: m.epoch, Clock: g, A: a, B: b}
	if to == m.cfg.Rank {
		m.received(to, msg)
		return
	}
	m.out = append(m.out, collclock.Send{To: int32(to), Message: msg})
}

// create gives a communicator the clock of its group.
func (m *Machine) create(id collclock.ID, g collclock.Group) {
	people := make([]int32, g.Size())
	for i := range people {
		people[i] = g.Rank(i)
	}
	slices.Sort(people)
	gid := collclock.Child(collclock.World(), 0, 0, people)
	m.group[id], m.people[gid] = gid, people
	m.users[gid]++
	if m.cfg.ResetOnCreate {
		m.seq[gid], m.target[gid] = 0, 0
	} else {
		m.seq[gid] += 0 // now known
	}
}

func (m *Machine) free(id collclock.ID) {
	g := m.group[id]
	m.users[g]--
	if m.cfg.ForgetOnFree && m.users[g] == 0 {
		delete(m.seq, g)
		delete(m.target, g)
		delete(m.people, g)
	}
}

// reachedAll is the paper's test whether this rank owes nothing.
func (m *Machine) reachedAll() bool {
	for g, t := range m.target {
		if _, known := m.people[g]; known && m.seq[g] < t {
			return false
		}
	}
	return true
}

// try lets waiting calls in while this rank owes something.
func (m *Machine) try() {
	for len(m.wait) > 0 && (m.phase == idle || m.phase == paying && !m.reachedAll()) {
		w := m.wait[0]
		m.wait = m.wait[1:]
		g := m.group[w.clock]
		m.seq[g]++
		m.inside++
		if m.phase == paying && m.seq[g] > m.target[g] {
			m.target[g] = m.seq[g]
			for _, r := range m.people[g] {
				if int(r) != m.cfg.Rank {
					m.send(int(r), msgUpdate, g, m.seq[g], 0)
				}
			}
		}
		m.out = append(m.out, collclock.Permit{Clock: w.clock, K: w.k})
	}
	m.report()
}

// report tells rank 0 whenever the answer changes.
func (m *Machine) report() {
	if m.phase != paying {
		return
	}
	ok := uint64(0)
	if m.inside == 0 && m.reachedAll() {
		ok = 1
	}
	if m.last != ok+1 {
		m.last = ok + 1
		m.reports++
		m.send(0, msgReport, collclock.ID{}, m.reports, ok)
	}
}

func (m *Machine) raise(epoch uint32) {
	m.epoch, m.phase = epoch, raised
	m.expect, m.got, m.last, m.reports = -1, 0, 0, 0
	if m.cfg.Rank == 0 {
		m.most = map[collclock.ID]uint64{}
		m.shares = make([]int, m.cfg.Ranks)
		m.reached = make([]report, m.cfg.Ranks)
		for r := 1; r < m.cfg.Ranks; r++ {
			m.send(r, collclock.MsgReq, collclock.ID{}, 0, 0)
		}
	}
	m.out = append(m.out, collclock.Raise{Epoch: epoch})
}

// share uploads this rank's clocks.
func (m *Machine) share() {
	m.phase = sharing
	for _, g := range inOrder(m.seq) {
		m.send(0, msgShare, g, m.seq[g], 0)
	}
	m.send(0, msgShared, collclock.ID{}, uint64(len(m.seq)), 0)
}

func (m *Machine) received(from int, msg collclock.Message) {
	switch msg.Kind {
	case collclock.MsgReq:
		m.raise(msg.Epoch)
	case collclock.MsgStop:
		m.phase = stopped
		m.out = append(m.out, collclock.Stop{Epoch: m.epoch})
	case collclock.MsgResume:
		m.lower()
	case msgShare:
		m.most[msg.Clock] = max(m.most[msg.Clock], msg.A)
		m.shares[from]--
		m.distribute()
	case msgShared:
		m.shares[from] += int(msg.A) + 1<<20 // marks that this message came
		m.distribute()
	case msgTarget, msgUpdate:
		_, known := m.people[msg.Clock]
		if known || !m.cfg.DropUnknown {
			m.target[msg.Clock] = max(m.target[msg.Clock], msg.A)
		}
		if msg.Kind == msgTarget {
			m.got++
		}
		m.pay()
	case msgTargets:
		m.expect = int(msg.A)
		m.pay()
	case msgReport:
		if r := &m.reached[from]; msg.A > r.n {
			*r = report{msg.A, msg.B}
		}
		m.detect()
	}
}

// distribute, at rank 0, sends the targets once all clocks are there.
func (m *Machine) distribute() {
	for _, left := range m.shares {
		if left != 1<<20 {
			return
		}
	}
	m.shares[0] = 0 // once
	for r := m.cfg.Ranks - 1; r >= 0; r-- {
		for _, g := range inOrder(m.most) {
			m.send(r, msgTarget, g, m.most[g], 0)
		}
		m.send(r, msgTargets, collclock.ID{}, uint64(len(m.most)), 0)
	}
}

func inOrder(counts map[collclock.ID]uint64) []collclock.ID {
	return slices.SortedFunc(maps.Keys(counts), func(a, b collclock.ID) int { return bytes.Compare(a[:], b[:]) })
}

func (m *Machine) pay() {
	if m.phase == sharing && m.got == m.expect {
		m.phase = paying
	}
	m.try()
}

// detect, at rank 0, is the published code's test: each rank's own word, whatever is in flight.
func (m *Machine) detect() {
	for _, r := range m.reached {
		if r.ok == 0 {
			return
		}
	}
	if m.phase != paying {
		return
	}
	m.phase = stopped
	for r := 1; r < m.cfg.Ranks; r++ {
		m.send(r, collclock.MsgStop, collclock.ID{}, 0, 0)
	}
	m.out = append(m.out, collclock.Stop{Epoch: m.epoch})
}

func (m *Machine) resume() {
	for r := 1; r < m.cfg.Ranks; r++ {
		m.send(r, collclock.MsgResume, collclock.ID{}, 0, 0)
	}
	m.lower()
}

func (m *Machine) lower() {
	m.phase = idle
	clear(m.target)
	m.out = append(m.out, collclock.Resumed{Epoch: m.epoch}, collclock.Lower{Epoch: m.epoch})
	m.try()
}

// Clone returns an independent copy.
func (m *Machine) Clone() *Machine {
	n := *m
	n.out = nil
	n.group, n.people, n.users = maps.Clone(m.group), maps.Clone(m.people), maps.Clone(m.users)
	n.calls, n.seq, n.target, n.most = maps.Clone(m.calls), maps.Clone(m.seq), maps.Clone(m.target), maps.Clone(m.most)
	n.wait, n.shares, n.reached = slices.Clone(m.wait), slices.Clone(m.shares), slices.Clone(m.reached)
	return &n
}

// AppendState appends everything that decides what the machine will do.
func (m *Machine) AppendState(b []byte) []byte {
	// fmt prints maps in the order of their keys.
	return fmt.Appendf(b, "%d.%d.%v%v%v%v%v%v.%d.%d.%d.%d.%d%v%v%v", m.phase, m.epoch, m.group, m.users,
		m.calls, m.seq, m.target, m.wait, m.inside, m.expect, m.got, m.reports, m.last, m.most, m.shares, m.reached)
}
