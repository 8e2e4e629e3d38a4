// SPDX-License-Identifier: Apache-2.0

package where

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/libckpt/libckpt/ckpt/control"
)

func TestExplain(t *testing.T) {
	const world, grid = `"MPI_COMM_WORLD"`, `"grid"`
	clock := func(name string, called uint64) Clock {
		return Clock{Clock: name, Name: name, Called: called}
	}
	inside := func(name string, called uint64, call string) Clock {
		c := clock(name, called)
		c.Inside, c.Call = true, call
		return c
	}
	owing := func(name string, called, owes uint64) Clock {
		c := clock(name, called)
		c.Owes = owes
		return c
	}
	gate := inside(grid, 3, "MPI_Bcast")
	gate.Inside, gate.Gate = false, true
	for _, c := range []struct {
		name string
		all  map[int]Rank
		want []control.RankStatus
	}{
		{"all compute", map[int]Rank{0: {}, 1: {Clocks: []Clock{clock(world, 4)}}},
			[]control.RankStatus{{Phase: "computing"}, {Rank: 1, Phase: "computing"}}},
		{"a barrier that one does not call", map[int]Rank{
			0: {Clocks: []Clock{owing(world, 4, 1)}},
			1: {Clocks: []Clock{inside(world, 5, "MPI_Barrier")}},
			2: {Clocks: []Clock{inside(world, 5, "MPI_Barrier")}}},
			[]control.RankStatus{
				{Phase: "owing", Detail: `owes 1 collective call on communicator "MPI_COMM_WORLD", for which ranks 1, 2 wait in MPI_Barrier`},
				{Rank: 1, Phase: "in MPI", Detail: `in MPI_Barrier on communicator "MPI_COMM_WORLD", waits for rank 0`, WaitsFor: []int{0}},
				{Rank: 2, Phase: "in MPI", Detail: `in MPI_Barrier on communicator "MPI_COMM_WORLD", waits for rank 0`, WaitsFor: []int{0}}}},
		{"at the gate, and one is silent", map[int]Rank{
			1: {Clocks: []Clock{gate}}, 2: {Clocks: []Clock{clock(grid, 2)}}},
			[]control.RankStatus{
				{Phase: "silent", Detail: "has not said what it is doing"},
				{Rank: 1, Phase: "at the gate", Detail: `at the gate of MPI_Bcast on communicator "grid", waits for rank 2`, WaitsFor: []int{2}},
				{Rank: 2, Phase: "computing"}}},
		{"messages", map[int]Rank{
			0: {Calls: []Call{{"MPI_Recv", world, 1, 7, ForMessage}}, Clocks: []Clock{owing(grid, 1, 2)}},
			1: {Calls: []Call{{"MPI_Ssend", world, 2, 3, ForReceiver}}},
			2: {Calls: []Call{{"MPI_Probe", grid, PeerAny, -1, ForMessage}}},
			3: {Calls: []Call{{"MPI_Wait", grid, PeerNone, -1, ForRequest}}},
			4: {Calls: []Call{{"MPI_Comm_accept", "", PeerNone, -1, ForOutside}}}},
			[]control.RankStatus{
				{Phase: "in MPI", Detail: `in MPI_Recv on communicator "MPI_COMM_WORLD", waits for a message from rank 1 with tag 7; owes 2 collective calls on communicator "grid"`, WaitsFor: []int{1}},
				{Rank: 1, Phase: "in MPI", Detail: `in MPI_Ssend on communicator "MPI_COMM_WORLD", waits until rank 2 receives with tag 3`, WaitsFor: []int{2}},
				{Rank: 2, Phase: "in MPI", Detail: `in MPI_Probe on communicator "grid", waits for a message from any rank`},
				{Rank: 3, Phase: "in MPI", Detail: `in MPI_Wait on communicator "grid", waits for a request`},
				{Rank: 4, Phase: "in MPI", Detail: `waits for processes of another job in MPI_Comm_accept`}}},
		{"all have called", map[int]Rank{
			0: {Clocks: []Clock{inside(world, 5, "")}}, 1: {Clocks: []Clock{clock(world, 5)}}},
			[]control.RankStatus{
				{Phase: "in MPI", Detail: `in a collective call on communicator "MPI_COMM_WORLD", which all members have called`},
				{Rank: 1, Phase: "computing"}}},
	} {
		equal(t, c.name, c.want, explain(c.all, len(c.want)))
	}
}

// TestGathering: who waits in MPIX_Checkpoint for whom; what a stage says of a rank stays.
func TestGathering(t *testing.T) {
	lines := []control.RankStatus{{Phase: "computing"}, {Rank: 1, Phase: "computing"}, {Rank: 2, Phase: "computing"}, {Rank: 3, Phase: "write"}}
	Gathering(lines, make([]bool, 4), "agree")
	equal(t, "nobody", "computing", lines[0].Phase)
	in := []bool{true, false, true, false}
	Gathering(lines, in, "agree")
	equal(t, "two of four", []control.RankStatus{
		{Phase: "agree", Detail: "in MPIX_Checkpoint, waits for ranks 1, 3", WaitsFor: []int{1, 3}},
		{Rank: 1, Phase: "owing", Detail: "has not called MPIX_Checkpoint, in which ranks 0, 2 wait"},
		{Rank: 2, Phase: "agree", Detail: "in MPIX_Checkpoint, waits for ranks 1, 3", WaitsFor: []int{1, 3}},
		{Rank: 3, Phase: "write"}}, lines)
	equal(t, "in a line", "ranks 0, 2 wait in MPIX_Checkpoint for ranks 1, 3", Missing(in))
	equal(t, "nobody, in a line", "", Missing(make([]bool, 4)))
}

func TestHeldUp(t *testing.T) {
	equal(t, "who waits and who is waited for", []string{
		"rank 1: computing", "rank 2: in MPI_Recv", "rank 3: owes 1"},
		HeldUp([]control.RankStatus{{Phase: "computing"}, {Rank: 1, Phase: "computing"},
			{Rank: 2, Phase: "in MPI", Detail: "in MPI_Recv", WaitsFor: []int{1}}, {Rank: 3, Phase: "owing", Detail: "owes 1"}}))
	many := make([]control.RankStatus, 100)
	for r := range many {
		many[r] = control.RankStatus{Rank: r, Phase: "in MPI"}
	}
	if got := HeldUp(many); len(got) != fewLines+1 || got[fewLines] != "and 80 more ranks" {
		t.Errorf("%d lines, the last %q", len(got), got[len(got)-1])
	}
	if got := rankList([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}); got != "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more" {
		t.Error(got)
	}
}

func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s: %s", what, d)
	}
}
