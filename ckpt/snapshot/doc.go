// SPDX-License-Identifier: Apache-2.0

// Package snapshot knows the memory of the upper half: which mappings belong to it, how to bring
// them into a form that can be written while the program goes on, and how to map them again.
//
// It owns the reading of /proc/self/maps, the layout of the arena as far as Go needs it, copies of
// shared mappings, and the properties of the machine on which an image depends (processor features). It
// may not know MPI, ranks, epochs or how threads are stopped: it is called when they are stopped.
package snapshot
