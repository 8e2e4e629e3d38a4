// SPDX-License-Identifier: Apache-2.0

// Package cycle runs MPI programs of tests through cycles of saving, killing and continuing.
//
// It owns the launchers of the two MPIs, the ranks it starts and their end, and the moments at which
// they are saved. It may not know what the programs do: a test gives it a command and gets its result
// back, and ckptrun and ckptctl are used as a user does.
package cycle
