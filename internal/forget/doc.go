// SPDX-License-Identifier: Apache-2.0

// Package forget is a file system that tells what a power cut would leave of it.
//
// It owns the model of a disk: for every file and folder, what programs see and what has been synced. A
// program that runs on it, mounted by FUSE, sees an ordinary file system. At every step that matters for
// what is left (a sync, a name made, moved or removed) the disk can be asked for its states: each is a disk
// again, and can be mounted in place of the old one.
//
// It may not know which programs run on it, or what they rely on.
package forget
