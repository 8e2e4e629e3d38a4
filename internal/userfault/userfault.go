// SPDX-License-Identifier: Apache-2.0

package userfault

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/userfaultfd.h.
const (
	uffdAPI        = 0xaa
	uffdioAPI      = 0xc018aa3f
	uffdioRegister = 0xc020aa00
	uffdioWake     = 0x8010aa02
	uffdioCopy     = 0xc028aa03
	uffdioZeropage = 0xc020aa04
	uffdioProtect  = 0xc018aa06 // UFFDIO_WRITEPROTECT
	eventPagefault = 0x12
	faultWrite     = 1
	messageBytes   = 32
	newDescriptor  = 0xaa00 // USERFAULTFD_IOC_NEW of /dev/userfaultfd
	userModeOnly   = 1      // UFFD_USER_MODE_ONLY
)

// What Register wants to hear of.
const (
	Missing = 1 << 0 // pages that are touched and not there
	Writes  = 1 << 1 // pages that are written and protected
)

// Async has the kernel itself take the protection off a page that is written (Linux 6.7 and later): nobody waits, and
// PAGEMAP_SCAN tells afterwards.
const Async = 1 << 15 // UFFD_FEATURE_WP_ASYNC

// Device gives a userfaultfd to those who may open it (Linux 6.1 and later).
const Device = "/dev/userfaultfd"

// ErrForbidden says that the kernel gives this process no userfaultfd that also serves the kernel's own accesses, as
// of read into the program's memory.
var ErrForbidden = errors.New("userfaultfd is not allowed")

// Advice is what to do when ErrForbidden was returned.
const Advice = "let the user open " + Device + " (chmod or a udev rule), set vm.unprivileged_userfaultfd=1, or give CAP_SYS_PTRACE; a container must allow the system call"

// Open makes a userfaultfd, as the system call or by the device. The caller closes it.
func Open() (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno == unix.EPERM || errno == unix.ENOSYS || errno == unix.EACCES {
		dev, err := unix.Open(Device, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, fmt.Errorf("%w (%w; %s: %w)", ErrForbidden, errno, Device, err)
		}
		defer func() { _ = unix.Close(dev) }()
		fd, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(dev), newDescriptor, unix.O_CLOEXEC|unix.O_NONBLOCK)
	}
	if errno != 0 {
		return -1, fmt.Errorf("%w (%w)", ErrForbidden, errno)
	}
	if err := begin(int(fd), 0); err != nil {
		return -1, fmt.Errorf("%w (%w)", ErrForbidden, err)
	}
	return int(fd), nil
}

// OpenAsync makes one that only notes writes, which any user may have. The caller closes it; then nothing is protected
// any more.
func OpenAsync() (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK|userModeOnly, 0, 0)
	if errno != 0 {
		return -1, os.NewSyscallError("userfaultfd", errno)
	}
	if err := begin(int(fd), Async); err != nil {
		return -1, fmt.Errorf("userfaultfd that notes writes by itself, which Linux 6.7 has: %w", err)
	}
	return int(fd), nil
}

// begin agrees with the kernel on features; fd is closed if that fails.
func begin(fd int, features uint64) error {
	api := [3]uint64{uffdAPI, features, 0}
	if err := ioctl(fd, uffdioAPI, unsafe.Pointer(&api)); err != nil {
		_ = unix.Close(fd)
		return os.NewSyscallError("UFFDIO_API", err)
	}
	return nil
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); e != 0 {
		return e
	}
	return nil
}

// Register has fd hear of what happens in a range of private memory; what is Missing or Writes.
func Register(fd int, start, bytes, what uint64) error {
	arg := [4]uint64{start, bytes, what, 0}
	return ioctl(fd, uffdioRegister, unsafe.Pointer(&arg))
}

// Unprotect takes the protection off all pages of a range that is registered for Writes.
func Unprotect(fd int, start, bytes uint64) error {
	arg := [3]uint64{start, bytes, 0}
	return ioctl(fd, uffdioProtect, unsafe.Pointer(&arg))
}

// Wake lets threads go on that wait for pages of the range.
func Wake(fd int, start, bytes uint64) {
	arg := [2]uint64{start, bytes}
	_ = ioctl(fd, uffdioWake, unsafe.Pointer(&arg))
}

// Copy puts a copy of from in place, and says how many bytes it has copied.
func Copy(fd int, addr uint64, from []byte) (uint64, error) {
	arg := [5]uint64{addr, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(from)))), uint64(len(from)), 0, 0}
	err := ioctl(fd, uffdioCopy, unsafe.Pointer(&arg))
	runtime.KeepAlive(from)
	if err == nil {
		return uint64(len(from)), nil
	}
	if n := int64(arg[4]); n > 0 {
		return uint64(n), err
	}
	return 0, err
}

// Zero puts pages of zeros in place.
func Zero(fd int, addr, bytes uint64) error {
	arg := [4]uint64{addr, bytes, 0, 0}
	return ioctl(fd, uffdioZeropage, unsafe.Pointer(&arg))
}

// Touch is one page that somebody waits for.
type Touch struct {
	Addr  uint64
	Write bool
}

// Next takes one from the descriptor; ok is false when there is none.
func Next(fd int) (f Touch, ok bool, err error) {
	var b [messageBytes]byte
	n, err := unix.Read(fd, b[:])
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return f, false, nil
	case err != nil:
		return f, false, os.NewSyscallError("read of userfaultfd", err)
	case n != messageBytes || b[0] != eventPagefault:
		return f, false, nil
	}
	le := binary.LittleEndian
	return Touch{Addr: le.Uint64(b[16:]), Write: le.Uint64(b[8:])&faultWrite != 0}, true, nil
}
