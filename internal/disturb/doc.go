// SPDX-License-Identifier: Apache-2.0

// Package disturb makes faults in living processes from the outside. The processes are those that users run,
// and nothing in them is prepared for it.
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
// In a process with libckpt-core.so, calls of the library's Go code are told apart from those of Go's own runtime,
// and from all others. When a call of Go's runtime fails, no program in Go survives.
//
// It may not know what the processes do, or what is expected of them. It needs root, or the right to trace
// the processes.
package disturb
