// SPDX-License-Identifier: Apache-2.0

// Package threads runs ckptrun's check of the threads in an image, which is C, under Go's fuzzing. It owns
// samples of such bytes; it may not know what becomes of them.
package threads
