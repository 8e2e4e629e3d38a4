// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"errors"
	"time"

	"github.com/libckpt/libckpt/internal/fault"
)

// stage is how far an attempt has come.
type stage uint8

// The stages, in order; doc.go draws them.
const (
	stageAgree stage = iota
	stageClose
	stageStop
	stageDrain
	stageSnapshot
	stageWrite
	stageCommit
)

var stageNames = [...]string{"agree", "close", "stop", "drain", "snapshot", "write", "commit"}

// stagePlaces are where a test can stop or kill a rank before a stage.
var stagePlaces = [...]string{"stage.agree", "stage.close", "stage.stop", "stage.drain", "stage.snapshot", "stage.write", "stage.commit"}

// String is the name in the status, in events and in errors.
func (s stage) String() string { return stageNames[s] }

// stages says what each stage does on this rank, and how that is undone if there is no epoch in the end.
//
// run returns an error when the attempt is over, and all ranks know or will hear of it (giveUp). A failure of one
// rank, for whose word the others wait, is not such an error: it is kept, and told in the next exchange. What drain
// and capture find is told when all ranks are stopped, what write finds in commit.
//
// Stages are undone in the order of the table: the program must go on before anything else, since the disk may be
// the reason. undo may be called for a stage that was not reached, or that failed halfway.
var stages = [...]struct {
	run   func(*attempt) error
	undo  func(*attempt) error // nil: nothing was done that outlives the attempt
	shown func(*attempt) bool  // whether the status shows it; nil: always
	done  string               // what holds on all ranks when it is done
}{
	stageAgree: {run: (*attempt).agree, shown: (*attempt).meets,
		done: "all ranks are in MPIX_Checkpoint, or no collective is under way"},
	stageClose: {run: (*attempt).quiesce, undo: (*attempt).failRails, shown: (*attempt).closes,
		done: "an embedded runtime has nothing under way, and its rails are closed, on all ranks"},
	stageStop: {run: (*attempt).park, undo: (*attempt).goOn,
		done: "no thread of the program runs, on any rank"},
	stageDrain: {run: (*attempt).quiet, undo: (*attempt).dropCapture, shown: (*attempt).hasRuntime,
		done: "no message is under way; every rank is captured but for its memory"},
	stageSnapshot: {run: (*attempt).snapshot,
		done: "this rank's memory stays as it is: in a frozen copy, or the program stands"},
	stageWrite: {run: (*attempt).write,
		done: "this rank's image is on stable storage, or has failed"},
	stageCommit: {run: (*attempt).commitKnown, shown: (*attempt).wrote,
		done: "the epoch exists, and rank 0 has said so"},
}

func (a *attempt) meets() bool      { return a.hasRuntime() && !a.async || a.called }
func (a *attempt) closes() bool     { return a.j.embedded != nil }
func (a *attempt) hasRuntime() bool { return a.j.runtime != nil }
func (a *attempt) wrote() bool      { return a.unwritten == nil }

// do runs one stage.
func (a *attempt) do(s stage) error {
	shown := stages[s].shown == nil || stages[s].shown(a)
	if shown {
		a.enter(s)
	}
	begun := time.Now()
	fault.Place(stagePlaces[s])
	err := stages[s].run(a)
	if shown || s == stageAgree { // the wait for a safe state counts as agreeing
		a.passed(s, begun)
	}
	return err
}

// undo takes back what the stages did.
func (a *attempt) undo() error {
	var errs []error
	for s := range stages {
		if undo := stages[s].undo; undo != nil {
			errs = append(errs, undo(a))
		}
	}
	return errors.Join(errs...)
}
