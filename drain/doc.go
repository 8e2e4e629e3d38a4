// SPDX-License-Identifier: Apache-2.0

// Package drain decides when no message is under way between the ranks of a stopped job, and knows
// what an image keeps of messages.
//
//	counters ──► Notices ──► (one to each rank that was sent to) ──► Ledger
//	                                                                   │ Missing: none?
//	   receive what arrives, count it, look again ◄────────────────────┤
//	                                                                   ▼
//	                                  section "messages" of the image (Section)
//
// A lane is a direction between two ranks on one communicator. Both its ends count over the whole run:
// a message counts as sent when its send is posted, as received when its receive is complete. In a safe
// state nobody posts anything, so a lane is empty exactly when both counts are equal. A rank tells only
// those to which it has ever sent, and hears only from those that have sent to it. If it hears nothing of a
// lane, it compares its count with 0: a lane that received more than was sent means that the counters are
// wrong, and then no image may be made.
//
// Claims and their answers travel once the network is empty: they say which drained messages belong to
// synchronous sends (capi/back/image/claim.c).
//
// The package owns lanes, the notices about them, the form of claims, and the format of the section. It may not
// know MPI, how a notice travels, how a message is received, files, threads or time: it imports none of net, os,
// time and C.
package drain
