// SPDX-License-Identifier: Apache-2.0

// Package collclock finds a safe state: a moment in which no rank is inside a collective, none will
// enter one, and all members of every communicator have begun equally many. The protocol is the refined
// rendezvous-gated collective clock (RCC): debts are fixed when the checkpoint is asked for; no rank is
// parked; a collective beyond the debts is entered only once all its members have called it, and a
// non-blocking one is started then; when every debt is paid the gates freeze, the calls that were
// permitted complete, and the state is safe.
//
// The package owns the clocks of one rank and the decisions about them: a [Machine], which takes
// events and returns actions. The package may not know MPI, sockets, files, threads or time; it imports
// neither net, os, time nor C. The caller holds one lock around [Machine.Step], sends the messages, and
// wakes the threads.
//
//	include/ckpt/clock.h   the hot path in C: counts a call and looks at the pending word
//	collclock/scenario     runs small programs over a protocol, and explores all their schedules
//	collclock/model        Promela models, and traces of this code that they accept
//	collclock/published, collclock/twophase   baselines for tests and benchmarks
//
// # Clocks
//
// There is one clock for each communicator, window, file and persistent collective request; see
// [World], [Child], [Subset], [Intercomm], [Object] for their identities. On each rank a clock has
// CALL (calls made), ENT (calls let into MPI) and RET (calls, or starts, that have returned). One
// member is the clock's home; the others reach it through a 4-ary tree over the members. The whole
// world has another such tree, whose root is rank 0.
//
// # An epoch at one rank
//
//	          REQ             Snapshot            FREEZE             all settled        STOP
//	[Idle] ---------> [Raised] ------> [Open] ------------> [Frozen] ---------> [Clean] ------> [Stopped]
//	  ^                  |               |                     |                   |               |
//	  | Lower            +---------------+----------+----------+-------------------+---------------+
//	  |                                             | RESUME (done, or given up)
//	  +------------------ [Resuming] <--------------+
//	   no deferred start left
//
//	transition            made by              what it does
//	Idle -> Raised        raise (world.go)     sends REQ on; asks for the pending word, a fence, a Snapshot
//	Raised -> Open        snapshot (world.go)  fixes SNAP = ENT = CALL; sends INIT for each clock
//	Open -> Frozen        freezeAll (world.go) sends FREEZE on; homes here send FIN
//	Frozen -> Clean       tryClean (world.go)  sends CLEAN up when this subtree is settled
//	Clean -> Stopped      stop (world.go)      sends STOP on; the caller may drain and save
//	any -> Resuming       leave (world.go)     sends RESUME on; opens all gates. By RESUME from above, or
//	                                           by Withdraw, at any rank: then no safe state of the epoch counts
//	Resuming -> Idle      tryLower (world.go)  clears the pending word
//
//	state     what is true
//	Idle      calls take the fast path and are not told; only always-gated calls come here
//	Raised    a call that is told waits for the snapshot, which does not depend on the application
//	Open      calls up to SNAP, and up to LIM, may start; all others wait or are deferred. On every
//	          clock LIM >= its debt T0, once some member owes
//	Frozen    nobody owes anything on any clock that anybody knew at its snapshot. A clock's limit
//	          changes no more once its home is frozen; a clock created here from now on starts nothing
//	Clean     on every clock here ENT = RET = FIN, its limit, and its requests are complete; stable
//	Stopped   all ranks are clean
//	Resuming  all calls but always-gated ones may start, in order, but still through the machine
//
// # Messages
//
// In the world's tree: REQ, FREEZE, STOP, RESUME down, READY, CLEAN up. In a clock's tree: INIT and ANN
// up, LIM, RIPE and FIN down. INIT says the snapshots of a subtree; ANN, how many calls all of a subtree
// have made. The home gives LIM(T0) when some member's snapshot is behind the largest, T0; LIM(m) when
// all have called m > T0 (the rendezvous); RIPE when all have called T0; and, frozen, FIN with the last
// limit. A rank is READY when all clocks of its snapshot are ripe.
//
// ANN and LIM are facts that stay true for ever, so they are good in any epoch. All others are dropped
// when their epoch is over. Messages may overtake each other; none may be lost or doubled.
//
// # Invariants (checked in every state by package scenario)
//
//	I1  RET <= ENT <= CALL on each rank, and ENT <= max(T0, GO)
//	I2  GO <= max(T0, least CALL)                    GO: the highest limit given by rendezvous
//	I3  T0 is the largest SNAP, fixed
//	I4  once the home is frozen, max(T0, GO) <= least CALL, and constant
//
// # What may surprise
//
// An always-gated call (Finalize) meets all members before it starts, checkpoint or not. While such a call
// waits it is not a debt: SNAP does not count it.
//
// A clock is created before the call that made it returns. But only the members call
// MPI_Comm_create_group, so this call counts on the clock of the communicator that it makes, which exists
// before the call. Therefore a clock may appear that nobody waited for. A clock that is created after
// FREEZE gets no INIT, so its home lets nobody in. A rank that is frozen and does not know a clock answers
// those who ask with FIN(0).
//
// When an epoch ends, deferred starts are done before the pending word is cleared: otherwise a call on the
// fast path could overtake them.
//
// A freed clock stays as a tombstone until all members have freed it (FREE to the home, DROP from it),
// because others may still owe calls on it.
package collclock
