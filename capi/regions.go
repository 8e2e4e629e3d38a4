// SPDX-License-Identifier: Apache-2.0

package main

/*
#include <string.h>
#include "ckpt.h"
*/
import "C"

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/regions"
)

// regionsLog has the job log where the environment says that it shall: standard error is the program's.
func regionsLog(o launch.Options) error {
	if os.Getenv("CKPT_LOG") == "" {
		return nil
	}
	fd, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil // there is none
	}
	log, err := ckpt.NewLog(o.Log, fd)
	if err == nil {
		process.Log = log
	}
	return err
}

// jobOf is the job that saves; nil without one, when nothing is to be done.
func jobOf(job *C.ckpt_job) (*ckpt.Job, error) {
	if !isOpen(job) {
		return nil, errNotOpen
	}
	return process.Job, nil
}

//export ckpt_task_region
func ckpt_task_region(job *C.ckpt_job, rank C.int, base unsafe.Pointer, bytes C.size_t, flags C.uint, e *C.ckpt_error) C.int {
	j, err := jobOf(job)
	if err == nil && flags&^C.CKPT_REGION_CODE != 0 {
		err = errOf(C.CKPT_E_VERSION, "flags %#x of ckpt_task_region are not known to this libckpt", uint(flags))
	}
	if err == nil && j != nil {
		if err = j.TaskRegion(int(rank), regions.Span{Base: uint64(uintptr(base)), Bytes: uint64(bytes), Code: flags&C.CKPT_REGION_CODE != 0}); err != nil {
			err = errOf(C.CKPT_E_ARG, "%v", err)
		}
	}
	return report(e, err)
}

//export ckpt_tasks_saved
func ckpt_tasks_saved(job *C.ckpt_job, saved *C.ckpt_saved, e *C.ckpt_error) C.int {
	j, err := jobOf(job)
	if err == nil && saved == nil {
		err = errOf(C.CKPT_E_ARG, "ckpt_tasks_saved was given no room for its answer")
	}
	if err != nil || j == nil {
		return report(e, err)
	}
	s, is, err := j.Saved()
	if err != nil || !is {
		return report(e, err)
	}
	out := C.ckpt_saved{size: saved.size, epoch: C.int(s.Epoch), ranks: C.int(s.Ranks), processes: C.int(s.Processes)}
	if s.Answers {
		out.called = 1
	}
	C.memcpy(unsafe.Pointer(saved), unsafe.Pointer(&out), min(saved.size, C.sizeof_ckpt_saved))
	report(e, nil)
	return 1
}

//export ckpt_task_load
func ckpt_task_load(job *C.ckpt_job, rank C.int, base *unsafe.Pointer, e *C.ckpt_error) C.int {
	j, err := jobOf(job)
	if err == nil && j == nil {
		err = errOf(C.CKPT_E_STATE, "%s", withoutCkptrun)
	}
	if err != nil {
		return report(e, err)
	}
	at, err := j.LoadTask(int(rank))
	if err == nil && base != nil {
		*(*C.uint64_t)(unsafe.Pointer(base)) = C.uint64_t(at)
	}
	return report(e, err)
}
