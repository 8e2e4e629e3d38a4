// SPDX-License-Identifier: Apache-2.0

// Package objects keeps the files of epochs in an object store that speaks S3:
//
//	s3://BUCKET/PREFIX/epoch-000003/rank-00000.ckpt   a file of the epoch
//	s3://BUCKET/PREFIX/epoch-000003/manifest.json     put last; without it there is no such epoch
//
// What is put is signed with its SHA-256 and has its MD5, which the store compares with what arrives. The BLAKE3 digest
// of the whole file is kept with the object and by the caller, who gives it when the file is got: what comes back is
// compared with that, whatever the store or the network says.
//
// Each request is made several times, and is given up when no byte moves for a while (Options.Stall). A request
// that was carried out although its answer was lost is recognized by what is there afterwards. What cannot help to be
// tried again (no such bucket, no permission) is told at once, with what to do.
//
// Owns: names in the bucket, requests and how they are repeated, digests of whole files, advice for what stores say.
// May not know: what is in a file or a manifest, which epochs there should be (ckpt/store), levels, jobs, MPI.
package objects
