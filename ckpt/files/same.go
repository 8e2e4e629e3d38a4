// SPDX-License-Identifier: Apache-2.0

package files

import (
	"os"

	"golang.org/x/sys/unix"
)

const kcmpFile = 0 // KCMP_FILE of <linux/kcmp.h>

// sameDescription tells whether two descriptors of this process share an open file description.
// Without kcmp (kernel built without it, or a sandbox that forbids it) two descriptors of one file
// with equal flags and offsets count as shared: right for all but programs that open a file twice
// the same way and have read equally far in it.
func sameDescription(a, b int, kcmp bool) bool {
	if a == b {
		return true
	}
	if kcmp {
		pid := uintptr(os.Getpid())
		r, _, errno := unix.Syscall6(unix.SYS_KCMP, pid, pid, kcmpFile, uintptr(a), uintptr(b), 0)
		if errno == 0 {
			return r == 0
		}
	}
	var sa, sb unix.Stat_t
	if unix.Fstat(a, &sa) != nil || unix.Fstat(b, &sb) != nil {
		return false
	}
	if sa.Dev != sb.Dev || sa.Ino != sb.Ino || sa.Rdev != sb.Rdev || sa.Mode&unix.S_IFMT != sb.Mode&unix.S_IFMT {
		return false
	}
	if sa.Mode&unix.S_IFMT == 0 {
		// eventfd, epoll and the like share one inode: nothing tells them apart.
		return false
	}
	fa, errA := unix.FcntlInt(uintptr(a), unix.F_GETFL, 0)
	fb, errB := unix.FcntlInt(uintptr(b), unix.F_GETFL, 0)
	if errA != nil || errB != nil || fa != fb {
		return false
	}
	oa, _ := unix.Seek(a, 0, unix.SEEK_CUR)
	ob, _ := unix.Seek(b, 0, unix.SEEK_CUR)
	return oa == ob
}
