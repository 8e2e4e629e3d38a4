// SPDX-License-Identifier: Apache-2.0

package collclock

// Event is something that happened at this rank. The caller delivers events one at a time.
type Event interface{ event() }

// Mode is how a call behaves at the gate.
type Mode uint8

const (
	// Blocking calls wait at the gate.
	Blocking Mode = iota
	// NonBlocking calls never wait: a call that may not start yet is deferred.
	NonBlocking
	// Gated calls are let through only when all members have made them, checkpoint or not, so that
	// none of them is ever owed: Finalize.
	Gated
)

// Call says that the application makes a collective call on a clock. Answered, perhaps later, by
// exactly one of Permit (let the thread in), or for NonBlocking calls also Defer.
// While no checkpoint is pending only Gated calls need to be told, if the caller has counters of its
// own (see Snapshot).
type Call struct {
	Clock ID
	Mode  Mode
	K     uint64 // number of the call on this clock, from 1; 0: the next one
}

// Return says that a permitted call has returned (a non-blocking one: that its start has). Anything
// the call created or freed must have been told before. Not needed while nothing is pending, if the
// caller has counters of its own and tells K.
type Return struct {
	Clock   ID
	K       uint64 // 0: the one that was permitted last
	Request bool   // it left a request that is not complete
}

// Withdrawn says that a permitted call failed before it took part in anything: nobody else makes it, so it does not
// count, and the next call has its number. Other ranks may have been told of the call: they take this rank to have
// made one that it will make later, and no state is safe until it has. Not needed while nothing is pending, if the
// caller has counters of its own.
type Withdrawn struct {
	Clock    ID
	K        uint64
	Deferred bool // it is the answer to a Start; deferred calls behind it move up by one
}

// Started says that the application's thread has done the deferred start that Start asked for. It
// leaves a request.
type Started struct {
	Clock ID
	K     uint64
}

// Completed says that a request of a non-blocking call that started on this clock was found complete.
type Completed struct{ Clock ID }

// Created says that a communicator, window, file or persistent collective request now exists here.
type Created struct {
	Clock ID
	Group Group
}

// Freed says that it is gone (told before the freeing call's Return) and that no request of it is
// open. Its counts stay as a tombstone until every member has freed it.
type Freed struct {
	Clock ID
	// K is the number of the freeing call where that is counted as one on this clock, and the caller has
	// counters of its own: it stands for the Return, since the counters are gone too. Else 0.
	K uint64
}

// Received is a message from another rank. Messages may overtake each other, but none is lost or
// doubled.
type Received struct {
	From    int32
	Message Message
}

// Snapshot answers Raise: the counters of all clocks, read after the fence. A caller without counters
// of its own, which tells every Call and Return, gives none.
type Snapshot struct {
	Epoch  uint32 // that of Raise
	Counts []Count
}

// Count is what the shared counters of one clock say.
type Count struct {
	Clock     ID
	Call, Ret uint64
	Open      uint64 // started non-blocking requests that were not found complete yet
}

// Request asks for a safe state. Given to rank 0 only; ignored while an epoch is running.
type Request struct{}

// Resume says that the safe state is no longer needed. Given to rank 0 only.
type Resume struct{}

// Abort gives the running epoch up. Given to rank 0 only; possible at any moment.
type Abort struct{}

// Withdraw gives the running epoch up at this rank and those below it, whether the others know or not: some
// rank cannot be reached. The caller may not use a safe state of which any rank has withdrawn.
type Withdraw struct{}

// Tick is one step of the caller's clock. Only rank 0 counts them: Config says how many it waits.
type Tick struct{}

func (Call) event()      {}
func (Return) event()    {}
func (Withdrawn) event() {}
func (Started) event()   {}
func (Completed) event() {}
func (Created) event()   {}
func (Freed) event()     {}
func (Received) event()  {}
func (Snapshot) event()  {}
func (Request) event()   {}
func (Resume) event()    {}
func (Abort) event()     {}
func (Withdraw) event()  {}
func (Tick) event()      {}

// Action is something that the caller must do. Actions of one step are done in order.
type Action interface{ action() }

// Send sends a message to another rank (never to oneself).
type Send struct {
	To      int32
	Message Message
}

// Raise sets the pending word, then fences (membarrier, or any lock that every call takes), then
// reads the counters and delivers Snapshot. Calls that find the word set are told to the machine, with
// Call, and wait for its answer.
type Raise struct{ Epoch uint32 }

// Lower clears the pending word: the epoch is over and no deferred start is left that a call on the
// fast path could overtake.
type Lower struct{ Epoch uint32 }

// Resumed says that the epoch is over: whatever Stop held goes on. The pending word stays set until
// Lower.
type Resumed struct {
	Epoch   uint32
	Aborted bool // no safe state was reached
}

// Permit lets the thread that made call K go on into the real call.
type Permit struct {
	Clock ID
	K     uint64
}

// Defer tells the non-blocking call K to return with a virtual request that is not complete.
type Defer struct {
	Clock ID
	K     uint64
}

// Start asks for the real start of the deferred call K by a thread of the application, at its next
// look at MPI (or interrupted outside of MPI, when it computes). Answered by Started.
type Start struct {
	Clock ID
	K     uint64
}

// Stop says that the state is safe: no collective is under way on any rank, none will start, and all
// members of every communicator have started equally many.
type Stop struct{ Epoch uint32 }

// Report tells the caller what it may want to show or log.
type Report struct {
	What  ReportKind
	Epoch uint32
	Text  string // for people; names clock and rank
}

// ReportKind is the subject of a Report.
type ReportKind uint8

// Reports.
const (
	ReportBusy    ReportKind = iota + 1 // a Request during an epoch: it is served by that epoch
	ReportStalled                       // rank 0 gives an epoch up because it made no progress
	ReportGaveUp                        // and will not try again
	ReportFault                         // an event that makes no sense here was ignored
)

func (Send) action()    {}
func (Raise) action()   {}
func (Lower) action()   {}
func (Resumed) action() {}
func (Permit) action()  {}
func (Defer) action()   {}
func (Start) action()   {}
func (Stop) action()    {}
func (Report) action()  {}
