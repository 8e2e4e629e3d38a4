// SPDX-License-Identifier: Apache-2.0

package main

/*
#include <string.h>
#include "ckpt.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/lease"
	"github.com/libckpt/libckpt/vid"
)

// Error is an error with the code that C gets.
type Error struct {
	code C.int
	text string
}

func (e *Error) Error() string { return e.text }

func errOf(code C.int, format string, args ...any) error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

// report puts err into a ckpt_error, as far as its size goes, and returns its code.
func report(e *C.ckpt_error, err error) C.int {
	code := codeOf(err)
	if e == nil {
		return code
	}
	if e.size >= C.size_t(unsafe.Offsetof(e.code)+unsafe.Sizeof(e.code)) {
		e.code = code
	}
	if text := C.size_t(unsafe.Offsetof(e.message)); e.size > text {
		putText(&e.message[0], min(e.size-text, C.size_t(len(e.message))), err)
	}
	return code
}

func codeOf(err error) C.int {
	var coded *Error
	var refused *control.RefusedError
	var corrupt *image.CorruptError
	var version *image.VersionError
	var machine *image.ArchError
	var held *lease.HeldError
	switch {
	case err == nil:
		return C.CKPT_OK
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &refused), errors.As(err, &held):
		return C.CKPT_E_STATE
	case errors.As(err, &corrupt), errors.Is(err, vid.ErrCorrupt), ckpt.EpochLost(err):
		return C.CKPT_E_CORRUPT
	case errors.As(err, &version):
		return C.CKPT_E_VERSION
	case errors.As(err, &machine):
		return C.CKPT_E_NOTSUP
	case ckpt.LostPeer(err):
		return C.CKPT_E_PEER
	case errors.Is(err, vid.ErrStale):
		return C.CKPT_E_ARG
	}
	return C.CKPT_E_SYSTEM
}

// Sizes of the structures in version 1.0 of ckpt.h, the least that a runtime may have. They never change.
const (
	configSize10   = 40
	opsSize10      = 88
	objectsSize10  = 24
	messagesSize10 = 56
	syncSize10     = 40
	stateSize10    = 48
)

// taken copies a structure that begins with its size. Fields that the runtime's structure lacks at its end stay
// zero. Fields that the runtime's structure has beyond ours must be zero, since nothing here would use them.
func taken(to unsafe.Pointer, mine, least uintptr, from unsafe.Pointer, what string) error {
	size := uintptr(*(*C.size_t)(from))
	if size < least {
		return errOf(C.CKPT_E_VERSION, "the runtime's %s has %d bytes, and version 1.0 of ckpt.h has %d: its size is not set, or it was compiled against an older header", what, size, least)
	}
	C.memcpy(to, from, C.size_t(min(size, mine)))
	if size > mine {
		for i, b := range unsafe.Slice((*byte)(from), size)[mine:] {
			if b != 0 {
				return errOf(C.CKPT_E_VERSION, "the runtime uses a part of %s (at byte %d) that this libckpt does not know: it was compiled against a newer ckpt.h than %d.%d", what, int(mine)+i, C.CKPT_API_MAJOR, C.CKPT_API_MINOR)
			}
		}
	}
	return nil
}
