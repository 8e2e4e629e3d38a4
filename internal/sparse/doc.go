// SPDX-License-Identifier: Apache-2.0

// Package sparse finds the pages of shared mappings of this process that hold data. Programs map far more than they use: the
// whole address range of a database, a heap shared between processes. Who reads all of it makes the kernel fill
// the rest with zeros, which stay.
//
// Owns: what the kernel is asked for it, and when its answer can be relied upon. May not know: what is done with the pages.
package sparse
