// SPDX-License-Identifier: Apache-2.0

// Package clockwork runs the collective clock of one rank (package collclock) in a job.
//
//	program's threads ──calls──►┐              ┌──► pending word, answers to calls
//	signaling network ─messages►│ Clock: machine ├──► messages
//	who checkpoints ──requests─►┘              └──► Events: safe, resumed, deferred
//
// It owns the order between counters that threads write without a lock and the machine that reads them
// (counts: the word, then membarrier, then the counters); the clocks of communicators by their virtual ids;
// calls whose members do not know each other yet (meet.go); and the trace that the model is asked about.
// It does not know what a checkpoint is, how the program is stopped, or which MPI runs.
package clockwork
