// SPDX-License-Identifier: Apache-2.0

// Package published is the collective-clock algorithm as it was published (Xu and Cooperman, "Enabling
// Practical Transparent Checkpointing for MPI: A Topological Sort Approach"), as a baseline for tests
// and benchmarks. It deadlocks, or calls states safe that are not, in programs that are legal MPI; the
// scenarios in collclock/testdata show each case. Never use it for a checkpoint.
//
// One clock per group of processes (not per communicator) counts the collectives that a rank has begun.
// At a request the largest counts become targets. A rank that has reached all its targets is parked
// at its next collective; one that has not goes on, and when it passes a target it raises it and tells
// the members. When all ranks have reached their targets, the state is called safe.
//
// It owns the published decisions, and speaks the events and actions of collclock, so the same runner
// drives both. It may not know anything but collclock.
package published
