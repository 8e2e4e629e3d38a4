// SPDX-License-Identifier: Apache-2.0

package main

/*
#include <string.h>
#include "ckpt.h"
*/
import "C"

import (
	"errors"
	"syscall"
	"unsafe"

	"github.com/libckpt/libckpt/ckpt/shm"
)

// segmentsOf are the shared segments of the job; an error says why there can be none.
func segmentsOf(job *C.ckpt_job) (*shm.Segments, error) {
	s, err := signalsOf(job)
	if err != nil {
		return nil, err
	}
	return s.Segments(), nil
}

// shmError gives an error of a shared segment the code that C gets.
func shmError(err error) error {
	for _, one := range []struct {
		kind error
		code C.int
	}{{shm.ErrArgument, C.CKPT_E_ARG}, {shm.ErrState, C.CKPT_E_STATE}, {shm.ErrPeer, C.CKPT_E_PEER}, {shm.ErrNodes, C.CKPT_E_NOTSUP}} {
		if errors.Is(err, one.kind) {
			return errOf(one.code, "%s", err)
		}
	}
	return err
}

//export ckpt_core_shm_make
func ckpt_core_shm_make(job *C.ckpt_job, c *C.ckpt_shm, path *C.char, bytes C.size_t, e *C.ckpt_error) C.int {
	s, err := segmentsOf(job)
	if err != nil {
		return report(e, err)
	}
	if c.flags&^C.CKPT_SHM_ZERO != 0 {
		return report(e, errOf(C.CKPT_E_VERSION, "ckpt_shm has flags that this libckpt does not know: %#x", uint(c.flags)))
	}
	spec := shm.Spec{Name: C.GoStringN(c.name, C.int(C.strnlen(c.name, shm.MaxName+1))), Bytes: uint64(c.bytes), Zero: c.flags&C.CKPT_SHM_ZERO != 0}
	if c.n > 0 {
		for _, p := range unsafe.Slice(c.processes, int(c.n)) {
			spec.Processes = append(spec.Processes, int(p))
		}
	}
	file, err := s.Make(spec)
	if err != nil {
		return report(e, shmError(err))
	}
	out := unsafe.Slice((*byte)(unsafe.Pointer(path)), int(bytes)) // which is long enough for any name
	out[copy(out[:len(out)-1], file)] = 0
	return report(e, nil)
}

//export ckpt_core_shm_mapped
func ckpt_core_shm_mapped(job *C.ckpt_job, name *C.char, at unsafe.Pointer, failure C.int, e *C.ckpt_error) C.int {
	s, err := segmentsOf(job)
	if err == nil {
		var why error
		if failure != 0 {
			why = syscall.Errno(failure)
		}
		err = shmError(s.Mapped(C.GoString(name), uint64(uintptr(at)), why))
	}
	return report(e, err)
}

//export ckpt_core_shm_unmapping
func ckpt_core_shm_unmapping(job *C.ckpt_job, name *C.char, at *unsafe.Pointer, bytes *C.size_t) C.int {
	s, err := segmentsOf(job)
	if err != nil {
		return codeOf(err)
	}
	where, length, err := s.Unmapping(C.GoString(name))
	if err != nil {
		return codeOf(shmError(err))
	}
	*(*uint64)(unsafe.Pointer(at)), *bytes = where, C.size_t(length)
	return C.CKPT_OK
}

//export ckpt_core_shm_unmapped
func ckpt_core_shm_unmapped(job *C.ckpt_job, name *C.char) C.int {
	s, err := segmentsOf(job)
	if err == nil {
		err = shmError(s.Unmapped(C.GoString(name)))
	}
	return codeOf(err)
}
