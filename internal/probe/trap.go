// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cpuProbes ask for processor and kernel.
func cpuProbes() []Probe {
	return []Probe{
		{
			Name: "x86_64 Linux", For: "everything", Needed: true,
			Advice: "libckpt runs on x86_64 Linux only",
			Run: func(context.Context) (Outcome, string) {
				var u unix.Utsname
				if err := unix.Uname(&u); err != nil {
					return Unknown, err.Error()
				}
				detail := fmt.Sprintf("%s, kernel %s", runtime.GOARCH, unix.ByteSliceToString(u.Release[:]))
				if runtime.GOARCH != "amd64" {
					return No, detail
				}
				return Yes, detail
			},
		},
		{
			Name: "FSGSBASE", For: "libraries below MPI whose code libckpt does not understand",
			Advice: "needs Linux 5.9 or later, not booted with nofsgsbase, and a processor of 2012 or later; without it a job " +
				"runs as fast, but stops at the start where such a library is loaded",
			Run: func(context.Context) (Outcome, string) {
				v, ok, err := auxv(26) // AT_HWCAP2
				if err != nil {
					return Unknown, err.Error()
				}
				if !ok || v&2 == 0 { // HWCAP2_FSGSBASE
					return No, fmt.Sprintf("AT_HWCAP2 is 0x%x", v)
				}
				return Yes, ""
			},
		},
	}
}

// auxv reads an entry of the auxiliary vector.
func auxv(key uint64) (value uint64, found bool, err error) {
	p, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		return 0, false, err
	}
	for ; len(p) >= 16; p = p[16:] {
		if binary.LittleEndian.Uint64(p) == key {
			return binary.LittleEndian.Uint64(p[8:]), true, nil
		}
	}
	return 0, false, nil
}

// From linux/prctl.h and linux/seccomp.h.
const (
	prSetSyscallUserDispatch = 59
	seccompSetModeFilter     = 1
	seccompGetActionAvail    = 2
	seccompRetTrap           = 0x00030000
	seccompRetAllow          = 0x7fff0000
)

// trapProbes ask how system calls can be caught.
func trapProbes() []Probe {
	return []Probe{
		{
			Name: "seccomp filter", For: "catching system calls (ckptrun --trap seccomp, the default)",
			Advice: "the kernel needs CONFIG_SECCOMP_FILTER and a container must allow the system call seccomp " +
				"(Docker: --security-opt seccomp=unconfined); or use ckptrun --trap sud",
			Run: func(context.Context) (Outcome, string) { return onOwnThread(seccompFilter) },
		},
		{
			Name: "Syscall User Dispatch", For: "catching system calls (ckptrun --trap sud)",
			Advice: "needs Linux 5.11 or later; --trap seccomp does without",
			Run:    func(context.Context) (Outcome, string) { return onOwnThread(userDispatch) },
		},
		{
			Name: "membarrier", For: "asking for a checkpoint without a fence in every MPI call",
			Advice: "needs Linux 4.14 or later with CONFIG_MEMBARRIER",
			Run: func(context.Context) (Outcome, string) {
				const query, expedited, register = 0, 8, 16
				have, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, query, 0, 0)
				if errno != 0 {
					return byErrno(errno)
				}
				if have&expedited == 0 || have&register == 0 {
					return No, fmt.Sprintf("the kernel offers commands 0x%x", have)
				}
				return Yes, ""
			},
		},
		{
			Name: "kcmp", For: "telling which descriptors share one open file",
			Advice: "needs CONFIG_KCMP, and permission to trace (some containers forbid it); without it two " +
				"descriptors of one open file are restored as two",
			Run: func(context.Context) (Outcome, string) {
				pid := uintptr(os.Getpid())
				const file = 0
				if _, _, errno := unix.Syscall6(unix.SYS_KCMP, pid, pid, file, 0, 0, 0); errno != 0 && errno != unix.EBADF {
					return byErrno(errno)
				}
				return Yes, ""
			},
		},
	}
}

// byErrno: what the error of a system call says about a feature.
func byErrno(errno error) (Outcome, string) {
	if errors.Is(errno, unix.ENOSYS) || errors.Is(errno, unix.EINVAL) || errors.Is(errno, unix.ENOTTY) ||
		errors.Is(errno, unix.EPERM) || errors.Is(errno, unix.EACCES) {
		return No, errno.Error()
	}
	return Unknown, errno.Error()
}

// seccompFilter installs a filter that allows everything. Runs on a thread of its own.
func seccompFilter() (Outcome, string) {
	action := uint32(seccompRetTrap)
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, seccompGetActionAvail, 0,
		uintptr(unsafe.Pointer(&action))); errno != 0 {
		return byErrno(errno)
	}
	filter := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: seccompRetAllow}}
	prog := unix.SockFprog{Len: 1, Filter: &filter[0]}
	install := func() error {
		_, _, errno := unix.Syscall(unix.SYS_SECCOMP, seccompSetModeFilter, 0, uintptr(unsafe.Pointer(&prog)))
		runtime.KeepAlive(filter)
		if errno != 0 {
			return errno
		}
		return nil
	}
	err := install()
	if err == nil {
		return Yes, "with privilege"
	}
	if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
		return byErrno(err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return byErrno(err)
	}
	if err := install(); err != nil {
		return byErrno(err)
	}
	return Yes, "without privilege"
}

// userDispatch turns dispatch on with a range that allows everything, and off again. Runs on a thread
// of its own.
func userDispatch() (Outcome, string) {
	const off, on = 0, 1
	if err := unix.Prctl(prSetSyscallUserDispatch, on, 0, ^uintptr(0), 0); err != nil {
		return byErrno(err)
	}
	if err := unix.Prctl(prSetSyscallUserDispatch, off, 0, 0, 0); err != nil {
		return Unknown, "cannot be turned off: " + err.Error()
	}
	return Yes, ""
}
