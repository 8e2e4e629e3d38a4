// SPDX-License-Identifier: Apache-2.0

package disturb

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// addressName is the variable that says where a listener is expected.
const addressName = "CKPT_DISTURB"

// names are the system calls that the kernel asks the test about: those of a checkpoint that touch disk, network,
// memory and processes. Calls that only wait, or end something (close), are not among them.
var names = map[int32]string{
	unix.SYS_READ: "read", unix.SYS_WRITE: "write", unix.SYS_PREAD64: "pread64", unix.SYS_PWRITE64: "pwrite64",
	unix.SYS_OPENAT: "openat", unix.SYS_MKDIRAT: "mkdirat", unix.SYS_RENAMEAT: "renameat",
	unix.SYS_RENAMEAT2: "renameat2", unix.SYS_LINKAT: "linkat", unix.SYS_UNLINKAT: "unlinkat",
	unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_FTRUNCATE: "ftruncate",
	unix.SYS_FALLOCATE: "fallocate", unix.SYS_LSEEK: "lseek", unix.SYS_FSTAT: "fstat",
	unix.SYS_NEWFSTATAT: "newfstatat", unix.SYS_FCNTL: "fcntl", unix.SYS_IOCTL: "ioctl",
	unix.SYS_GETDENTS64: "getdents64", unix.SYS_READLINKAT: "readlinkat", unix.SYS_STATFS: "statfs",
	unix.SYS_COPY_FILE_RANGE: "copy_file_range", unix.SYS_FLOCK: "flock",
	unix.SYS_PROCESS_VM_READV: "process_vm_readv", unix.SYS_MMAP: "mmap", unix.SYS_MUNMAP: "munmap",
	unix.SYS_MPROTECT: "mprotect", unix.SYS_MINCORE: "mincore", unix.SYS_MEMFD_CREATE: "memfd_create",
	unix.SYS_CLONE: "clone", unix.SYS_UNSHARE: "unshare", unix.SYS_PIPE2: "pipe2", unix.SYS_EVENTFD2: "eventfd2",
	unix.SYS_SOCKET: "socket", unix.SYS_BIND: "bind", unix.SYS_LISTEN: "listen", unix.SYS_CONNECT: "connect",
	unix.SYS_ACCEPT4: "accept4", unix.SYS_GETSOCKNAME: "getsockname", unix.SYS_GETPEERNAME: "getpeername",
	unix.SYS_SETSOCKOPT: "setsockopt", unix.SYS_GETSOCKOPT: "getsockopt", unix.SYS_EPOLL_CTL: "epoll_ctl",
}

// program is the filter: it asks about the calls above, and allows all others.
func program() []unix.SockFilter {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
	)
	numbers := make([]int, 0, len(names))
	for n := range names {
		numbers = append(numbers, int(n))
	}
	slices.Sort(numbers)
	p := []unix.SockFilter{
		{Code: load, K: 4}, // architecture
		{Code: equal, K: unix.AUDIT_ARCH_X86_64, Jt: 0, Jf: uint8(1 + len(numbers))},
		{Code: load, K: 0}, // number
	}
	for i, n := range numbers {
		p = append(p, unix.SockFilter{Code: equal, K: uint32(n), Jt: uint8(len(numbers) - i)})
	}
	return append(p, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW}, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_USER_NOTIF})
}

// Enter is for the first line of a program's main, or TestMain. In a process that was started to be
// disturbed, Enter gives the kernel's questions to the test and executes the command in the arguments;
// elsewhere it does nothing. When Enter cannot do this, the process ends with an error.
func Enter() error {
	address := os.Getenv(addressName)
	if address == "" {
		return nil
	}
	return fmt.Errorf("become a process that is disturbed: %w", become(address, os.Args[1:]))
}

// become returns only when it fails.
//
//go:norace
func become(address string, argv []string) error {
	if len(argv) == 0 {
		return fmt.Errorf("no command")
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, addressName+"=") })
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: address})
	if err != nil {
		return err
	}
	file, err := conn.File()
	if err != nil {
		return err
	}
	socket := file.Fd()    // blocking
	runtime.LockOSThread() // the filter is this thread's, and then the program's
	code := program()
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	rank, pid := rankOf(os.Getenv), os.Getpid()
	said := []byte(fmt.Sprint(rank, " ", pid))
	rights := unix.UnixRights(-1)
	iov := unix.Iovec{Base: &said[0], Len: uint64(len(said))}
	msg := unix.Msghdr{Iov: &iov, Iovlen: 1, Control: &rights[0], Controllen: uint64(len(rights))}
	listener, err := install(&prog)
	if err != nil {
		return fmt.Errorf("seccomp filter with a listener (root may, on Linux 5.5 and later): %w", err)
	}
	// From here to the test's answer nobody answers the kernel: nothing may be asked, so no Go that could
	// need memory.
	*(*int32)(unsafe.Pointer(&rights[unix.CmsgLen(0)])) = int32(listener)
	_, _, e := unix.RawSyscall(unix.SYS_SENDMSG, socket, uintptr(unsafe.Pointer(&msg)), 0)
	if e != 0 {
		return e
	}
	var ack [1]byte
	if _, _, e := unix.RawSyscall(unix.SYS_READ, socket, uintptr(unsafe.Pointer(&ack[0])), 1); e != 0 || ack[0] != 1 {
		return fmt.Errorf("the test does not take the listener: %v", e)
	}
	_ = unix.Close(listener) // the test's is the only one: its end is the processes'
	return syscall.Exec(argv[0], argv, env)
}

//go:norace
func install(prog *unix.SockFprog) (int, error) {
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	var e unix.Errno
	// Go's threads get signals all the time: a call that waits for an answer shall not begin anew for each.
	for _, f := range []uintptr{flags | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, flags} {
		for range 2 {
			var fd uintptr
			if fd, _, e = unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, f, uintptr(unsafe.Pointer(prog))); e == 0 {
				return int(fd), nil
			}
			if e != unix.EACCES {
				break
			}
			_, _, _ = unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
		}
	}
	return -1, e
}

// rankOf is the rank that the launchers of both MPIs give a process, -1 without one.
func rankOf(getenv func(string) string) int {
	for _, name := range []string{"PMI_RANK", "OMPI_COMM_WORLD_RANK"} {
		if n, err := strconv.Atoi(getenv(name)); err == nil {
			return n
		}
	}
	return -1
}
