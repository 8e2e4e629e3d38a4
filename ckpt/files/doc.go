// SPDX-License-Identifier: Apache-2.0

// Package files saves the open files of the application and opens them again after a restart.
//
// It owns: what an open file description is (a regular file at an offset, a pipe with its contents,
// a timer, ...), which descriptor numbers share it, and the rules for putting it back: files that
// were being written are cut back to their saved size, input files must be what they were, the
// launcher's stdin, stdout and stderr become those of the new launcher.
//
// It may not know MPI, images, stores or processes other than the one it runs in. It runs in the
// lower half of the process that is saved: it sees the application's descriptors under their own
// numbers (0 to [MaxNumber]), and every descriptor that it opens itself lies above them, because the
// host keeps all lower numbers occupied.
//
// Capture is called while all threads of the application are stopped. It never changes a
// descriptor: offsets stay, pipes are copied and not read. Restore runs in two passes. The first
// looks at every file and changes nothing; only when all of them pass does the second one open,
// cut and place them. So a refused restart leaves open files as they are.
//
// What the application does to names, and to files that it has closed, is in a log that the host writes
// (Host.Made): [ReadChanges] and [ReadAppended] read it, [NewPlan] says when each process of a job undoes
// what, and [Undoing] does it, before the first pass.
package files
