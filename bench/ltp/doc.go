// SPDX-License-Identifier: Apache-2.0

// Ltp runs programs of the Linux Test Project natively and under ckptrun, where each is to end the same way. They ask the kernel for
// everything it offers, with wrong arguments, too: what a program may notice of ckptrun, they notice. Those of the Open POSIX Test
// Suite in it are mostly single processes that wait; with -saved, each is run twice more and saved while it waits.
//
// It owns how a program is run, when two runs are called the same, the known reasons (reasons.txt) and the table. The programs are
// built by the user from a checkout (bench/ltp.sh says how); nothing of them is here. Other suites whose programs are in such lists can be
// run the same way, as the tests of threads of the GNU C library are (bench/glibc.sh, with reasons in glibc.txt). It may not know how ckptrun works.
package main
