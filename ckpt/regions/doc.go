// SPDX-License-Identifier: Apache-2.0

// Package regions knows which memory belongs to which rank of a job, where ranks are saved apart from each other and
// from the processes that they live in (regions mode).
//
//	ckpt_task_region ──► Set: rank ──► Spans of memory ──┬─► image.Region: the pages
//	                                                     └─► Table: the section "tasks" of the image
//	a restart, in any number of processes:  Table ──► Spans of a rank ──► back at their addresses ──► Set
//
// Owns: the spans of this process's ranks; the section "tasks" (docs/image-sections.md); what must be true of a program
// whose stacks go on in another process.
// May not know: how pages are read and written (ckpt/image, ckpt/snapshot), epochs, other processes.
package regions
