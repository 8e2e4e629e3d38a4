// SPDX-License-Identifier: Apache-2.0

// Package suites runs other people's MPI programs, which the distribution packages, and some of ours in the
// languages that people use. It runs them natively and under ckptrun without a checkpoint, and compares what
// they computed: residuals, energies, checksums, tables of passed and failed.
//
// It owns the table of programs, their inputs (testdata), and which part of an output is a result. Speed is
// not a result. It may not know how ckptrun works; it sees commands, what they print and the files they write.
package suites
