// SPDX-License-Identifier: Apache-2.0

// Package signaling is libckpt's own control plane: messages and collectives between the ranks of a
// job, over TCP, beside whatever network the job itself uses.
//
//	               card, all-gathered by the caller (MPI, PMI, a file, ...)
//	Listen ──► Endpoint ─────────────────────────────────────► Join ──► Network
//
//	      0 ───── 1           Each rank keeps a link to its two neighbours on the ring. A message
//	    ╱  ╲       ╲          goes to the linked rank that is nearest to its target by distance on
//	   7    ╲       2         the ring; since a neighbour on the ring is always nearer, it arrives.
//	   │      ╲     │         A link to another rank (a shortcut: 0 to 4 here) is made when a
//	   6       ╲    3         collective needs it or when messages keep going there, and stays.
//	    ╲        ╲ ╱
//	      5 ───── 4           Collectives run over one binomial tree rooted at 0, on direct links.
//
// The package owns its sockets, the bytes on them, and noticing that ranks are lost. It knows nothing of
// checkpoints, MPI or threads of the application. Payloads are bytes; kinds and tags are numbers that
// the caller chooses. The package is pure Go on package net.
//
// # Trust
//
// A card carries a public key (Ed25519). The private half never leaves its rank and is new in each start of
// a job. Links are TLS 1.3 connections. On a link each end shows a certificate with its key, and accepts only
// the key of the other's card (package handshake). Links are bound to the digest of all cards, so ranks that
// were given different cards cannot connect. Cards hold no secret, so whoever reads the cards learns nothing.
// Whoever can change cards while they are gathered can join the job; but cards travel over the job's own
// bootstrap, which the job trusts anyway. Strangers can connect to the listening port; they are dropped after
// a bounded time and at a bounded cost. Ranks of the job trust each other.
//
// Endpoints listen on loopback and on all interfaces. When the cards show that all ranks are on one
// host, the second listener is closed: such a job has no port open to the network.
//
// # Delivery
//
// Messages of one kind from one rank to another arrive once and in order, however they are routed:
// frames are numbered end to end, and the receiver sorts. A sender that is more than a window ahead
// of its receiver waits in Send. Frames in transit are never refused, so rings of full buffers cannot
// block each other; the windows bound how many there are.
//
// # Links
//
// A link outlives its connections. When a connection ends another is made, and frames that had not arrived
// are sent again: both ends count the frames of the link (link.go), so that frames arrive once and in order.
// The layers above a link (routes, streams and collectives) do not notice.
//
// # Missing and lost
//
// A rank is missing when nothing was heard of it for Config.Silence while this process was running (a
// process that was stopped does not blame the others for its own absence). A rank that notices this tells
// all others by flooding (reach.go), and tells them again when the missing rank is back. Nothing fails:
// messages to a missing rank wait. Callers that do not want to wait have OnReach, and contexts.
//
// A rank is lost when it leaves without the others, or when its host refuses connections at its addresses,
// because then its process has ended. All ranks are told of the loss too, and every rank's Network fails: as
// with MPI, the loss of one rank is the end of the network. All calls that wait return a LostError, which
// names the rank.
//
// # Descriptors
//
// All sockets are close-on-exec. Links are shut down, not only closed, so that a forked child which
// still holds the descriptor does not keep the connection alive. But a child that outlives a rank which was
// killed without warning does keep its connections alive: then the rank is missing, not lost.
//
// # Locks
//
//	Network.mu            links, streams, queues, boxes; never held while calling out or blocking
//	└── link.mu           one link's queue of frames that the peer may not have
//	Guard.mu              (package handshake) independent of both
package signaling
