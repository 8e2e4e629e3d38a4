// SPDX-License-Identifier: Apache-2.0

// Package clockrace is a thread of a program that makes collective calls as fast as it can, for tests
// that race what counts them (include/ckpt/clock.h, as the backs use it) with what reads the counts.
//
// The thread writes to memory that no cache holds before each call, so that its stores become visible
// late, as those of real programs do. The package owns the thread; it may not know who reads, nor how.
package clockrace
