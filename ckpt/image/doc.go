// SPDX-License-Identifier: Apache-2.0

// Package image writes and reads the memory image of one process: a file that holds named sections
// of metadata and the pages of the memory regions. The bytes are specified in docs/image-format.md;
// this package is its one implementation.
//
//	        Input ──► plan: which pages hold data ──► jobs of one chunk each
//	                                                     │ workers: read, cut zeros, compress, digest
//	                    ┌────────┬──────────┬────────────▼───────────┬───────┬────────┐
//	PATH.tmp (O_EXCL)   │ header │ sections │ chunks, in any order   │ index │ footer │ ─► fsync, rename
//	                    └────────┴──────────┴────────────┬───────────┴───────┴────────┘
//	        Open: everything but the chunks is checked   │
//	        File.Read, File.Verify ◄── workers: read, check, decompress
//
// Every byte of the file is covered: chunks by two XXH3-128 digests each (of the bytes as stored and
// of the content), header, sections, index and footer by one BLAKE3-256 digest, which therefore
// stands for the whole file and is what a manifest records. The digests find accidents, not forgery:
// who can write the image can write the manifest too.
//
// Owns: the format, how memory of a process is read, compression, digests.
// May not know: MPI, ranks, what the sections mean, directories and epochs (ckpt/store), how the
// process was stopped or its regions were found (ckpt/snapshot).
package image
