// SPDX-License-Identifier: Apache-2.0

package collclock

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// Status is what one rank can tell about an epoch that takes long.
type Status struct {
	Rank    int
	Epoch   uint32
	Phase   Phase
	Owes    []ClockStatus // clocks on which this rank has still to make calls
	AtGate  []ClockStatus // clocks on which a call waits for other members
	Inside  []ClockStatus // clocks on which a call, or a request, is under way
	NotMade []ID          // clocks that others know and this rank has not created yet
	Unripe  []ID          // clocks of this rank on which some member owes a call
	Silent  []int         // children in the world tree whose subtrees have not finished this phase
}

// ClockStatus is one clock in a Status.
type ClockStatus struct {
	Clock           ID
	Called, Started uint64
	Limit           uint64 // highest call that may start
	Requests        uint64 // open requests
}

// Status tells what this rank waits for.
func (m *Machine) Status() Status {
	s := Status{Rank: m.cfg.Rank, Epoch: m.epoch, Phase: m.phase}
	if m.phase < Open {
		return s
	}
	for _, c := range m.inOrder() {
		if !c.created {
			s.NotMade = append(s.NotMade, c.id)
			continue
		}
		cs := ClockStatus{Clock: c.id, Called: c.call, Started: c.ent, Limit: max(c.snap, c.lim), Requests: c.open}
		if c.call < cs.Limit {
			s.Owes = append(s.Owes, cs)
		}
		if len(c.wait) > 0 {
			s.AtGate = append(s.AtGate, cs)
		}
		if c.ret < c.ent || c.open > 0 {
			s.Inside = append(s.Inside, cs)
		}
		if c.ph0 && !c.ripe {
			s.Unripe = append(s.Unripe, c.id)
		}
	}
	heard := m.ready
	if m.phase >= Frozen {
		heard = m.clean
	}
	for i, r := range m.place.children {
		if heard&(1<<i) == 0 {
			s.Silent = append(s.Silent, int(r))
		}
	}
	return s
}

// String is one line.
func (s Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d, epoch %d, %v", s.Rank, s.Epoch, s.Phase)
	list := func(what string, all []ClockStatus) {
		for _, c := range all {
			fmt.Fprintf(&b, "; %s %v (called %d, started %d, limit %d, %d requests)", what, c.Clock, c.Called, c.Started, c.Limit, c.Requests)
		}
	}
	list("owes", s.Owes)
	list("at the gate of", s.AtGate)
	list("inside", s.Inside)
	for _, id := range s.NotMade {
		fmt.Fprintf(&b, "; has not created %v", id)
	}
	for _, id := range s.Unripe {
		fmt.Fprintf(&b, "; somebody owes %v", id)
	}
	if len(s.Silent) > 0 {
		fmt.Fprintf(&b, "; waits for ranks below %v", s.Silent)
	}
	return b.String()
}

// View is one clock as a test sees it.
type View struct {
	ID                                     ID
	Created, Freed, Home                   bool
	Call, Ent, Ret, Open, Lim, Snap        uint64
	Existed, Ripe, AllInit, Frozen, FinSet bool
	T0, Goal, Fin                          uint64
	Waiting                                int
}

// Views lists the clocks in the order of their identities.
func (m *Machine) Views() []View {
	var all []View
	for _, c := range m.inOrder() {
		all = append(all, View{
			ID: c.id, Created: c.created, Freed: c.freed, Home: c.home(),
			Call: c.call, Ent: c.ent, Ret: c.ret, Open: c.open, Lim: c.lim, Snap: c.snap,
			Existed: c.ph0, Ripe: c.ripe, AllInit: c.allInit, Frozen: c.frozen, FinSet: c.finKnown,
			T0: c.t0, Goal: c.goal, Fin: c.fin, Waiting: len(c.wait),
		})
	}
	return all
}

func (m *Machine) inOrder() []*clock {
	all := make([]*clock, 0, len(m.clocks))
	for _, c := range m.clocks {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *clock) int { return bytes.Compare(a.id[:], b.id[:]) })
	return all
}

// Clone returns an independent copy, for tests that explore more than one future.
func (m *Machine) Clone() *Machine {
	n := *m
	n.out = nil
	n.early = slices.Clone(m.early)
	n.clocks = make(map[ID]*clock, len(m.clocks))
	for id, c := range m.clocks {
		d := *c
		d.wait = slices.Clone(c.wait)
		d.before = slices.Clone(c.before)
		n.clocks[id] = &d
	}
	return &n
}

// AppendState appends everything that decides what the machine will do; equal states append equally.
func (m *Machine) AppendState(b []byte) []byte {
	b = append(b, byte(m.phase), m.ready, m.clean, bits(m.readySent, m.cleanSent, m.waiting))
	for _, v := range [...]int{int(m.epoch), m.unripe, m.deferred, m.ticks, m.tries, len(m.early)} {
		b = binary.AppendUvarint(b, uint64(v))
	}
	b = appendReceived(b, m.early)
	for _, c := range m.inOrder() {
		b = append(b, c.id[:]...)
		b = append(b, bits(c.created, c.freed, c.ph0, c.initSent, c.ripe, c.finKnown, c.allInit, c.frozen))
		for _, v := range [...]uint64{c.call, c.ent, c.ret, c.open, c.lim, c.ann, c.annUp, uint64(c.heard),
			c.snap, c.fin, c.t0, c.goal, uint64(len(c.wait)), uint64(len(c.before))} {
			b = binary.AppendUvarint(b, v)
		}
		for i := range c.place.children {
			ch := &c.childs[i]
			b = append(b, bits(ch.inited))
			b = binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(b, ch.ann), ch.smax), ch.smin)
		}
		for _, w := range c.wait {
			b = append(binary.AppendUvarint(b, w.k), byte(w.mode), bits(w.deferred))
		}
		b = appendReceived(b, c.before)
	}
	return b
}

func bits(flags ...bool) (b byte) {
	for i, f := range flags {
		if f {
			b |= 1 << i
		}
	}
	return b
}

// appendReceived appends a list whose order does not matter.
func appendReceived(b []byte, list []Received) []byte {
	keys := make([]string, len(list))
	for i, r := range list {
		keys[i] = string(AppendMessage(binary.AppendUvarint(nil, uint64(r.From)), r.Message))
	}
	slices.Sort(keys)
	for _, k := range keys {
		b = append(append(b, k...), '|')
	}
	return b
}
