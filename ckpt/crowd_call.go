// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/where"
)

// MPIX_Checkpoint in a job of several processes without MPI. Collective: each process tells rank 0 that it is in the
// call; when all are, rank 0 gives the attempt its number, and all make it:
//
//	called ──► rank 0: all have ──allin(n)──► all: Cooperative
//
// Who waits can be saved by an epoch that somebody else asks for, and makes the call again after a restart: so nothing
// of this is in an image.

// calling is what a process knows of these calls.
type calling struct {
	mu     sync.Mutex
	told   bool        // rank 0 knows that this process is in the call
	number uint64      // of the attempt to which all have come; 0: none
	turn   chan uint64 // capacity 1: the same, for who waits

	// rank 0
	in    []bool
	slow  *time.Timer
	begun chan struct{} // its own part of the attempt is over; capacity 1
}

// callTurn is how long a call waits before it looks for signals of the program.
const callTurn = 50 * time.Millisecond

// slowCall is when those who have not come to the call are named in the log.
const slowCall = 5 * time.Second

func newCalling(ranks int) *calling {
	return &calling{turn: make(chan uint64, 1), in: make([]bool, ranks), begun: make(chan struct{}, 1)}
}

// Come is the first half of MPIX_Checkpoint: it waits for the other processes. Where it returns false without an error
// it is called again; with an error, that is the answer of the call.
func (j *Job) Come() (bool, error) {
	if j.crowd == nil {
		return true, nil
	}
	if err := j.net.Err(); err != nil {
		return false, j.lostError(err)
	}
	c := j.crowd.calling
	c.mu.Lock()
	first := !c.told
	c.told = true
	c.mu.Unlock()
	if first {
		if j.group.rank() == 0 {
			j.called(0, nil)
		} else if err := j.net.Send(context.Background(), 0, kindInCall, nil); err != nil {
			return false, j.lostError(err)
		}
	}
	wait := time.NewTimer(callTurn)
	defer wait.Stop()
	select {
	case n := <-c.turn:
		c.mu.Lock()
		c.told, c.number = false, n
		c.mu.Unlock()
		return true, nil
	case <-j.net.Failed():
		return false, j.lostError(j.net.Err())
	case <-wait.C:
		return false, nil
	}
}

// called notes on rank 0 that a process is in the call.
func (j *Job) called(from int, _ []byte) {
	c := j.crowd.calling
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in[from] = true
	for _, in := range c.in {
		if !in {
			if c.slow == nil {
				c.slow = time.AfterFunc(slowCall, j.callIsSlow)
			}
			return
		}
	}
	if c.slow != nil {
		c.slow.Stop()
		c.slow = nil
	}
	clear(c.in)
	go j.allIn()
}

// callIsSlow names those who wait and those who do not come, once for each call.
func (j *Job) callIsSlow() {
	c := j.crowd.calling
	c.mu.Lock()
	who := where.Missing(c.in)
	c.mu.Unlock()
	if who != "" && j.net.Err() == nil {
		j.log.Warn(fmt.Sprintf("no checkpoint yet: %s, which computes", who))
	}
}

// allIn begins the attempt of rank 0, to which all have come. Nobody else's is made meanwhile.
func (j *Job) allIn() {
	j.asking.Lock()
	defer j.asking.Unlock()
	j.crowd.begun++
	word := binary.LittleEndian.AppendUint64(nil, j.crowd.begun)
	for r := 1; r < j.group.size(); r++ {
		if err := j.net.Send(context.Background(), r, kindAllIn, word); err != nil {
			return // the network is lost: everybody hears that
		}
	}
	c := j.crowd.calling
	c.turn <- j.crowd.begun
	wait := time.NewTimer(stallAfter)
	defer wait.Stop()
	select {
	case <-c.begun:
		return
	case <-j.done:
		return
	case <-j.net.Failed():
	case <-wait.C: // a handler of a signal has left the call, perhaps
	}
	select {
	case <-c.turn:
	default:
		<-c.begun // it has begun, and ends by itself
	}
}

// heardAllIn takes the number of an attempt to which all have come.
func (j *Job) heardAllIn(_ int, payload []byte) {
	if len(payload) != 8 {
		return
	}
	c := j.crowd.calling
	select {
	case <-c.turn: // nobody took it: the thread has left the call
	default:
	}
	c.turn <- binary.LittleEndian.Uint64(payload)
}

// taken is the number of the attempt that the calling thread was told by Come.
func (c *calling) taken() tryID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cooperativeID(c.number)
}

// callOver says on rank 0 that its part is made.
func (j *Job) callOver() {
	if j.crowd == nil || j.group.rank() != 0 {
		return
	}
	j.crowd.calling.begun <- struct{}{}
}

// showCalls says in the status who waits in the call for whom.
func (j *Job) showCalls(lines []control.RankStatus) {
	c := j.crowd.calling
	c.mu.Lock()
	defer c.mu.Unlock()
	where.Gathering(lines, c.in, stageAgree.String())
}

// noneStays gives the attempt up when a thread has left the call after it was counted.
func (a *attempt) noneStays() (stop func()) {
	t := time.AfterFunc(stallAfter, func() {
		a.cancel(fmt.Errorf("a process that was in MPIX_Checkpoint has not gone on with it in %v: a handler of a signal has left the call", stallAfter))
	})
	return func() { t.Stop() }
}
