// SPDX-License-Identifier: Apache-2.0

// Package vid owns virtual ids: the tables that the hot path reads, and what it takes to make every
// object again in a fresh MPI.
//
// # The tables
//
// One window of memory, reserved once and never moved, holds a header (ckpt_tables), a directory per
// kind, and pages of slots: the layout of include/ckpt/tables.h, which layout_test.go compares with
// what a C compiler says. Slots grow page by page inside the window. C reads slots and counts in them
// without asking; Go writes them only to make, bind and free objects. The ids of requests and messages
// are given out by C itself from a free list in the header (include/ckpt/vid.h); Go only adds pages.
//
//	window: | ckpt_tables | directory of kind 0 .. 15 | pages and counters, in order of need ... |
//
// # The objects
//
// Beside the tables Go keeps, for every object, its descriptor (bytes that only the runtime
// understands), the ids it needs, and its place in the global order. An object that was freed while
// another one still needs its descriptor keeps descriptor and id until that one is freed too.
//
// A runtime may give out reserved ids itself, and be heard of only when that is needed: Adopt, and for communicators
// a ring in the runtime's memory (news.go).
//
// # Rebuilding
//
// Three steps, so that no two ranks wait for each other in a circle: local objects that need nothing
// collective; then collective ones, level by level (an object stands one level above the collective
// ones it needs) and within a level by order, then by age; then the local objects that need
// collective ones. Order and level are equal on all members of an object, and so, therefore, is the
// sequence.
//
// # What is saved
//
// Save writes ids, generations, descriptors, needs, orders, names and the counters of communicators.
// Real handles are not saved. Requests and messages are not saved: an image is taken only when none
// is pending. The format is drawn in save.go.
//
// # Locks
//
// Tables.mu guards everything but the words that C changes (pending, free, counters, records of the ring); those are
// accessed atomically. Tables.taking comes before it, and is held while TakeNews calls back. Nothing else is called with the lock held except the kernel (to reserve memory).
//
// The package knows nothing of MPI, images, files or the network, and imports no cgo.
package vid
