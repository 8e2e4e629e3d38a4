// SPDX-License-Identifier: Apache-2.0

package where

import (
	"context"
	"testing"

	"github.com/libckpt/libckpt/ckpt/control"
)

// TestAsk: three ranks are asked; one does not hear the question, and one answers twice, the second time too
// late.
func TestAsk(t *testing.T) {
	var a *Asker
	late := make(chan []byte, 1)
	a = NewAsker(3, oneEach(3), func() []Rank { return []Rank{{Host: "a", PID: 1}} }, func(_ context.Context, to int, question []byte) error {
		if to == 2 {
			return context.DeadlineExceeded
		}
		answer, err := Answer(question, func() []Rank {
			return []Rank{{Host: "b", PID: 2, Calls: []Call{{Call: "MPI_Recv", Comm: "x", Peer: 0, Tag: 4}}}}
		})
		if err != nil {
			t.Error(err)
		}
		a.Heard(to, answer)
		late <- answer
		return nil
	}, nil)
	equal(t, "what they do", []control.RankStatus{{Rank: 0, Host: "a", PID: 1, Phase: Computing},
		{Rank: 1, Host: "b", PID: 2, Phase: "in MPI", Detail: "in MPI_Recv on communicator x, waits for a message from rank 0 with tag 4", WaitsFor: []int{0}},
		{Rank: 2, Phase: "silent", Detail: "has not said what it is doing"}}, a.Doing())
	a.Heard(1, <-late)
	if len(a.open) != 0 {
		t.Errorf("%d questions are open", len(a.open))
	}
}

// TestWaits: a collective call names the clock that it is on; others stand for themselves.
func TestWaits(t *testing.T) {
	r := Rank{Clocks: []Clock{{Name: "x", Called: 1}, {Name: "y", Gate: true}, {Name: "z", Inside: true}}}
	r.Waits(Waiting{Call: "MPI_Bcast", For: ForCollective}, "x", PeerNone)
	r.Waits(Waiting{Call: "MPI_Scan", For: ForCollective}, "y", PeerNone)
	r.Waits(Waiting{Call: "MPI_Ssend", Tag: 3, For: ForReceiver}, "x", 5)
	r.WaitsOutside("MPI_Comm_accept")
	equal(t, "clocks", []Clock{{Name: "x", Called: 1}, {Name: "y", Gate: true, Call: "MPI_Scan"}, {Name: "z", Inside: true}}, r.Clocks)
	equal(t, "calls", []Call{{"MPI_Ssend", "x", 5, 3, ForReceiver}, {"MPI_Comm_accept", "", PeerNone, -1, ForOutside}}, r.Calls)
}

// oneEach has one rank in each process.
type oneEach int

func (n oneEach) Ranks() int           { return int(n) }
func (oneEach) Process(rank int) int   { return rank }
func (oneEach) Of(process int) []int32 { return []int32{int32(process)} }
func (oneEach) Several() bool          { return false }

// pairs has ranks 2p and 2p+1 in process p.
type pairs int

func (n pairs) Ranks() int           { return int(n) }
func (pairs) Process(rank int) int   { return rank / 2 }
func (pairs) Of(process int) []int32 { return []int32{int32(2 * process), int32(2*process + 1)} }
func (pairs) Several() bool          { return true }

// TestAskTasks: two processes of two ranks and a silent one. Ranks are compared with each other wherever they live, and
// each process gets one line.
func TestAskTasks(t *testing.T) {
	at := func(called uint64, gate bool) Rank {
		return Rank{Host: "a", PID: 1, Clocks: []Clock{{Clock: "c", Name: "w", Called: called, Gate: gate}}}
	}
	var a *Asker
	a = NewAsker(3, pairs(6), func() []Rank { return []Rank{at(5, true), at(4, false)} }, func(_ context.Context, to int, question []byte) error {
		if to == 2 {
			return context.DeadlineExceeded
		}
		answer, err := Answer(question, func() []Rank { return []Rank{at(4, false), at(5, true)} })
		if err != nil {
			t.Error(err)
		}
		a.Heard(to, answer)
		return nil
	}, nil)
	gate := "at the gate of a collective call on communicator w, waits for ranks 1, 2"
	equal(t, "ranks", []control.RankStatus{
		{Rank: 0, Host: "a", PID: 1, Phase: phaseGate, Detail: gate, WaitsFor: []int{1, 2}}, {Rank: 1, Host: "a", PID: 1, Phase: Computing},
		{Rank: 2, Host: "a", PID: 1, Phase: Computing}, {Rank: 3, Host: "a", PID: 1, Phase: phaseGate, Detail: gate, WaitsFor: []int{1, 2}},
		{Rank: 4, Phase: phaseSilent, Detail: "has not said what it is doing"}, {Rank: 5, Phase: phaseSilent, Detail: "has not said what it is doing"}},
		a.Doing())
	equal(t, "processes", []control.RankStatus{
		{Rank: 0, Host: "a", PID: 1, Phase: phaseGate, Detail: "rank 0: " + gate, WaitsFor: []int{1}},
		{Rank: 1, Host: "a", PID: 1, Phase: phaseGate, Detail: "rank 3: " + gate, WaitsFor: []int{0}},
		{Rank: 2, Phase: phaseSilent, Detail: "rank 4: has not said what it is doing; rank 5: has not said what it is doing"}},
		a.Processes())
}
