// SPDX-License-Identifier: Apache-2.0

package clockrace

/*
#cgo CFLAGS: -I${SRCDIR}/../../include -std=gnu11 -O2 -Wall
#include "race.h"
*/
import "C"

import (
	"errors"
	"runtime"
	"unsafe"
)

// Thread is the one thread of this package that makes calls.
type Thread struct{}

// Start makes the thread, which calls on communicator comm of the tables at address (vid.Tables).
func Start(address uintptr, comm uint32) (Thread, error) {
	tables := *(*unsafe.Pointer)(unsafe.Pointer(&address)) // memory that is not Go's
	if C.race_start(tables, C.uint32_t(comm)) == 0 {
		return Thread{}, errors.New("clockrace: no memory or no thread")
	}
	return Thread{}, nil
}

// Gate waits until a call has seen that a checkpoint is pending, and waits too. It returns the last
// call that has not seen it.
func (Thread) Gate() (fast uint64) {
	for C.race_gate() == 0 {
		runtime.Gosched()
	}
	return uint64(C.race_fast())
}

// GoOn lets the waiting call go on. No checkpoint may be pending any more.
func (Thread) GoOn() { C.race_go_on() }

// End ends the thread.
func (Thread) End() { C.race_end() }
