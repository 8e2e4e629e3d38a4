// SPDX-License-Identifier: Apache-2.0

// Package meeting brings the processes of a job together before anything else of theirs runs: it finds out which
// rank this process is, how many there are, and gives them an all-gather. A runtime that is saved with its program
// cannot tell this after a restart, since its memory is that of the former job. So the launcher is asked:
//
//	PMI_FD, or PMI_PORT and PMI_ID   PMI version 1, lines of text: Hydra, Slurm's pmi2                   pmi.go
//	PMIX_RANK or PMIX_NAMESPACE      PMIx, a library behind Options.PMIx: Open MPI, PRRTE, Slurm's pmix  pmix.go
//	CKPT_RANK and CKPT_SIZE,         nobody is there to ask: the ranks meet in the checkpoint directory  directory.go
//	or Slurm's numbers
//	none of them                     one process
//
// Or nobody is asked: a job of processes without MPI brings its numbers (Options.Numbers), and meets in the directory.
//
// # The directory
//
// Rank 0 listens on TCP and writes DIR/.meet, mode 0600: where it listens, and the key that both ends of a connection
// must have. The others read the file and connect. The file may be of a job that was killed: nothing is believed but
// a handshake by somebody who has that key now, and until one succeeds the file is read again. So neither times nor
// names nor numbers of processes decide anything.
//
//	rank 0                                 rank k
//	listens, writes .meet                  reads .meet, connects                (again, until it works)
//	              ◄── handshake (TLS 1.3, key of .meet) ──►
//	              ◄── hello: rank, number of ranks, name of the job, who
//	all have come: removes .meet
//	              ──► welcome, to all      or fault: why there is no meeting, to all
//	              ◄── what rank k gives ── all-gather
//	              ──► what all gave
//
// Processes without a number (Options.Numbers) take part in the meeting that they find, or open one and are rank 0. A
// lock on DIR/.meet.lock lets one at a time look and open; it is of the kernel, and ends with its process.
//
// One rank 0 at a time meets in a directory: another one that finds .meet of a live job is refused. The names of two
// jobs (Slurm's, or CKPT_JOB) keep the ranks of one from the meeting of the other; without names two jobs that start
// in one directory at the same moment are noticed when a rank comes twice, or by their numbers of ranks.
//
// # Locks
//
// host.mu guards who has come. It is held for moments, and nothing is called with it.
//
// Owns: the PMI-1 protocol, DIR/.meet and its lock, and what is said between the ranks of a meeting. May not know: checkpoints,
// images, MPI, what the ranks tell each other.
package meeting
