// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/libckpt/libckpt/ckpt/after"
)

// Request asks for a checkpoint.
type Request struct {
	Then after.Action
	// Timeout is how long the caller is willing to wait; 0: for ever.
	Timeout time.Duration
	// Unattended: nobody waits for the answer. Said within the process only.
	Unattended bool `json:"-"`
}

// Event is news of a checkpoint under way.
type Event struct {
	Epoch int    `json:"epoch"`
	Phase string `json:"phase"`           // what is being done, e.g. "agree", "write"
	Ranks int    `json:"ranks,omitempty"` // ranks that are done with the phase ...
	Of    int    `json:"of,omitempty"`    // ... of so many; 0 when that has no meaning
	Done  uint64 `json:"done,omitempty"`  // bytes done in the phase ...
	Total uint64 `json:"total,omitempty"` // ... of so many; 0 when not known
	// Detail says more in words, for example for whom all wait.
	Detail string `json:"detail,omitempty"`
}

// Result tells of a committed epoch.
type Result struct {
	Epoch   int     `json:"epoch"`
	Bytes   uint64  `json:"bytes"`   // of all images
	Seconds float64 `json:"seconds"` // from the request to the commit
	Safe    float64 `json:"safe"`    // from the request to the safe state, in which no collective is half done
	Stopped float64 `json:"stopped"` // seconds that the application stood still
	Joined  bool    `json:"joined"`  // another request had started this checkpoint
}

// State is what a job is doing, in one word.
type State string

const (
	Running       State = "running"
	Checkpointing State = "checkpointing"
	Ending        State = "ending"
)

// Status is what a job says of itself.
type Status struct {
	State   State     `json:"state"`
	Phase   string    `json:"phase,omitempty"` // of the checkpoint under way
	Program string    `json:"program,omitempty"`
	Started time.Time `json:"started"`
	Epoch   int       `json:"epoch"`             // newest committed one; 0: none yet
	Pending int       `json:"pending,omitempty"` // the one under way
	// Requests is how many requests for a checkpoint have no answer yet.
	Requests int `json:"requests,omitempty"`
	// Holds are the reasons for which a checkpoint would be refused now, when that is known.
	Holds    []string     `json:"holds,omitempty"`
	Ranks    []RankStatus `json:"ranks"`
	Last     *Outcome     `json:"last,omitempty"` // of the last checkpoint that was asked for
	Counters Counters     `json:"counters"`
	// Writing is how far the images are, while some are written.
	Writing *Writing `json:"writing,omitempty"`
	// Raising is the epoch that is being raised, and to which level (package levels); NotRaised the last one for which
	// that failed, and why.
	Raising   string `json:"raising,omitempty"`
	NotRaised string `json:"notRaised,omitempty"`
	// Chosen is how often checkpoints are asked for, where that is chosen by what they cost.
	Chosen *Chosen `json:"chosen,omitempty"`
}

// Chosen is a choice of how often to checkpoint.
type Chosen struct {
	PeriodSeconds float64   `json:"periodSeconds,omitempty"` // 0: costs are not known yet
	Levels        string    `json:"levels,omitempty"`        // as ckptrun --levels has it
	Why           string    `json:"why"`                     // in words: what decided, and the costs
	Next          time.Time `json:"next"`                    // when the next one is asked for
}

// RankStatus is what one rank is doing.
type RankStatus struct {
	Rank   int     `json:"rank"`
	Host   string  `json:"host,omitempty"`
	PID    int     `json:"pid,omitempty"`
	Phase  string  `json:"phase"`            // e.g. "computing", "agree", "write"
	Detail string  `json:"detail,omitempty"` // e.g. which call it waits in
	Done   uint64  `json:"done,omitempty"`   // bytes done in the phase
	Total  uint64  `json:"total,omitempty"`  // bytes to do in the phase; 0 when not known
	Rate   float64 `json:"rate,omitempty"`   // bytes a second
	// WaitsFor are the ranks for whose calls or messages it waits.
	WaitsFor []int `json:"waits_for,omitempty"`
}

// Outcome is how a checkpoint ended.
type Outcome struct {
	When    time.Time `json:"when"`
	Epoch   int       `json:"epoch,omitempty"` // 0 when none was committed
	Bytes   uint64    `json:"bytes,omitempty"`
	Seconds float64   `json:"seconds,omitempty"`
	Error   string    `json:"error,omitempty"`   // why none was committed
	Refused []string  `json:"refused,omitempty"` // the reasons, when it was refused
}

// Counters count since the job (this incarnation of it) started.
type Counters struct {
	Committed int `json:"committed"`
	Refused   int `json:"refused"`
	Failed    int `json:"failed"`
}

// Job is what a Server serves. Its methods are called by several goroutines; Checkpoint by one at a
// time.
type Job interface {
	// Checkpoint saves the job and returns once the epoch is committed. When ctx ends it backs out and
	// returns soon; the application goes on. It returns a *RefusedError when something holds the
	// checkpoint back. progress may be called at any time until Checkpoint returns; it never blocks.
	Checkpoint(ctx context.Context, r Request, progress func(Event)) (Result, error)
	// Finish does what is to be done after a committed checkpoint that was asked for with after.Exit or after.Kill.
	// It is called once, when those who asked have been told of the commit; with after.Continue when all of
	// them had been told before that there is none in time. Then the program goes on.
	Finish(after.Action)
	// Status must answer at once, whatever the job is doing.
	Status() Status
}

// RefusedError says that no checkpoint was taken, because no job could have been restarted from it.
type RefusedError struct{ Reasons []string }

func (e *RefusedError) Error() string {
	return "checkpoint refused: " + strings.Join(e.Reasons, "; ")
}

// ErrTimeout says that the caller's time was over first. It is the cause with which the context ends in
// Job.Checkpoint; wrap it with what was waited for, and with what the job does now.
var ErrTimeout = errors.New("timeout")

// ErrEnding says that the job is about to end: by itself, or after an earlier request.
var ErrEnding = errors.New("the job is ending")

// ErrElsewhere says that the job listens on its own host alone, and that this is another host.
var ErrElsewhere = errors.New("the job can be reached on its own host only")

// ErrNotRunning says that nobody who knows the token answers at the address.
var ErrNotRunning = errors.New("the job is not running any more, or cannot be reached from this host")
