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
	a = NewAsker(3, func() Rank { return Rank{Host: "a", PID: 1} }, func(_ context.Context, to int, question []byte) error {
		if to == 2 {
			return context.DeadlineExceeded
		}
		answer, err := Answer(question, func() Rank {
			return Rank{Host: "b", PID: 2, Calls: []Call{{Call: "MPI_Recv", Comm: "x", Peer: 0, Tag: 4}}}
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
