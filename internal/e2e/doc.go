// SPDX-License-Identifier: Apache-2.0

// Package e2e runs programs that know nothing of libckpt, natively and under ckptrun, and compares.
//
// It owns the programs (programs/), the ways to build and start them, and the cycles: start, save at a
// random moment, kill, restart, until the program ends. It uses the commands as a user does, so build/bin
// must exist. It may import no package of libckpt but tools of tests.
//
// A campaign (campaign_test.go) disturbs living jobs from the outside, by package disturb, at random moments of
// checkpoints and restarts. Package history then checks what was seen of each job.
//
// Nothing waits without a limit: a process that does not end in time is a failure, and what its threads
// were doing is part of the message. Everything that was started is found again by a mark in its
// environment and ended; a process or file that is left behind is a failure too.
package e2e
