// SPDX-License-Identifier: Apache-2.0

package pagemap

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Extent is a range of addresses, in whole pages.
type Extent struct{ Start, End uint64 }

// Append adds a range to an ascending list, joining it with the last one where they meet.
func Append(list []Extent, e Extent) []Extent {
	if n := len(list); n > 0 && list[n-1].End == e.Start {
		list[n-1].End = e.End
		return list
	}
	return append(list, e)
}

// Category is a set of properties of pages.
type Category uint64

// From linux/fs.h; x/sys/unix does not have them.
const (
	Allowed Category = 1 << 0 // a userfaultfd notes writes (PAGE_IS_WPALLOWED)
	Written Category = 1 << 1 // not protected against writes by one (PAGE_IS_WRITTEN)
	Present Category = 1 << 3 // PAGE_IS_PRESENT
	Swapped Category = 1 << 4 // PAGE_IS_SWAPPED
	Zero    Category = 1 << 5 // the shared page of zeros (PAGE_IS_PFNZERO)
	Huge    Category = 1 << 6 // PAGE_IS_HUGE
	Guard   Category = 1 << 8 // MADV_GUARD_INSTALL, cannot be read (PAGE_IS_GUARD, Linux 6.15)

	ioctlScan   = 0xc0606610 // PAGEMAP_SCAN
	flagProtect = 1 << 0     // PM_SCAN_WP_MATCHING
	flagAllowed = 1 << 1     // PM_SCAN_CHECK_WPASYNC
)

// Query is a question about the pages from Start to End.
type Query struct {
	Start, End uint64
	// A page is meant when its properties, those in Not inverted, have all of All and one of Any; no Any: all such.
	Not, All, Any Category
	// Tell are the properties by which pages are told apart.
	Tell Category
	// Protect protects the pages that are meant and Written, in the step that tells of them.
	Protect bool
	// MustAllow makes it EPERM, before anything else is done with a mapping, if that is not Allowed.
	MustAllow bool
}

// arg is struct pm_scan_arg.
type arg struct {
	size, flags, start, end, walkEnd uint64
	vec, vecLen, maxPages            uint64
	inverted, mask, anyOf, ret       Category
}

// pageRegion is struct page_region.
type pageRegion struct {
	start, end uint64
	categories Category
}

// Scan calls each, in order, for ranges of pages that are meant. The error is ENOTTY where the kernel does not know
// the ioctl, and EINVAL where it does not know a property. After an error with Protect, pages may be protected of which
// each was not told.
func Scan(f *os.File, q Query, each func(Extent, Category)) error {
	vec := make([]pageRegion, 512)
	a := arg{size: uint64(unsafe.Sizeof(arg{})), end: q.End, vec: uint64(uintptr(unsafe.Pointer(&vec[0]))), vecLen: uint64(len(vec)),
		inverted: q.Not, mask: q.All | q.Not, anyOf: q.Any, ret: q.Tell}
	if q.Protect {
		a.flags |= flagProtect
	}
	if q.MustAllow {
		a.flags |= flagAllowed
	}
	for start := q.Start; start < q.End; {
		a.start, a.walkEnd = start, 0
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), ioctlScan, uintptr(unsafe.Pointer(&a)))
		runtime.KeepAlive(vec)
		if errno == unix.EAGAIN && !q.Protect { // of pages that were protected and not told of nobody would know
			continue
		}
		if errno != 0 {
			return errno
		}
		for _, r := range vec[:n] {
			each(Extent{r.start, r.end}, r.categories)
		}
		if a.walkEnd <= start { // should not happen, and would make an endless loop
			return unix.EIO
		}
		start = a.walkEnd
	}
	return nil
}
