// SPDX-License-Identifier: Apache-2.0

// Package image writes and reads the memory image of one process: a file that holds named sections
// of metadata and the pages of the memory regions. docs/image-format.md specifies the bytes; this
// package is the only implementation.
//
//	        Input ──► plan: which pages hold data ──► jobs of one chunk each
//	                                                     │ workers: read, cut zeros, compress, digest
//	                    ┌────────┬──────────┬────────────▼───────────┬───────┬────────┐
//	PATH.tmp (O_EXCL)   │ header │ sections │ chunks, in any order   │ index │ footer │ ─► fsync, rename
//	                    └────────┴──────────┴────────────┬───────────┴───────┴────────┘
//	        Open: everything but the chunks is checked   │
//	        File.Read, File.Verify ◄── workers: read, check, decompress
//
// A digest covers every byte of the file. Each chunk has two XXH3-128 digests, of the bytes as stored and
// of the content. One BLAKE3-256 digest covers header, sections, index and footer; since the index has the
// digests of the chunks, this one stands for the whole file, and a manifest records it. The digests find
// accidents, not forgery: whoever can write the image can write the manifest, too.
//
// Owns: the format, how memory of a process is read, compression, digests.
// May not know: MPI, ranks, what the sections mean, directories and epochs (ckpt/store), how the
// process was stopped or its regions were found (ckpt/snapshot).
package image
