// SPDX-License-Identifier: Apache-2.0

package main

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "pmix.h"
*/
import "C"

import (
	"errors"
	"unsafe"

	"github.com/libckpt/libckpt/ckpt/meeting"
)

// launcherPMIx is the library of a launcher that speaks PMIx, loaded when it is first called.
var launcherPMIx meeting.PMIx = pmix{}

type pmix struct{}

// pmixSays calls f with room for a sentence.
func pmixSays(f func(why *C.char, n C.size_t) C.int) error {
	why := (*C.char)(C.calloc(1, whyBytes))
	defer C.free(unsafe.Pointer(why))
	if f(why, whyBytes) != 0 {
		return errors.New(C.GoString(why))
	}
	return nil
}

func (pmix) Init() (rank, ranks int, err error) {
	var r, n C.uint32_t
	err = pmixSays(func(why *C.char, bytes C.size_t) C.int { return C.pmix_begin(&r, &n, why, bytes) })
	return int(r), int(n), err
}

func (pmix) Put(key string, value []byte) error {
	k, v := C.CString(key), C.CBytes(value)
	defer C.free(unsafe.Pointer(k))
	defer C.free(v)
	return pmixSays(func(why *C.char, n C.size_t) C.int { return C.pmix_put(k, v, C.size_t(len(value)), why, n) })
}

func (pmix) Fence() error {
	return pmixSays(func(why *C.char, n C.size_t) C.int { return C.pmix_fence(why, n) })
}

func (pmix) Get(rank int, key string) ([]byte, error) {
	k := C.CString(key)
	defer C.free(unsafe.Pointer(k))
	var p unsafe.Pointer
	var size C.size_t
	err := pmixSays(func(why *C.char, n C.size_t) C.int { return C.pmix_get(C.uint32_t(rank), k, &p, &size, why, n) })
	if err != nil {
		return nil, err
	}
	defer C.free(p)
	return C.GoBytes(p, C.int(size)), nil
}

func (pmix) Finalize() error {
	return pmixSays(func(why *C.char, n C.size_t) C.int { return C.pmix_end(why, n) })
}
