// SPDX-License-Identifier: Apache-2.0

// Command mpichsuite runs MPICH's test suite, which its user has built (bench/mpich_suite.sh), as a suite for
// checkpoints. Each program is run natively, under ckptrun above each MPI, and with a checkpoint at one of its
// MPI calls (bench/programs/moment.c). After the checkpoint the program goes on; or it ends or is killed, and
// is restarted under one of the MPIs.
//
// It owns the lists of programs, the ways of running one, what counts as passing (the program itself says so,
// as in a native run), and the table. Results are kept line by line, and an interrupted run continues where it
// was.
//
// It may not know what the programs do, nor how libckpt works inside: it runs commands, reads what they
// print and looks whether an epoch is there.
package main
