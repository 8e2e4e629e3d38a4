// SPDX-License-Identifier: Apache-2.0

// Package lease says which job owns a checkpoint directory, on one node and between nodes:
//
//	DIR/lease/000000000017   the owner: token 17, who it is, and a beat that it changes while it lives
//
// A directory has one owner at most, and every owner has a token greater than all before it. The owner
// is who made the file with the highest token: the file gets its name by link, which one process of all
// nodes succeeds in. It is renewed in place, so that a former owner that wakes up again never makes a
// name anew; readers open the folder, then the file, which is what NFS promises to show them the last
// state for. Nothing depends on the clocks of different machines being equal: who wants the directory
// watches whether the beat changes, by its own clock.
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
// A job may be several processes on the node of rank 0, of which one starts the other: a wrapper, and the MPI
// program. The one that needs the directory takes it from the other, which then has lost nothing (ErrKin).
//
// # Who lives
//
// On the node of the owner (same boot, same numbers of processes) its process says so: a stopped one
// lives, a killed one is gone at once. In another container of that node the lock on the file (flock)
// says so, where the file system has locks. From another node nothing can be known but the beat.
//
// # Fencing
//
// An owner that stood still for longer than the lease, so that another node took the directory, does not
// know it. Check finds out: it is asked before each step that others see. What can be between the
// question and the step is closed by package store, see Store.Fence; Lease.Supposed tells the new owner
// that it is needed.
//
// Owns: DIR/lease and all in it. May not know: epochs, images, MPI, sockets, what owners do.
package lease
