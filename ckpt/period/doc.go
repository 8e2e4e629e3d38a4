// SPDX-License-Identifier: Apache-2.0

// Package period says how often to checkpoint, and how often to raise checkpoints to which level.
//
// Three quantities matter with one level: the cost C of one checkpoint (time that it takes from the application),
// the mean time between failures M of the job, and the period T between the beginnings of two
// checkpoints.
//
//	overhead    with a budget p of the run time, T = C/p: a run of length t takes t(1 + C/T).
//	Young       T = sqrt(2 C M) + C minimizes C/T + T/(2M), what checkpoints cost plus what a failure
//	            destroys, half a period on average (Young 1974, first order).
//	Daly        the same to a higher order (Daly 2006): sqrt(2CM) (1 + sqrt(C/2M)/3 + (C/2M)/9), and M
//	            once C reaches 2M.
//
// With several levels a failure of class k is one that needs level k or a higher one. To first order each level then has
// a Young period of its own, sqrt(2 C_k M_k), and the loss is the sum of sqrt(2 C_k/M_k) over the levels that are used;
// a level is worth using if that sum is less with it (Di, Bautista-Gomez, Cappello, "Optimization of a multilevel
// checkpoint model with uncertain execution scales", SC 2014; Benoit, Cavelan, Le Fèvre, Robert, Sun, "Towards optimal
// multi-level checkpointing", IEEE Trans. Computers 66, 2017). That is where the search begins (search.go). What it
// minimizes is the expected time of a pattern of epochs by a Markov chain whose states are the segments between
// checkpoints (as Moody, Bronevetsky, Mohror, de Supinski, "Design, modeling, and evaluation of a scalable multi-level
// checkpointing system", SC 2010), with levels that are reached in the background, some time after the
// checkpoint (chain.go).
//
// A Chooser (choose.go) takes costs as they are measured, and says what holds now.
//
// Owns: these models, how measured costs are averaged, the texts of mean times between failures. Levels are numbers from 1
// to Top here. May not know: what a level is, or anything else; it does no I/O and reads no clock.
package period
