// SPDX-License-Identifier: Apache-2.0

// Package table is Go's side of include/ckpt/clock.h: the counters that C counts collective calls
// with, and how they are read for a snapshot.
//
// It owns the layout and the order of the steps of a snapshot. It may know collclock. It may
// not know where the memory comes from (the caller maps it, at a place that C knows, and gives it as
// typed pointers) nor how the fence is made (the caller gives a function that calls membarrier).
package table
