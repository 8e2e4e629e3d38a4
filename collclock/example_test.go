// SPDX-License-Identifier: Apache-2.0

package collclock_test

import (
	"fmt"

	"github.com/libckpt/libckpt/collclock"
)

// Three ranks have one communicator. Rank 1 is in its first collective call when a checkpoint is asked for, so the
// others owe that call: the state is safe when they have made it, too.
func Example() {
	const ranks = 3
	world := collclock.World()
	var machines [ranks]*collclock.Machine
	for r := range machines {
		machines[r] = collclock.New(collclock.Config{Rank: r, Ranks: ranks})
		machines[r].Step(collclock.Created{Clock: world, Group: collclock.Everybody(ranks)})
	}
	calls := [ranks]uint64{1: 1} // counted by each rank as it goes
	var step func(rank int, e collclock.Event)
	step = func(rank int, e collclock.Event) {
		for _, action := range machines[rank].Step(e) {
			switch a := action.(type) {
			case collclock.Send: // a network does this
				step(int(a.To), collclock.Received{From: int32(rank), Message: a.Message})
			case collclock.Raise: // from now on calls are told to the machine
				step(rank, collclock.Snapshot{Epoch: a.Epoch, Counts: []collclock.Count{{Clock: world, Call: calls[rank]}}})
			case collclock.Permit:
				fmt.Printf("rank %d may go on into call %d\n", rank, a.K)
			case collclock.Stop:
				fmt.Printf("rank %d: safe\n", rank)
			}
		}
	}
	step(0, collclock.Request{})
	for _, rank := range []int{0, 2} {
		step(rank, collclock.Call{Clock: world, Mode: collclock.Blocking})
	}
	for rank := range machines { // all are in it now, so it ends
		step(rank, collclock.Return{Clock: world})
	}
	// Unordered output:
	// rank 0 may go on into call 1
	// rank 2 may go on into call 1
	// rank 0: safe
	// rank 1: safe
	// rank 2: safe
}
