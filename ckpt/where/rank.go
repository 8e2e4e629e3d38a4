// SPDX-License-Identifier: Apache-2.0

package where

import "github.com/libckpt/libckpt/vid"

// For says what a call waits for; the numbers are those of ckpt.h.
type For int

// What calls wait for.
const (
	ForMessage    For = 0 // from Peer
	ForReceiver   For = 1 // Peer has to receive
	ForCollective For = 2 // the members of Comm
	ForRequest    For = 3 // of another kind
	ForOutside    For = 4 // processes that are not of this job
)

// Peers that are no rank.
const (
	PeerAny  = -1
	PeerNone = -2
)

// Waiting is a call of the program that has been waiting for a while, as the runtime knows it.
type Waiting struct {
	Call string // "MPI_Recv"
	Comm vid.ID
	Peer int // rank on Comm, of its remote group, or PeerAny, PeerNone
	Tag  int // negative: any
	For  For
}

// Rank is what a rank answers.
type Rank struct {
	Host   string  `json:"host,omitempty"`
	PID    int     `json:"pid,omitempty"`
	Calls  []Call  `json:"calls,omitempty"`
	Clocks []Clock `json:"clocks,omitempty"`
}

// Call is a Waiting whose communicator is a name and whose peer is a rank of the job.
type Call struct {
	Call string `json:"call"`
	Comm string `json:"comm"`
	Peer int    `json:"peer"`
	Tag  int    `json:"tag"`
	For  For    `json:"for"`
}

// Clock says how far a rank is in the collective calls of one communicator.
type Clock struct {
	Clock  string `json:"clock"`
	Name   string `json:"name"`
	Called uint64 `json:"called"`
	Owes   uint64 `json:"owes,omitempty"`   // calls that it has still to make before the state is safe
	Gate   bool   `json:"gate,omitempty"`   // the last call waits for the others to make theirs
	Inside bool   `json:"inside,omitempty"` // the last call has not returned
	Call   string `json:"call,omitempty"`   // its name, while it has not returned
	// Who has to make it (ranks of the job), where the clock is of this one call only: who has not come
	// to it does not know the clock.
	Members []int32 `json:"members,omitempty"`
}

// Waits adds a call that waits on the communicator called name; peer is w.Peer as a rank of the job. A
// collective call lends its name to the clock that it is on.
func (r *Rank) Waits(w Waiting, name string, peer int) {
	if w.For != ForCollective {
		r.Calls = append(r.Calls, Call{w.Call, name, peer, w.Tag, w.For})
		return
	}
	for i := range r.Clocks {
		if c := &r.Clocks[i]; c.Name == name && c.Members == nil && (c.Gate || c.Inside) {
			c.Call = w.Call
		}
	}
}

// WaitsOutside adds a call that waits for processes of another job.
func (r *Rank) WaitsOutside(call string) {
	r.Calls = append(r.Calls, Call{Call: call, Peer: PeerNone, Tag: -1, For: ForOutside})
}
