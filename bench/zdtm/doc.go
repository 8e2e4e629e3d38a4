// SPDX-License-Identifier: Apache-2.0

// Zdtm runs the test programs of CRIU, test/zdtm/static of its sources, under ckptrun: each makes something that a process can
// have (files, memory, timers, signals, sockets, locks, limits), says that it is ready, and looks when it gets SIGTERM at what
// became of it. In between it is saved, killed and continued.
//
// It owns how a program is run and what its outcome is called, the known reasons (reasons.txt) and the table. The programs are
// built by the user from a checkout of CRIU (bench/zdtm.sh says how); nothing of them is here. It may not know how ckptrun works, only
// its commands and exit statuses.
package main
