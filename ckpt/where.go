// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/vid"
)

// What the ranks of an MPI job are doing, for people: rank 0 asks all of them while somebody wants to
// know, and only then. explain.go turns the answers into sentences.

// WaitsFor says what a call waits for; the numbers are those of ckpt.h.
type WaitsFor int

// What calls wait for.
const (
	ForMessage    WaitsFor = 0 // from Peer
	ForReceiver   WaitsFor = 1 // Peer has to receive
	ForCollective WaitsFor = 2 // the members of Comm
	ForRequest    WaitsFor = 3 // of another kind
	ForOutside    WaitsFor = 4 // processes that are not of this job (Runtime.Inside)
)

// Peers that are no rank.
const (
	PeerAny  = -1
	PeerNone = -2
)

// Waiting is a call of the program that has been waiting for a while.
type Waiting struct {
	Call string // "MPI_Recv"
	Comm vid.ID
	Peer int // rank on Comm, of its remote group, or PeerAny, PeerNone
	Tag  int // negative: any
	For  WaitsFor
}

// whereabouts is what a rank answers.
type whereabouts struct {
	Host   string        `json:"host,omitempty"`
	PID    int           `json:"pid,omitempty"`
	Calls  []waitingCall `json:"calls,omitempty"`
	Clocks []clockAt     `json:"clocks,omitempty"`
}

// waitingCall is a Waiting whose communicator is a name and whose peer is a rank of the job.
type waitingCall struct {
	Call string   `json:"call"`
	Comm string   `json:"comm"`
	Peer int      `json:"peer"`
	Tag  int      `json:"tag"`
	For  WaitsFor `json:"for"`
}

// clockAt is where a rank stands in the collective calls of one communicator.
type clockAt struct {
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

// maxClocks bounds an answer; those that somebody may wait for come first.
const maxClocks = 500

// standing tells where this rank stands in all its collective calls.
func (w *clockwork) standing() ([]clockAt, []waitingCall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.machine.Status()
	owes, gate := map[collclock.ID]uint64{}, map[collclock.ID]bool{}
	for _, c := range s.Owes {
		owes[c.Clock] = c.Limit - c.Called
	}
	for _, c := range s.AtGate {
		gate[c.Clock] = true
	}
	all, waits := w.meetingsLocked(gate)
	for _, c := range w.tables.Calls() {
		id, ok := w.ids[c.Comm]
		if !ok || c.Made == 0 && owes[id] == 0 {
			continue
		}
		at := clockAt{Clock: id.String(), Name: w.nameLocked(id), Called: c.Made, Owes: owes[id],
			Gate: gate[id], Inside: c.Made != c.Returned && !gate[id]}
		all = append(all, at)
	}
	busy := func(c clockAt) int {
		if c.Owes > 0 || c.Gate || c.Inside {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b clockAt) int { return busy(a) - busy(b) })
	return all[:min(len(all), maxClocks)], waits
}

// whereabouts of this rank.
func (j *Job) whereabouts() whereabouts {
	at := whereabouts{Host: j.meta.Host, PID: os.Getpid()}
	at.Clocks, at.Calls = j.clock.standing()
	for _, w := range j.runtime.Waiting() {
		name := j.clock.commName(w.Comm)
		if w.For == ForCollective {
			for i := range at.Clocks {
				if c := &at.Clocks[i]; c.Name == name && c.Members == nil && (c.Gate || c.Inside) {
					c.Call = w.Call
				}
			}
			continue
		}
		if w.Peer >= 0 {
			w.Peer = j.tables.PeerOf(w.Comm, w.Peer)
		}
		at.Calls = append(at.Calls, waitingCall{w.Call, name, w.Peer, w.Tag, w.For})
	}
	if call := j.runtime.Inside(); call != "" {
		at.Calls = append(at.Calls, waitingCall{Call: call, Peer: PeerNone, Tag: -1, For: ForOutside})
	}
	return at
}

// look is one question to all ranks.
type look struct {
	all  map[int]whereabouts
	done chan struct{} // all have answered
}

// looks are the questions that are being asked; several may be at the same time.
type looks struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]*look
}

// lookWait is how long rank 0 waits for the answers; who does not answer is said to be silent.
const lookWait = 300 * time.Millisecond

// where asks all ranks what they are doing.
func (j *Job) where() map[int]whereabouts {
	l := &look{all: map[int]whereabouts{}, done: make(chan struct{})}
	j.looks.mu.Lock()
	j.looks.last++
	number := j.looks.last
	if j.looks.open == nil {
		j.looks.open = map[uint64]*look{}
	}
	j.looks.open[number] = l
	j.looks.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), lookWait)
	defer cancel()
	question, _ := json.Marshal(answer{Number: number})
	go func() {
		for r := 1; r < j.group.size() && ctx.Err() == nil; r++ {
			_ = j.net.Send(ctx, r, kindWhere, question) // who does not hear it is silent
		}
	}()
	j.heardFrom(0, number, j.whereabouts())
	select {
	case <-l.done:
	case <-ctx.Done():
	case <-j.networkFailed():
	}
	j.looks.mu.Lock()
	defer j.looks.mu.Unlock()
	delete(j.looks.open, number)
	return l.all
}

// doing says what each rank is doing.
func (j *Job) doing() []control.RankStatus { return explain(j.where(), j.group.size()) }

// answer is a message of kindWhere, without At, or kindStands.
type answer struct {
	Number uint64      `json:"number"`
	At     whereabouts `json:"at"`
}

func (j *Job) sayWhere(_ int, question []byte) {
	var a answer
	if json.Unmarshal(question, &a) != nil {
		return
	}
	a.At = j.whereabouts()
	b, err := json.Marshal(a)
	if err != nil || len(b) > math.MaxInt32 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookWait)
	defer cancel()
	_ = j.net.Send(ctx, 0, kindStands, b) // too late is the same as not at all
}

func (j *Job) heardWhere(from int, b []byte) {
	var a answer
	if json.Unmarshal(b, &a) == nil {
		j.heardFrom(from, a.Number, a.At)
	}
}

func (j *Job) heardFrom(rank int, number uint64, at whereabouts) {
	j.looks.mu.Lock()
	defer j.looks.mu.Unlock()
	l := j.looks.open[number]
	if l == nil {
		return // nobody wants to know any more
	}
	l.all[rank] = at
	if len(l.all) == j.group.size() {
		close(l.done)
		delete(j.looks.open, number)
	}
}
