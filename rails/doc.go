// SPDX-License-Identifier: Apache-2.0

// Package rails is the root of all the ways in which ranks reach each other below the application.
//
//	ckpt (orchestrator), drain, collclock
//	   │ requests, targets, bookmarks
//	   ▼
//	rails/signaling   libckpt's own control plane: TCP ring, shortcuts on demand
//
// A rail is a network that can be closed before a checkpoint and reopened after it. The signaling
// network is the one that is never closed while the job lives, because it carries the agreement to
// close the others; it is not part of an image, and a restarted job builds a new one.
//
// What lives below this folder may not know checkpoints, images or MPI: it moves bytes between ranks.
package rails
