// SPDX-License-Identifier: Apache-2.0

// Package sysv saves the System V shared memory (shmget, shmat), semaphores and message queues of stopped programs, and makes
// them again after a restart.
//
// # Saving
//
// All programs of the job are stopped. Every process tells which segments it has attached or made, and in how many pieces:
// so each finds out who shares a segment, and whether somebody outside the job has it attached, too. The first process
// that has a segment saves its content, once. Semaphores and queues, which nobody attaches, are saved by a process that
// has made them, or has found them by their key; who else used them last the kernel tells.
//
//	Look ──reports of all──► Match ──► Mark, Content, Encode
//
// # Making them again
//
//	Restore ──words of all──► Compare ──► Make ──what was made, of all──► Take ──► Undo ──all──► Settle ──► Attach, for each region ──► Done
//
// What the kernel adds to semaphores when a process ends (SEM_UNDO) it does not tell, so whoever emulates the calls counts it
// ([Undo]). Each process does again what its end undoes, and only then are the values those of the image.
//
// An id that the program holds stays what it was: whoever emulates its calls translates it by [Restored.Table], a table that
// is the same in all processes that were on one node. A segment that a killed job has left behind is taken again when it
// is the one of the image, or one that an earlier restart from the same directory has made (the note).
//
// Owns: what these objects are, who shares them, the section of an image with them. May not know: how calls are emulated, images,
// when checkpoints are made, how processes tell each other something.
package sysv
