// SPDX-License-Identifier: Apache-2.0

// Package clockwork runs the collective clocks of one process in a job: a machine of package collclock for each rank
// that lives there, which is one unless a runtime has ranks that are tasks.
//
//	program's threads ──calls──►┐                          ┌──► pending word, answers to calls
//	signaling network ─messages►│ Clock: a machine a rank, ├──► messages
//	who checkpoints ──requests─►┘ messages among them      └──► Events: safe, resumed, deferred
//
// The process is pending when one of its machines is, and stopped when all are. Messages carry the ranks that they are
// from and for (Places says where those live); those within the process are delivered at once, under the lock.
//
// It owns the order between counters that threads write without a lock and the machine that reads them
// (counts: the word, then membarrier, then news and counters); the clocks of communicators by their virtual ids;
// calls whose members do not know each other yet (meet.go); and the trace that the model is asked about.
// It does not know what a checkpoint is, how the program is stopped, or which MPI runs.
package clockwork
