// SPDX-License-Identifier: Apache-2.0

// Package attributes keeps what a program has asked the kernel for itself, apart from memory, descriptors, signals and timers: how
// its threads are scheduled and where they may run, that other threads see what it wrote (membarrier), its limits (ulimit). The kernel drops all of it
// with the process. What it has given up (ids, capabilities, system calls) is not given up again: it is told, so that no
// checkpoint is made that would run it with more rights.
//
// What the launcher gave the process, as a niceness, limits or the processors of a rank, is the next launcher's to give: only what differs
// from how the process began is saved. What cannot be had again, for want of privilege or of such processors, is said, and the
// program goes on without it: none of it changes a result.
//
// It owns the section "attributes" of an image. It does not know what an image is, or when the program is stopped.
package attributes
