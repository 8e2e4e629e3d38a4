// SPDX-License-Identifier: Apache-2.0

// Package disturb hurts living processes from the outside. They are those that users run: nothing in them
// knows of it.
//
//	mpiexec ... TEST-BINARY ckptrun ...       Listen's address is in the environment
//	               │ Enter: a seccomp filter, whose listener goes to the test; then exec
//	               ▼
//	            ckptrun ── system call ──► the kernel asks the test ──► go on | an error | wait
//
// It owns two ways. The first is the kernel's question to the test before each of some system calls
// (SECCOMP_RET_USER_NOTIF): a Process counts them and does what its Traps say at the n-th, be it an error, a
// pause, or anything else that the test does while the call is held. The second is the other end of a socket
// (pidfd_getfd): a filter on it drops what arrives, as a network that is cut in one direction does, and a
// disconnect resets it.
//
// Of a process with libckpt-core.so in it, the calls that the library's Go code makes are told from those of Go's
// own runtime, which no program in Go survives the failing of, and from all others.
//
// It may not know what the processes do, or what is expected of them. It needs root, or the right to trace
// the processes.
package disturb
