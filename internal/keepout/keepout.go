// SPDX-License-Identifier: Apache-2.0

package keepout

/*
#cgo CFLAGS: -I${SRCDIR}/../../include -std=gnu11 -O2 -Wall
#include "keepout.h"
*/
import "C"

// Calls is how often Go's runtime has asked for memory here, Hints how many of these gave an address that
// is not for it.
func Calls() uint64 { return uint64(C.keepout_calls()) }

// Hints: see Calls.
func Hints() uint64 { return uint64(C.keepout_hints()) }

// mapAt maps bytes without access as Go's runtime would, with those flags of mmap.
func mapAt(addr, bytes uint64, flags int) (at uint64, ok bool) {
	at = uint64(C.keepout_map(C.uint64_t(addr), C.uint64_t(bytes), C.int(flags)))
	return at, at != ^uint64(0)
}
