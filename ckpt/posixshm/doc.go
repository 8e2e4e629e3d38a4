// SPDX-License-Identifier: Apache-2.0

// Package posixshm saves files that a stopped program has mapped as shared memory, and that may not be there at a restart:
// those of a file system in memory (shm_open, sem_open, a file of /dev/shm), and those whose name was removed while they were
// mapped, as is usual with both, or that never had one (memfd_create). Mappings of files that stay on a disk are not its matter.
//
// # Saving
//
// All programs of the job are stopped. Each process tells the others which parts of files it may write to, by the kernel's numbers, and
// describes the files of all that it has mapped. The content of each part is in the image of one process.
//
//	Look ──reports of all──► Mark
//
// # Making them again
//
// Each step is collective over all processes of the job, whether they have such files or not, and nobody begins one before
// all have ended the one before:
//
//	Restore ──words of all──► Compare ──► Make ──(descriptors)──► Open ──► Unname ──► Clear ──► File, for each region ──► Done
//
// A file that had a name is taken where it is still there under it. Otherwise the first process that had it mapped makes it,
// provided that all together had all of it: their mappings fill it. It is there before descriptors are opened, which is done as
// for any other file. One without a name has one only until all have opened it.
//
// Owns: which mappings these are, the section of an image with their files, how the processes that shared one share it again. May
// not know: what is in them, when checkpoints are made, how processes tell each other something, descriptors.
package posixshm
