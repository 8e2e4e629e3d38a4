// SPDX-License-Identifier: Apache-2.0

// Package ckpt takes a job from a request to a committed epoch, and back.
//
//	request: MPIX_Checkpoint, ckptctl, a signal, the interval
//	  │
//	  ▼        refused (somebody holds it back): the job goes on, nothing was made
//	agree ───────────────────────────────────────────────────────────────► ignored
//	  │ all ranks: in MPIX_Checkpoint, or no collective is under way (collclock)
//	  ▼        a thread cannot be stopped, an open socket, a child: released
//	stop ──► drain ──► capture ──────────────────────────────────────────► ignored
//	  │ all ranks stand still; threads, files, objects are written down
//	  ▼
//	freeze ──► release        the program goes on; a frozen child holds the memory
//	  │
//	  ▼        disk full, a rank lost, a damaged write: images removed
//	write ───────────────────────────────────────────────────────────────► failed
//	  │ all images on stable storage, digests known to rank 0
//	  ▼
//	commit ──► retire         the manifest is renamed into place: the epoch exists
//
// Every arrow to the right leaves the job running and the last epoch whole. An attempt has one context for
// all stages, which ends at the deadline (rank 0 keeps it), when a rank cannot be reached, or at rank 0's
// word (verdict.go). A rank whose attempt has ended lets its program go on, opens its gates and tells
// rank 0, which tells all. Steps on a disk that does not answer are left to themselves (patience.go). What
// rank 0 says of an epoch is final; a rank whose program is to end after the commit waits for that word.
//
// It owns the order of these stages, what all ranks must agree on, the status that operators see,
// and the restart. It may not know how threads are stopped (Host), which MPI runs (Runtime), how
// bytes are laid out (ckpt/image) or named (ckpt/store), how ranks talk (rails/signaling) or
// operators (ckpt/control).
//
// Locks: Job.turn (one checkpoint at a time) before Job.tries.mu and Job.mu (status and requests); none
// is held while calling the control server.
package ckpt
