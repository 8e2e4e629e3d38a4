// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func tempDir() string { return os.TempDir() }

// createAndUnlink makes an unnamed file where the file system has no O_TMPFILE.
func createAndUnlink(dir string) (int, error) {
	f, err := os.CreateTemp(dir, ".ckpt-unnamed-*")
	if err != nil {
		return -1, err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return -1, err
	}
	return aside(int(f.Fd()))
}

// aside makes a copy of a descriptor with a number that is not the application's.
func aside(fd int) (int, error) {
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, MaxNumber+1)
	if errors.Is(err, unix.EINVAL) { // the limit is lower
		high, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, fewNumbers)
	}
	return high, err
}

// makeEventfd makes an eventfd with a 64-bit counter; the system call that creates it takes 32 bits.
func makeEventfd(counter uint64, flags int) (int, error) {
	fd, err := unix.Eventfd(uint(min(counter, math.MaxUint32)), flags)
	if err != nil || counter <= math.MaxUint32 {
		return fd, err
	}
	rest := counter - math.MaxUint32
	if _, err := unix.Write(fd, unsafe.Slice((*byte)(unsafe.Pointer(&rest)), 8)); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// tfdSetTicks is TFD_IOC_SET_TICKS of <linux/timerfd.h>.
const tfdSetTicks = 0x40085400

// makeTimer makes a timerfd that expires after the time that was left.
func makeTimer(t *Timer, flags int) (int, error) {
	fd, err := unix.TimerfdCreate(t.Clock, flags)
	if err != nil {
		return -1, err
	}
	left := t.Left
	if t.Ticks > 0 && !setTicks(fd, t.Ticks) {
		left = 1 // a kernel that cannot set the count: expire once more, at once
	}
	spec := unix.ItimerSpec{Interval: unix.NsecToTimespec(t.Interval), Value: unix.NsecToTimespec(left)}
	if err := unix.TimerfdSettime(fd, 0, &spec, nil); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("set %d ns every %d ns: %w", left, t.Interval, err)
	}
	// Setting the time clears the count, so it is set after as well.
	if t.Ticks > 0 && left == t.Left && !setTicks(fd, t.Ticks) {
		unix.Close(fd)
		return -1, errors.New("set the count of expirations")
	}
	return fd, nil
}

func setTicks(fd int, ticks uint64) bool {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), tfdSetTicks, uintptr(unsafe.Pointer(&ticks)))
	return errno == 0
}

func pwriteFull(fd int, b []byte, offset int64) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(fd, b, offset)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		b, offset = b[n:], offset+int64(n)
	}
	return nil
}
