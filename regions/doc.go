// SPDX-License-Identifier: Apache-2.0

// Package regions saves and continues programs that say what their state is: pure Go ones, with neither MPI nor
// ckptrun. Each rank protects pieces of memory under numbers of its own; all ranks together write them as an epoch in a
// directory, and the next start, after whatever ended this one, puts them back:
//
//	job, err := regions.Open(ctx, "ckpt", regions.Alone(), regions.Options{})
//	job.Protect(0, field)
//	job.Protect(1, counter)
//	epoch, err := job.Recover(ctx) // ErrNone: a fresh start
//	for ... {
//		job.Checkpoint(ctx)
//	}
//	job.Close(ctx)
//
//	           Protect             Checkpoint
//	Open ───► armed ◄──┐ ───────────────────────► writing ───► armed ...
//	             └─────┘ Recover, RecoverOne: before the first checkpoint
//
// An epoch is committed when the image of each rank is on stable storage, or it does not exist; a job that is killed at
// any moment leaves the last committed one. The directory belongs to one job at a time, and ckptctl knows what is in it.
//
// Ranks are processes, or goroutines of one: whatever has an all-gather (Comm). C programs reach the same by
// mpix_checkpoint.h.
//
// Owns: the calls of such programs. May not know: how epochs are made, written and found (ckpt).
package regions
