// SPDX-License-Identifier: Apache-2.0

// Command safestate simulates how long a job of many ranks takes to reach a safe state, and at what cost.
// It compares the refined protocol (the code of package collclock itself, one machine per rank) with the
// published one (idealised: its targets and its detection take no time and no message).
//
//	go run ./bench/safestate -ranks 65536
//
// Time is simulated. A control message takes 2 us on the way, and 1 us of its sender's and of its
// receiver's helper thread, which do one thing at a time. Ranks compute for lognormal times between
// operations; the checkpoint is asked for at a random moment in the fifth iteration.
//
// Patterns: world (one collective on everybody), grid (rows and columns), nested (groups of 8, 64 and
// 1,024, random cross groups of 16, and a ring in the group of 8), nestedx (as nested, ring in the cross
// group).
//
// Columns: unmet, communicators whose members had not all made the same calls at the request; ready,
// time until all debts are paid (the application's own work, whatever the protocol); safe, until the
// state is safe; tail, the difference, which is the protocol's; rounds, longest chain of messages
// from the request, and in the tail; msgs, messages per rank; gated, collectives begun while pending
// beyond the debts. For the published protocol: safe, the time that a rank is parked, and messages per
// rank, only those for raised targets.
//
// It owns the simulation and its model of an application. It may not know MPI, sockets or real time.
// sim.go is the event loop, pattern.go what ranks do, refined.go and published.go the two protocols.
package main
