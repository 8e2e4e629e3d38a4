// SPDX-License-Identifier: Apache-2.0

// Package verbs is what the ranks of a job say to each other of their InfiniBand verbs, and when they are done: the
// questions of a rank to the owner of a queue pair or of a key, the turns of a drain, the steps of a restart. The objects
// themselves, and all that is known of adapters, are behind Device (capi/verbs).
//
// # A drain
//
// All programs are stopped. In each turn every rank does what it can (Device.Turn), which tells how much it has still
// to do and what the peers of its queue pairs must hear; it is over when nobody has anything left:
//
//	turn 1   in: nothing          out: sends and receives of each queue pair    left: unknown, for connected ones
//	turn n   in: what peers said  out: the same, as of now                      left: what is still under way
//
// What is left does not grow once a rank has heard its peers, since no program runs. So all zero in one turn is the end.
//
// Owns: the messages of questions and turns. May not know: adapters, queue pairs' meaning, sockets, images, threads.
package verbs
