// SPDX-License-Identifier: Apache-2.0

// Package shm makes memory that processes of one node share (ckpt_shm_map in ckpt.h): a file of /dev/shm that has a
// name only until all have opened it.
//
// Owns: what a segment may be called, how its processes meet, its file, which node a process is on, what an image says
// of segments, and how they are made again. May not know: who maps memory and how, what is in it, when checkpoints
// are made.
package shm
