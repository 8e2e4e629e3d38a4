// SPDX-License-Identifier: Apache-2.0

// Package period says how often to checkpoint.
//
// Three quantities matter: the cost C of one checkpoint (time that it takes from the application),
// the mean time between failures M of the job, and the period T between the beginnings of two
// checkpoints.
//
//	overhead    with a budget p of the run time, T = C/p: a run of length t takes t(1 + C/T).
//	Young       T = sqrt(2 C M) + C minimizes C/T + T/(2M), what checkpoints cost plus what a failure
//	            destroys, half a period on average (Young 1974, first order).
//	Daly        the same to a higher order (Daly 2006): sqrt(2CM) (1 + sqrt(C/2M)/3 + (C/2M)/9), and M
//	            once C reaches 2M.
//
// Owns: these formulas. May not know: anything else; it does no I/O and reads no clock.
package period
