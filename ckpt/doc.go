// SPDX-License-Identifier: Apache-2.0

// Package ckpt takes a job from a request to a committed epoch, and back.
//
//	request: MPIX_Checkpoint, ckptctl, a signal, the interval
//	  │
//	  ▼        nobody waits any longer, a rank cannot be reached
//	agree ───────────────────────────────────────────────────────────────► ignored
//	  │ all ranks are in MPIX_Checkpoint, or no collective is under way
//	  ▼        a callback fails, something does not become quiet: rails opened
//	close ───────────────────────────────────────────────────────────────► ignored
//	  │ an embedded runtime has nothing under way, and its rails are closed, on all ranks
//	  ▼        a thread cannot be stopped, the runtime holds it back: released
//	stop ────────────────────────────────────────────────────────────────► ignored
//	  │ no thread of the program runs, on any rank
//	  ▼        messages do not arrive, an open socket, a child: released
//	drain ───────────────────────────────────────────────────────────────► ignored
//	  │ no message is under way; every rank is captured but for its memory
//	  ▼
//	snapshot               the program goes on, unless it is to end; a frozen child holds its memory
//	  │ this rank's memory stays as it is: in a frozen copy, or the program stands
//	  ▼        disk full, a rank lost, a damaged write: images removed
//	write ───────────────────────────────────────────────────────────────► failed
//	  │ this rank's image is on stable storage, or has failed
//	  ▼        a rank has no image, the directory is another job's
//	commit ──────────────────────────────────────────────────────────────► failed
//	  │ the epoch exists, and rank 0 has said so
//	  ▼
//	answer                 the request is answered; the program ends, if it is to
//
// Only a runtime in the program's half (whole mode, embedded.go) has rails to close; they are opened when the program
// goes on.
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
// checkpoint.go has this way from top to bottom, and says what runs on which thread; safestate.go has how a request
// waits for a safe state. stages.go is the table of the
// stages; the other files have the work of the stages.
//
// Locks: Job.asking (one request at a time) before Job.turn (one checkpoint at a time) before Job.tries.mu and
// Job.mu (status and requests). None is held while the control server is called.
package ckpt
