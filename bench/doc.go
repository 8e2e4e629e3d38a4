// SPDX-License-Identifier: Apache-2.0

// Bench measures what libckpt costs, against the same program without it.
//
// It owns the questions, and the way in which they are asked. Each question has a small C program
// (bench/programs), which times short pieces of code and prints nanoseconds. The ways of running a program
// (natively, under ckptrun, ...) take turns, so that other load of the machine affects all of them. Each
// difference and ratio is taken between runs that are neighbours in time, and the median over the rounds is
// given with its spread. A goal for a difference is compared with the quickest batches of calls, a goal for a
// ratio with the runs in which each rank had a core (speed.go). Results go to bench/results: one Markdown table for people, and one
// JSON file with every round for programs.
//
// A program that fails, or finds a wrong result, fails the run; a slow program never does. Goals are shown
// beside the figures and decide nothing.
//
// It may not know what the answers should be, nor how libckpt works inside: it runs programs, and reads
// the manifest of an epoch.
package main
