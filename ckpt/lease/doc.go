// SPDX-License-Identifier: Apache-2.0

// Package lease says which job owns a checkpoint directory, on one node and between nodes:
//
//	DIR/lease/000000000017   the owner: token 17, who it is, and a beat that it changes while it lives
//
// A directory has one owner at most, and every owner has a token greater than all before it. The owner is the
// process that made the file with the highest token: the file gets its name by link, and only one process of
// all nodes succeeds in that. The file is renewed in place, so that a former owner that wakes up again never
// makes a name anew. Readers open the folder, then the file; NFS promises to show them the last state then.
// The clocks of different machines need not be equal: a process that wants the directory watches, by its own
// clock, whether the beat changes.
//
//	         Take: there is none, it was released,
//	         its process is gone (same node),
//	         or the beat stood still for the lease (other node)
//	(free) ───────────────────────────────────────────────────► owner ──► Release, or its end
//	                                                              │
//	                                                              └─ a higher token is there: LostError,
//	                                                                 for good
//
//	starting  the owner has the directory and nothing else yet
//	running   its program runs
//	ending    MPI is finalized; the program still runs
//	released  nobody owns the directory. The file stays, so that tokens grow
//
// A job may have two processes on the node of rank 0, one of which starts the other: a wrapper, and the MPI
// program. The process that needs the directory takes it from the other one; for that one this is no loss (ErrKin).
//
// # Who lives
//
// On the owner's node (same boot, same numbers of processes) the owner's process tells whether the owner lives:
// a stopped process lives, a killed one is gone at once. In another container of that node the lock on the file
// (flock) tells, where the file system has locks. From another node nothing is known but the beat.
//
// # Fencing
//
// If an owner stood still for longer than the lease and another node took the directory, the owner does not know
// that. Check finds out: it is called before each step that others see. An owner may also stand still between
// Check and the step. Package store handles that (Store.Fence); Lease.Supposed tells the new owner that this is
// needed.
//
// Owns: DIR/lease and all in it. May not know: epochs, images, MPI, sockets, what owners do.
package lease
