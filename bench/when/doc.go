// SPDX-License-Identifier: Apache-2.0

// Package when plays jobs that fail, to see what the periods that package period chooses are worth.
//
// A job has work to do, takes checkpoints, raises them in the background, one after the other, and loses work when a failure
// comes. Failures come from a trace: a list of times and classes, drawn with a seed or read from a file. The same
// traces are played with the chooser, which knows costs only as it measures them, and with fixed periods and
// policies, among which the best is searched. Nothing of the models of package period is used here.
//
// Owns: traces and their file format, the play, the search in hindsight, the table of results. May not know: MPI, images,
// files of a job.
package when
