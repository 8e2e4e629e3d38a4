// SPDX-License-Identifier: Apache-2.0

package collclock

import "fmt"

// TraceKind is a step that is also in the Promela model (model/rcc.pml). Sending and receiving messages
// are not traced: the model may do these steps at any time.
type TraceKind uint8

// Steps.
const (
	TraceReq      TraceKind = iota + 1 // the epoch begins at this rank
	TraceSnapshot                      // its counters were read; followed by one TraceSnap per clock
	TraceSnap                          // Value: calls started at the snapshot
	TraceCall                          // call Value was made
	TraceEnter                         // call Value may go into MPI
	TraceReturn                        // call Value, or its start, has returned
	TraceComplete                      // a request was found complete
	TraceCreate
	TraceFree
	TraceDrop
	TraceGo     // home: calls up to Value may start
	TraceRipe   // home: everything owed (Value) was called
	TraceReady  // this rank's subtree owes nothing
	TraceFreeze // home: Value is the last call of this epoch
	TraceClean  // this rank's subtree has nothing under way
	TraceStop   // the state is safe
	TraceResume // the epoch is over
)

var traceNames = [...]string{
	TraceReq: "req", TraceSnapshot: "snapshot", TraceSnap: "snap", TraceCall: "call",
	TraceEnter: "enter", TraceReturn: "return", TraceComplete: "complete", TraceCreate: "create",
	TraceFree: "free", TraceDrop: "drop", TraceGo: "go", TraceRipe: "ripe", TraceReady: "ready",
	TraceFreeze: "freeze", TraceClean: "clean", TraceStop: "stop", TraceResume: "resume",
}

func (k TraceKind) String() string { return traceNames[k] }

// TraceEvent is one step. Clock is zero for steps of the whole rank.
type TraceEvent struct {
	Kind  TraceKind
	Rank  int
	Clock ID
	Value uint64
}

func (e TraceEvent) String() string {
	if e.Clock == (ID{}) {
		return fmt.Sprintf("%d %v %d", e.Rank, e.Kind, e.Value)
	}
	return fmt.Sprintf("%d %v %v %d", e.Rank, e.Kind, e.Clock, e.Value)
}

func (m *Machine) trace(kind TraceKind, c *clock, value uint64) {
	if m.cfg.Trace == nil {
		return
	}
	e := TraceEvent{Kind: kind, Rank: m.cfg.Rank, Value: value}
	if c != nil {
		e.Clock = c.id
	}
	m.cfg.Trace(e)
}
