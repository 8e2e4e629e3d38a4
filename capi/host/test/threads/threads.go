// SPDX-License-Identifier: Apache-2.0

package threads

/*
#cgo CFLAGS: -I${SRCDIR}/../../../../include -I${SRCDIR}/../.. -std=gnu11 -O1 -Wall
#include <stdlib.h>
#include "check.h"
*/
import "C"

import (
	"errors"
	"unsafe"
)

// check is ckptrun's. The bytes are copied to the end of a piece of memory of their size, so that a sanitizer
// sees who reads behind them.
func check(b []byte) error {
	p := C.malloc(C.size_t(max(len(b), 1)))
	defer C.free(p)
	copy(unsafe.Slice((*byte)(p), len(b)), b)
	var why [300]C.char
	if C.check_threads(p, C.size_t(len(b)), &why[0], C.size_t(len(why))) != 0 {
		return errors.New(C.GoString(&why[0]))
	}
	return nil
}

// sample is a section of two threads, and so many timers, as earlier releases wrote it.
func sample(timers int) []byte { return written(timers, 0) }

// spent is such a section with processor time, as it is written now.
func spent(timers int) []byte { return written(timers, 1) }

func written(timers int, spent C.int) []byte {
	b := make([]byte, 1<<16)
	return b[:C.sample_threads(unsafe.Pointer(&b[0]), C.size_t(len(b)), C.uint(timers), spent)]
}
