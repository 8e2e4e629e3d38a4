// SPDX-License-Identifier: Apache-2.0

// Package scenario runs small message-passing programs over a safe-state protocol, one step at a time,
// under a schedule that the caller chooses, and tells whether what the protocol promised was true.
//
// It owns: the text form of programs and scenario files (program.go, file.go), a model of what MPI
// does with collectives and messages (mpi.go), the schedules (run.go: random; explore.go: all of
// them), random programs that cannot deadlock (random.go), and the checks (check.go).
//
// It may know collclock and its baselines. It does not know MPI, processes, sockets or time, and
// nothing outside of tests imports it.
//
// What is checked in every state: the invariants I1 to I4 of the refined protocol (check.go). What is
// checked when rank 0 declares the state safe, and until it ends it: nobody is inside a collective or
// permitted to enter one, no request is under way, all members of a communicator have started equally
// many collectives on it, and a communicator that exists for one member exists for all. In the end:
// the program has ended, every request was served, and the protocol is idle again.
package scenario
