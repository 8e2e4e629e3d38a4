// SPDX-License-Identifier: Apache-2.0

package main

/*
#include <string.h>
#include "ckpt.h"

int ckpt_core_signal_next(ckpt_job *job, unsigned *kind, int *from, void *bytes, size_t *n);
int ckpt_core_ignore_fd(ckpt_job *job, int fd, int on);
int ckpt_core_tasks_left(ckpt_job *job);
*/
import "C"

import (
	"context"
	"os"
	"unsafe"

	"github.com/libckpt/libckpt/ckpt"
)

// signalsOf is the network of the runtime's own messages; an error says why there is none.
func signalsOf(job *C.ckpt_job) (*ckpt.Signals, error) {
	if !isOpen(job) {
		return nil, errNotOpen
	}
	if s := opened.signals; s != nil {
		return s, nil
	}
	if process.Job != nil && process.Job.Signals() != nil {
		return process.Job.Signals(), nil
	}
	return nil, errOf(C.CKPT_E_NOTSUP, "the signaling network is for runtimes that are linked with libckpt, not for backs")
}

//export ckpt_allgather
func ckpt_allgather(job *C.ckpt_job, tag C.uint64_t, mine, all unsafe.Pointer, bytes C.size_t, e *C.ckpt_error) C.int {
	s, err := signalsOf(job)
	if err == nil && tag >= 1<<62 {
		err = errOf(C.CKPT_E_ARG, "tag %#x is not below 2^62", uint64(tag))
	}
	if err != nil {
		return report(e, err)
	}
	list, err := s.Allgather(context.Background(), uint64(tag), cBytes(mine, bytes))
	if err != nil {
		return report(e, err)
	}
	out := unsafe.Slice((*byte)(all), len(list)*int(bytes))
	for r, b := range list {
		if len(b) != int(bytes) {
			return report(e, errOf(C.CKPT_E_ARG, "process %d gives %d bytes to an all-gather, this one %d", r, len(b), int(bytes)))
		}
		copy(out[r*int(bytes):], b)
	}
	return report(e, nil)
}

//export ckpt_barrier
func ckpt_barrier(job *C.ckpt_job, tag C.uint64_t, e *C.ckpt_error) C.int {
	s, err := signalsOf(job)
	if err == nil && tag >= 1<<62 {
		err = errOf(C.CKPT_E_ARG, "tag %#x is not below 2^62", uint64(tag))
	}
	if err == nil {
		err = s.Barrier(context.Background(), uint64(tag))
	}
	return report(e, err)
}

//export ckpt_signal_send
func ckpt_signal_send(job *C.ckpt_job, to C.int, kind C.uint, bytes unsafe.Pointer, n C.size_t, e *C.ckpt_error) C.int {
	s, err := signalsOf(job)
	if err == nil && (kind < ckpt.SignalFirst || kind > ckpt.SignalLast || n > ckpt.SignalBytes || to < 0 || int(to) >= s.Processes()) {
		err = errOf(C.CKPT_E_ARG, "a signal of kind %#x with %d bytes to process %d of %d: kinds are %#x to %#x, and at most %d bytes", uint(kind),
			uint64(n), int(to), s.Processes(), ckpt.SignalFirst, ckpt.SignalLast, ckpt.SignalBytes)
	}
	if err == nil {
		err = s.Send(context.Background(), int(to), uint16(kind), cBytes(bytes, n))
	}
	return report(e, err)
}

//export ckpt_core_signal_next
func ckpt_core_signal_next(job *C.ckpt_job, kind *C.uint, from *C.int, bytes unsafe.Pointer, n *C.size_t) C.int {
	s, err := signalsOf(job)
	if err != nil {
		return 0
	}
	one, length, ok := s.Next(int(*n), bytes != nil)
	*n = C.size_t(length)
	if !ok {
		if length < 0 {
			*n = 0
			return 0
		}
		return C.CKPT_E_ARG
	}
	*kind, *from = C.uint(one.Kind), C.int(one.From)
	if length > 0 {
		C.memcpy(bytes, unsafe.Pointer(&one.Payload[0]), C.size_t(length))
	}
	return 1
}

//export ckpt_core_ignore_fd
func ckpt_core_ignore_fd(job *C.ckpt_job, fd, on C.int) C.int {
	if !isOpen(job) {
		return C.CKPT_E_ARG
	}
	if process.Job != nil && process.Job.IgnoreFD(int(fd), on != 0) != nil {
		return C.CKPT_E_ARG // it is not open
	}
	return C.CKPT_OK
}

//export ckpt_core_tasks_left
func ckpt_core_tasks_left(job *C.ckpt_job) C.int {
	if !isOpen(job) {
		return C.CKPT_E_ARG
	}
	if process.Job == nil {
		return C.CKPT_OK
	}
	return codeOf(process.Job.TasksLeft())
}

//export ckpt_launch_env
func ckpt_launch_env(job *C.ckpt_job, name, text *C.char, bytes C.size_t) C.size_t {
	if name == nil {
		return 0
	}
	v := os.Getenv(C.GoString(name))
	if text != nil && bytes > 0 {
		b := unsafe.Slice((*byte)(unsafe.Pointer(text)), int(bytes))
		b[copy(b[:len(b)-1], v)] = 0
	}
	return C.size_t(len(v))
}
