// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memoryProbes ask how memory can be read, watched and copied.
func memoryProbes() []Probe {
	return []Probe{
		{
			Name: "reading memory through /proc", For: "writing images", Needed: true,
			Advice: "/proc must be mounted, and the kernel must let a process read its own memory " +
				"(proc_mem.force_override must not be \"never\")",
			Run: func(context.Context) (Outcome, string) { return procMem() },
		},
		{
			Name: "process_vm_readv", For: "system calls of the program, whose memory it names", Needed: true,
			Advice: "a container's seccomp profile must allow process_vm_readv and process_vm_writev, as those of Docker and Podman do",
			Run:    func(context.Context) (Outcome, string) { return memoryCalls() },
		},
		{
			Name: "tracing one's own children", For: "writing while the application runs (--snapshot cow)",
			Advice: "kernel.yama.ptrace_scope must be 0, 1 or 2 with CAP_SYS_PTRACE: " +
				"sysctl kernel.yama.ptrace_scope=1; or use ckptrun --snapshot stop",
			Run: func(context.Context) (Outcome, string) { return ptraceScope() },
		},
		{
			Name: "PAGEMAP_SCAN", For: "finding touched pages quickly",
			Advice: "needs Linux 6.7 or later; without it /proc/PID/pagemap is read, which is slower",
			Run:    func(context.Context) (Outcome, string) { return pagemapScan() },
		},
		{
			Name: "changed pages", For: "epochs that have only what changed (ckptrun --full every N)",
			Run: func(context.Context) (Outcome, string) { return changedPages() },
		},
		{
			Name: "userfaultfd", For: "copying on write without a second process",
			Advice: "needs root, CAP_SYS_PTRACE, access to /dev/userfaultfd or " +
				"sysctl vm.unprivileged_userfaultfd=1; without it a copy-on-write process is used",
			Run: func(context.Context) (Outcome, string) { return userfault() },
		},
		{
			Name: "pages on demand", For: "continuing a program before its memory is read (ckptrun --restart-mode lazy)",
			Advice: "userfaultfd must also serve the kernel's own accesses, as in read(): let the user open " +
				"/dev/userfaultfd (Linux 6.1 and later), sysctl vm.unprivileged_userfaultfd=1, or give " +
				"CAP_SYS_PTRACE; a container must allow the system call; without it all memory is read first",
			Run: func(context.Context) (Outcome, string) { return onDemand() },
		},
		{
			Name: "transparent huge pages", For: "restoring memory four times as fast",
			Advice: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)",
			Run: func(context.Context) (Outcome, string) {
				return setting("/sys/kernel/mm/transparent_hugepage/enabled",
					func(s string) bool { return !strings.Contains(s, "[never]") })
			},
		},
		{
			Name: "memory overcommit", For: "the copy-on-write snapshot of a large process",
			Advice: "vm.overcommit_memory is 2: a snapshot then needs as much free commit limit as the job has " +
				"memory; set it to 0 or use ckptrun --snapshot stop",
			Run: func(context.Context) (Outcome, string) {
				out, value := setting("/proc/sys/vm/overcommit_memory", func(s string) bool { return s != "2" })
				return out, overcommit(value)
			},
		},
		{
			Name: "free memory", For: "pages that the application changes while its image is written",
			Advice: "less than a tenth of the memory is available: use ckptrun --snapshot stop",
			Run:    func(context.Context) (Outcome, string) { return freeMemory() },
		},
	}
}

// overcommit says what a value of vm.overcommit_memory means for the frozen copy of a process.
func overcommit(value string) string {
	switch value {
	case "0":
		return "0: a copy of a process is refused only when it obviously cannot fit"
	case "1":
		return "1: a copy of a process is never refused"
	case "2":
		return "2: a copy of a process needs as much free commit limit as the process has memory"
	}
	return value
}

// setting reads a file of one line and judges it.
func setting(path string, good func(string) bool) (Outcome, string) {
	p, err := os.ReadFile(path)
	if err != nil {
		return Unknown, err.Error()
	}
	s := strings.TrimSpace(string(p))
	if good(s) {
		return Yes, s
	}
	return No, s
}

// procMem reads a page without access rights, as images have to.
func procMem() (Outcome, string) {
	m, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return Unknown, err.Error()
	}
	defer func() { _ = unix.Munmap(m) }()
	copy(m, "probe")
	addr := int64(uintptr(unsafe.Pointer(&m[0])))
	f, err := os.Open("/proc/self/mem")
	if err != nil {
		return No, err.Error()
	}
	defer func() { _ = f.Close() }()
	got := make([]byte, 5)
	if _, err := f.ReadAt(got, addr); err != nil {
		return No, err.Error()
	}
	if err := unix.Mprotect(m, unix.PROT_NONE); err != nil {
		return Unknown, err.Error()
	}
	if _, err := f.ReadAt(got, addr); err != nil {
		return No, "pages without access rights cannot be read: " + err.Error()
	}
	if !bytes.Equal(got, []byte("probe")) {
		return No, "what is read is not what was written"
	}
	return Yes, ""
}

// memoryCalls has the kernel copy a byte within this process, both ways.
func memoryCalls() (Outcome, string) {
	from, to := [1]byte{1}, [1]byte{}
	local := []unix.Iovec{{Base: &to[0], Len: 1}}
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&from[0])), Len: 1}}
	if _, err := unix.ProcessVMReadv(os.Getpid(), local, remote, 0); err != nil {
		return No, "process_vm_readv: " + err.Error()
	}
	if _, err := unix.ProcessVMWritev(os.Getpid(), local, remote, 0); err != nil {
		return No, "process_vm_writev: " + err.Error()
	}
	runtime.KeepAlive(&from)
	return Yes, ""
}

func ptraceScope() (Outcome, string) {
	const path = "/proc/sys/kernel/yama/ptrace_scope"
	p, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return Yes, "no Yama"
	}
	if err != nil {
		return Unknown, err.Error()
	}
	switch s := strings.TrimSpace(string(p)); s {
	case "0", "1":
		return Yes, "ptrace_scope " + s
	case "2":
		if os.Geteuid() == 0 {
			return Yes, "ptrace_scope 2, as root"
		}
		return No, "ptrace_scope 2"
	default:
		return No, "ptrace_scope " + s
	}
}

func pagemapScan() (Outcome, string) {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return Unknown, err.Error()
	}
	defer func() { _ = f.Close() }()
	// struct pm_scan_arg: its size, then an empty range.
	arg := [12]uint64{0: 96, 11: 1 << 3}
	const pagemapScan = 0xc0606610
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), pagemapScan, uintptr(unsafe.Pointer(&arg))); errno != 0 {
		return byErrno(errno)
	}
	return Yes, ""
}

func userfault() (Outcome, string) {
	const userModeOnly = 1
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	detail := ""
	if errno == unix.EPERM {
		fd, _, errno = unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK|userModeOnly, 0, 0)
		if errno == 0 {
			_ = unix.Close(int(fd))
			return No, "only for accesses of the process itself, not of the kernel for it"
		}
	}
	if errno != 0 {
		return byErrno(errno)
	}
	defer func() { _ = unix.Close(int(fd)) }()
	// struct uffdio_api: version, features, ioctls.
	api := [3]uint64{0: 0xaa}
	const uffdioAPI = 0xc018aa3f
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uffdioAPI, uintptr(unsafe.Pointer(&api))); errno != 0 {
		return Unknown, "UFFDIO_API: " + errno.Error()
	}
	const writeProtect, writeProtectAsync = 1 << 0, 1 << 15
	if api[1]&writeProtect == 0 {
		return No, "without write protection"
	}
	if api[1]&writeProtectAsync != 0 {
		detail = "with asynchronous write protection"
	}
	return Yes, detail
}

// onDemand asks as package ckpt/lazy does.
func onDemand() (Outcome, string) {
	how := "by the system call"
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno != 0 {
		how = "by /dev/userfaultfd"
		dev, err := unix.Open("/dev/userfaultfd", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return No, fmt.Sprintf("userfaultfd: %v; /dev/userfaultfd: %v", errno, err)
		}
		defer func() { _ = unix.Close(dev) }()
		const newDescriptor = 0xaa00
		if fd, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(dev), newDescriptor, unix.O_CLOEXEC|unix.O_NONBLOCK); errno != 0 {
			return No, fmt.Sprintf("/dev/userfaultfd: %v", errno)
		}
	}
	_ = unix.Close(int(fd))
	return Yes, how
}

func freeMemory() (Outcome, string) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return Unknown, err.Error()
	}
	defer func() { _ = f.Close() }()
	kib := map[string]uint64{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		name, rest, _ := strings.Cut(sc.Text(), ":")
		if words := strings.Fields(rest); len(words) > 0 {
			if n, err := strconv.ParseUint(words[0], 10, 64); err == nil {
				kib[name] = n
			}
		}
	}
	total, free := kib["MemTotal"], kib["MemAvailable"]
	if total == 0 {
		return Unknown, "/proc/meminfo names no MemTotal"
	}
	detail := fmt.Sprintf("%.1f of %.1f GiB available", float64(free)/(1<<20), float64(total)/(1<<20))
	if free < total/10 {
		return No, detail
	}
	return Yes, detail
}
