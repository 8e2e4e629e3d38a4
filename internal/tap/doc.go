// SPDX-License-Identifier: Apache-2.0

// Package tap watches other processes from the kernel, with eBPF: it counts and times the calls that they make of
// functions of a library and of the kernel, and sees each byte that passes through their sockets. The processes are not
// stopped, and no code of ours runs in them.
//
//	uprobes of a library   ─► time of entry, by thread ─► at the return: calls, time, by process and function ─► Calls
//	sys_enter, sys_exit    ─► the same for system calls
//	sock_send_length, sock_recv_length ─► a ring: when, who, which socket, how many bytes ─► Sockets
//
// The programs are written as instructions (programs.go), so that nothing is compiled where they run. They need CAP_BPF
// and CAP_PERFMON, or root; errors wrap ErrPrivilege without.
//
// Owns: the programs, their maps, what a kernel must have. May not know: MPI, checkpoints, why the processes are watched.
package tap
