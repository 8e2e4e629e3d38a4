// SPDX-License-Identifier: Apache-2.0

// Package backs owns where the backs of libckpt lie, which MPI each was compiled for, which one a launcher's ranks need,
// and how one is compiled for another MPI. A back says of itself what it is, in a section of its file.
//
// It may not know what a back does, how it is loaded, processes and checkpoints.
package backs
