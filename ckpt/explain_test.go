// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"testing"

	"github.com/libckpt/libckpt/ckpt/control"
)

func TestExplain(t *testing.T) {
	const world, grid = `"MPI_COMM_WORLD"`, `"grid"`
	clock := func(name string, called uint64) clockAt {
		return clockAt{Clock: name, Name: name, Called: called}
	}
	inside := func(name string, called uint64, call string) clockAt {
		c := clock(name, called)
		c.Inside, c.Call = true, call
		return c
	}
	owing := func(name string, called, owes uint64) clockAt {
		c := clock(name, called)
		c.Owes = owes
		return c
	}
	gate := inside(grid, 3, "MPI_Bcast")
	gate.Inside, gate.Gate = false, true
	for _, c := range []struct {
		name string
		all  map[int]whereabouts
		want []control.RankStatus
	}{
		{"all compute", map[int]whereabouts{0: {}, 1: {Clocks: []clockAt{clock(world, 4)}}},
			[]control.RankStatus{{Phase: "computing"}, {Rank: 1, Phase: "computing"}}},
		{"a barrier that one does not call", map[int]whereabouts{
			0: {Clocks: []clockAt{owing(world, 4, 1)}},
			1: {Clocks: []clockAt{inside(world, 5, "MPI_Barrier")}},
			2: {Clocks: []clockAt{inside(world, 5, "MPI_Barrier")}}},
			[]control.RankStatus{
				{Phase: "owing", Detail: `owes 1 collective call on communicator "MPI_COMM_WORLD", for which ranks 1, 2 wait in MPI_Barrier`},
				{Rank: 1, Phase: "in MPI", Detail: `in MPI_Barrier on communicator "MPI_COMM_WORLD", waits for rank 0`, WaitsFor: []int{0}},
				{Rank: 2, Phase: "in MPI", Detail: `in MPI_Barrier on communicator "MPI_COMM_WORLD", waits for rank 0`, WaitsFor: []int{0}}}},
		{"at the gate, and one is silent", map[int]whereabouts{
			1: {Clocks: []clockAt{gate}}, 2: {Clocks: []clockAt{clock(grid, 2)}}},
			[]control.RankStatus{
				{Phase: "silent", Detail: "has not said what it is doing"},
				{Rank: 1, Phase: "at the gate", Detail: `at the gate of MPI_Bcast on communicator "grid", waits for rank 2`, WaitsFor: []int{2}},
				{Rank: 2, Phase: "computing"}}},
		{"messages", map[int]whereabouts{
			0: {Calls: []waitingCall{{"MPI_Recv", world, 1, 7, ForMessage}}, Clocks: []clockAt{owing(grid, 1, 2)}},
			1: {Calls: []waitingCall{{"MPI_Ssend", world, 2, 3, ForReceiver}}},
			2: {Calls: []waitingCall{{"MPI_Probe", grid, PeerAny, -1, ForMessage}}},
			3: {Calls: []waitingCall{{"MPI_Wait", grid, PeerNone, -1, ForRequest}}},
			4: {Calls: []waitingCall{{"MPI_Comm_accept", "", PeerNone, -1, ForOutside}}}},
			[]control.RankStatus{
				{Phase: "in MPI", Detail: `in MPI_Recv on communicator "MPI_COMM_WORLD", waits for a message from rank 1 with tag 7; owes 2 collective calls on communicator "grid"`, WaitsFor: []int{1}},
				{Rank: 1, Phase: "in MPI", Detail: `in MPI_Ssend on communicator "MPI_COMM_WORLD", waits until rank 2 receives with tag 3`, WaitsFor: []int{2}},
				{Rank: 2, Phase: "in MPI", Detail: `in MPI_Probe on communicator "grid", waits for a message from any rank`},
				{Rank: 3, Phase: "in MPI", Detail: `in MPI_Wait on communicator "grid", waits for a request`},
				{Rank: 4, Phase: "in MPI", Detail: `waits for processes of another job in MPI_Comm_accept`}}},
		{"all have called", map[int]whereabouts{
			0: {Clocks: []clockAt{inside(world, 5, "")}}, 1: {Clocks: []clockAt{clock(world, 5)}}},
			[]control.RankStatus{
				{Phase: "in MPI", Detail: `in a collective call on communicator "MPI_COMM_WORLD", which all members have called`},
				{Rank: 1, Phase: "computing"}}},
	} {
		equal(t, c.name, c.want, explain(c.all, len(c.want)))
	}
}

func TestHeldUp(t *testing.T) {
	equal(t, "who waits and who is waited for", []string{
		"rank 1: computing", "rank 2: in MPI_Recv", "rank 3: owes 1"},
		heldUp([]control.RankStatus{{Phase: "computing"}, {Rank: 1, Phase: "computing"},
			{Rank: 2, Phase: "in MPI", Detail: "in MPI_Recv", WaitsFor: []int{1}}, {Rank: 3, Phase: "owing", Detail: "owes 1"}}))
	many := make([]control.RankStatus, 100)
	for r := range many {
		many[r] = control.RankStatus{Rank: r, Phase: "in MPI"}
	}
	if got := heldUp(many); len(got) != fewLines+1 || got[fewLines] != "and 80 more ranks" {
		t.Errorf("%d lines, the last %q", len(got), got[len(got)-1])
	}
	if got := rankList([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}); got != "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more" {
		t.Error(got)
	}
}
