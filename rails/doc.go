// SPDX-License-Identifier: Apache-2.0

// Package rails is the root of all the ways in which ranks reach each other below the application.
//
//	ckpt (orchestrator), drain, collclock            a runtime that embeds libckpt
//	   │ requests, targets, bookmarks                   │ messages
//	   ▼                                                ▼
//	rails/signaling                                  rails: which network takes a message
//	   libckpt's own control plane:                     │ stated here, and in C for runtimes (capi/embed/rails.c)
//	   TCP ring, shortcuts on demand                    ▼
//	                                                 the runtime's networks
//
// A rail is a network that can be closed before a checkpoint and reopened after it. The signaling
// network is the one that is never closed while the job lives, because it carries the agreement to
// close the others; it is not part of an image, and a restarted job builds a new one.
//
// The package owns the policy of an election (Elect): in which order rails are looked at, which of them
// may take a message, what is asked of a rail that has no endpoint, and how it is said that no rail
// reaches a process. A message that was counted must find the same way in C and here: both are run over
// the scenarios in testdata, and over random ones.
//
// What lives in and below this folder may not know checkpoints, images or MPI: it moves bytes between ranks, or
// says where they go.
package rails
