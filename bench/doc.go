// SPDX-License-Identifier: Apache-2.0

// Bench measures what libckpt costs, against the same program without it.
//
// It owns the questions: a small C program for each (bench/programs), which times short pieces of code
// and prints nanoseconds, and the way in which they are asked. The ways of running a program (natively,
// under ckptrun, ...) take turns, so that whatever else the machine does meets all of them; each
// difference and ratio is taken between neighbours in time, and the median over the rounds is told with its
// spread. A goal of a difference is compared with the quickest batches of calls, one of a ratio with the quick
// runs (speed.go). What was found goes to bench/results, one Markdown table for people and one JSON file with
// every round for programs.
//
// A program that fails, or finds a wrong result, fails the run; a slow one never does. Goals stand
// beside the figures and decide nothing.
//
// It may not know what the answers should be, nor how libckpt works inside: it runs programs, and reads
// the manifest of an epoch.
package main
