// SPDX-License-Identifier: Apache-2.0

package clockwork

import (
	"slices"
	"testing"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/vid"
)

// crowd is the clocks of all ranks of a job, whose messages the test delivers.
type crowd []*Clock

func newCrowd(t *testing.T, n int) crowd {
	t.Helper()
	var all crowd
	for r := range n {
		tables, err := vid.Open(0, 1<<24)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tables.Close() })
		c, err := New(Config{Process: r, Places: OneEach(n), Tables: tables, Log: zap.NewNop(), Kinds: Kinds{Clock: 1, Meet: 2}})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// deliver takes messages to where they go, until there are none.
func (all crowd) deliver(t *testing.T) {
	t.Helper()
	for more := true; more; {
		more = false
		for from, w := range all {
			out := w.outbox
			w.outbox = nil
			for _, o := range out {
				more = true
				if o.kind == w.kinds.Meet {
					all[o.to].heardMeet(from, o.payload)
				} else {
					all[o.to].heardClock(from, o.payload)
				}
			}
		}
	}
}

func (all crowd) bridge(rank int, b Bridge) uint64 {
	return all[rank].Bridge(b, "MPI_Intercomm_create")
}

// TestBridge has two sides meet twice, with the ranks coming in any order.
func TestBridge(t *testing.T) {
	all := newCrowd(t, 4)
	left := Bridge{Identity: 100, Members: []int32{0, 2}, Leader: 0, Peer: 1, Remote: 3, Tag: 7}
	right := Bridge{Identity: 200, Members: []int32{3, 1}, Leader: 3, Peer: 1, Remote: 0, Tag: 7}
	var ids []collclock.ID
	for round := range 2 {
		tickets := map[int]uint64{}
		for i, rank := range [][]int{{2, 0, 1, 3}, {3, 1, 0, 2}}[round] {
			b := left
			if rank%2 == 1 {
				b = right
			}
			tickets[rank] = all.bridge(rank, b)
			for r, ticket := range tickets {
				all[r].Met(ticket) // it polls
			}
			all.deliver(t)
			led := tickets[0] != 0 && tickets[3] != 0
			for r, ticket := range tickets {
				all[r].Met(ticket)
				all.deliver(t)
				if got := all[r].Met(ticket); (got == Enter) != led && i < 3 && r%3 == 0 {
					t.Errorf("round %d, rank %d comes: rank %d is told %d", round, rank, r, got)
				}
			}
		}
		for r, ticket := range tickets {
			if all[r].Met(ticket) != Enter {
				t.Errorf("round %d: rank %d is not let in", round, r)
			}
			m := all[r].meetings[ticket]
			if !slices.Equal(m.members, []int32{0, 1, 2, 3}) {
				t.Errorf("rank %d: members %v", r, m.members)
			}
			if len(ids) == round {
				ids = append(ids, m.id)
			}
			if m.id != ids[round] {
				t.Errorf("rank %d has another clock", r)
			}
		}
		for r, ticket := range tickets {
			all[r].Parted(ticket)
		}
		all.deliver(t)
		for r, w := range all {
			if len(w.meetings) != 0 || len(w.tasks[0].meet.words) != 0 || len(w.tasks[0].machine.Views()) != 1 {
				t.Errorf("rank %d keeps %d meetings, %d words, %d clocks", r, len(w.meetings), len(w.tasks[0].meet.words), len(w.tasks[0].machine.Views()))
			}
		}
	}
	if ids[0] == ids[1] {
		t.Error("both meetings have the same clock")
	}
}

// TestBridgeToOthers has a side with a process of another job: the call is let in without a clock.
func TestBridgeToOthers(t *testing.T) {
	all := newCrowd(t, 3)
	tickets := []uint64{
		all.bridge(0, Bridge{Identity: 100, Members: []int32{0, 1}, Leader: 0, Peer: 1, Remote: 2}),
		all.bridge(1, Bridge{Identity: 100, Members: []int32{0, 1}, Leader: 0, Remote: -1}),
		all.bridge(2, Bridge{Identity: 200, Leader: 2, Peer: 1, Remote: 0}),
	}
	for range 3 {
		for r, ticket := range tickets {
			all[r].Met(ticket)
		}
		all.deliver(t)
	}
	for r, ticket := range tickets {
		if all[r].Met(ticket) != Enter || len(all[r].tasks[0].machine.Views()) != 1 {
			t.Errorf("rank %d is not let in, or has a clock", r)
		}
		all[r].Parted(ticket)
	}
}

// TestSubset has two of three ranks make a communicator, again and again.
func TestSubset(t *testing.T) {
	all := newCrowd(t, 3)
	seen := map[collclock.ID]bool{}
	for range 3 {
		a := all[2].Subset(0, 1, 5, []int32{2, 0}, "MPI_Comm_create_group")
		b := all[0].Subset(0, 1, 5, []int32{2, 0}, "MPI_Comm_create_group")
		id := all[2].meetings[a].id
		if all[0].meetings[b].id != id || seen[id] {
			t.Error("the clock is not the same on both, or not new")
		}
		seen[id] = true
		if all[2].Met(a) != Enter || all[0].Met(b) != Enter {
			t.Error("not let in")
		}
		all[2].Parted(a)
		all[0].Parted(b)
		all.deliver(t)
	}
	if all[0].Subset(0, 1, 5, []int32{0}, "") != 0 || all[1].Subset(0, 1, 5, []int32{2, 0}, "") != 0 {
		t.Error("a call that nobody else makes, or not this rank, is counted")
	}
	for r, w := range all {
		if n := len(w.tasks[0].machine.Views()); n != 1 {
			t.Errorf("rank %d keeps %d clocks", r, n)
		}
	}
}
