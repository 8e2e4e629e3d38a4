// SPDX-License-Identifier: Apache-2.0

// Package posixshm saves files that a stopped program has mapped as shared memory, and that may not be there at a restart:
// those of a file system in memory (shm_open, sem_open, a file of /dev/shm), and those whose name was removed while they were
// mapped, as is usual with both, or that never had one (memfd_create). Mappings of files that stay on a disk are not its matter.
//
// # Saving
//
// Each process looks at its own mappings, and describes the files by the kernel's numbers. Who shares a file is not asked: a
// restart sees it by these numbers. Each has the content of what it has mapped in its image, as of any shared memory.
//
//	Mark
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
