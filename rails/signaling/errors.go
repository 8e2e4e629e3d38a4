// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"errors"
	"fmt"
)

// ErrClosed is returned by all calls on a Network that was closed, also by those that waited when it was closed.
var ErrClosed = errors.New("the signaling network is closed")

// LostError says that a rank is lost, and with this rank the network.
type LostError struct {
	Rank  int    // who is lost
	By    int    // who noticed
	Cause string // what was noticed
}

// causeLeft is the cause of a loss by Close, without Shutdown.
const causeLeft = "it left the job before the others"

// Left tells whether the rank has taken leave, by Close, and was not lost by accident.
func (e *LostError) Left() bool { return e.Cause == causeLeft }

func (e *LostError) Error() string {
	return fmt.Sprintf("rank %d is lost (noticed by rank %d: %s)", e.Rank, e.By, e.Cause)
}

// WaitError says for whom a collective was waiting when its context ended.
type WaitError struct {
	Op   string // what was called
	Tag  uint64
	Rank int // from whom a message is missing
	// Last is the last of the ranks that report through Rank: one of Rank to Last is late.
	Last int
	Err  error // why the wait ended
}

// Who says who is late.
func (e *WaitError) Who() string {
	if e.Last > e.Rank {
		return fmt.Sprintf("one of ranks %d to %d", e.Rank, e.Last)
	}
	return fmt.Sprintf("rank %d", e.Rank)
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("%s (tag %#x): nothing from %s: %v", e.Op, e.Tag, e.Who(), e.Err)
}

func (e *WaitError) Unwrap() error { return e.Err }
