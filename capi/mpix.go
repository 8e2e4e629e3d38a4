// SPDX-License-Identifier: Apache-2.0

package main

/*
#include <stddef.h>
*/
import "C"

import (
	"unsafe"

	"github.com/libckpt/libckpt/ckpt"
)

// The functions of mpix_checkpoint.h for a program that was started without ckptrun. Under ckptrun
// the program's half holds another library of this name, which calls through the gate
// (capi/front/stub.c).

const mpiErrArg = 12

const withoutCkptrun = "the program was not started by ckptrun"

//export MPIX_Checkpoint
func MPIX_Checkpoint(state *C.int) C.int {
	if state == nil {
		return mpiErrArg
	}
	*state = C.int(ckpt.StateIgnore)
	return 0
}

//export MPIX_Checkpoint_reason
func MPIX_Checkpoint_reason(text *C.char, bytes C.size_t) C.int {
	if text == nil || bytes == 0 {
		return mpiErrArg
	}
	putString(text, bytes, withoutCkptrun)
	return 0
}

//export MPIX_Checkpoint_protect
func MPIX_Checkpoint_protect(id C.int, base unsafe.Pointer, bytes C.size_t) C.int {
	_, _, _ = id, base, bytes
	return 0
}

//export MPIX_Checkpoint_recover
func MPIX_Checkpoint_recover(state *C.int) C.int { return MPIX_Checkpoint(state) }
