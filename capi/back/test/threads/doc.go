// SPDX-License-Identifier: Apache-2.0

// Package threads tests checkpoints of MPI programs with several threads: OpenMP and POSIX threads
// under MPI_THREAD_FUNNELED, SERIALIZED and MULTIPLE, more of them than processors, blocked in calls
// of all kinds, made and joined meanwhile; saved at moments that nobody chose, killed, and continued
// under the same MPI and the other one.
//
// It owns threads.c and which patterns of it run where. It may not know the inside of what it tests.
package threads
