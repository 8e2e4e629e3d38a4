// SPDX-License-Identifier: Apache-2.0

// Command mpichsuite runs MPICH's test suite, which its user has built (bench/mpich_suite.sh), as a suite for
// checkpoints: each program natively, under ckptrun above each MPI, and saved at one of its MPI calls
// (bench/programs/moment.c), after which it goes on, or ends or is killed and goes on under either MPI.
//
// It owns the lists of programs, the ways of running one, what counts as passing (what the program itself
// says, as natively), and the table. What was found is kept line by line, and a run that was interrupted
// goes on where it was.
//
// It may not know what the programs do, nor how libckpt works inside: it runs commands, reads what they
// print and looks whether an epoch is there.
package main
