// SPDX-License-Identifier: Apache-2.0

// Package soak saves, kills and continues MPI programs at random moments, for hours if one likes, and
// compares what they print in the end with what they print natively.
//
// It owns the list of programs, the lives that they lead, and the numbers that result. The programs are
// those in programs/ (above all the generator of random MPI programs in programs/random), examples/heat, and
// other people's, whose commands, inputs and results belong to internal/suites. It uses ckptrun and ckptctl
// as a user does; it may not know any other package of libckpt but the helpers of internal/e2e.
//
// A life is drawn from one seed: which program under which MPI, what happens to it, and when. The same
// seed draws the same life; the moments shift with the load of the machine, so that a failure may need
// several tries.
//
// A hang never counts as a success. Nothing waits without a limit, and a life that exceeds its limit is a
// failure, which is reported with `ckptctl status` and with what all threads were doing.
package soak
