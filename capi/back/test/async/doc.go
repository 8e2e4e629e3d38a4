// SPDX-License-Identifier: Apache-2.0

// Package async tests checkpoints of MPI programs at moments that nobody chose: programs that know
// nothing of checkpoints are saved while messages and collective calls are under way, killed, and
// continued, also under the other MPI, and must end with the result that they have natively.
//
// It owns patterns.c, and io.c, windows.c and epochs.c, about files and windows. It may not
// know the inside of what it tests: it uses ckptrun and ckptctl as a user does.
package async
