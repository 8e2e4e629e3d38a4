// SPDX-License-Identifier: Apache-2.0

// Package written knows which pages of this process's private memory were not written since the last image, without
// reading them: the kernel notes the first write to each page (userfaultfd's asynchronous write protection, asked for
// with PAGEMAP_SCAN; Linux 6.7 and later).
//
// Owns: the protection of pages, and when what it tells can be relied on. May not know: what an image is made of, why a
// program is stopped, MPI.
package written
