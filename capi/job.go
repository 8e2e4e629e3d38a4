// SPDX-License-Identifier: Apache-2.0

package main

/*
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"context"
	"sync"
	"time"
	"unsafe"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/vid"
)

const withoutCkptrun = "the program was not started by ckptrun"

// opened is the job that C holds. A process has one: a second ckpt_open fails.
var opened struct {
	mu      sync.Mutex // of opening and closing; callbacks come while it is held
	c       *C.ckpt_job
	tables  *vid.Tables
	runtime *mpiRuntime
	state   unsafe.Pointer // of ckpt_runtime_state
	bytes   C.size_t
	signals *ckpt.Signals // of a runtime that ckptrun has not started; nil in a process of its own
	leave   func(context.Context) error
}

//export ckpt_open
func ckpt_open(config *C.ckpt_config, ops *C.ckpt_runtime_ops, ctx unsafe.Pointer, e *C.ckpt_error) *C.ckpt_job {
	job, err := open(config, ops, ctx)
	report(e, err)
	if err != nil {
		return nil
	}
	return job
}

func open(config *C.ckpt_config, ops *C.ckpt_runtime_ops, ctx unsafe.Pointer) (*C.ckpt_job, error) {
	if !opened.mu.TryLock() {
		return nil, errOf(C.CKPT_E_STATE, "another thread is opening or closing the job")
	}
	defer opened.mu.Unlock()
	if opened.c != nil {
		return nil, errOf(C.CKPT_E_STATE, "this process has an open job already")
	}
	rt, err := takeRuntime(config, ops, ctx)
	if err != nil {
		return nil, err
	}
	tables, c, err := newTables()
	if err != nil {
		return nil, err
	}
	opened.c, opened.tables, opened.runtime = c, tables, rt
	if err := process.Open(rt, tables, func() error { return rt.bind(c) }); err != nil {
		_ = tables.Close()
		C.free(unsafe.Pointer(c))
		opened.c, opened.tables, opened.runtime = nil, nil, nil
		return nil, err
	}
	if process.Host == nil && rt.signals {
		if opened.signals, opened.leave, err = ckpt.JoinSignals(rt, tables); err != nil {
			_ = tables.Close()
			C.free(unsafe.Pointer(c))
			opened.c, opened.tables, opened.runtime = nil, nil, nil
			return nil, err
		}
	}
	return c, nil
}

// takeRuntime copies the structures of the runtime, whichever version of ckpt.h the runtime was compiled against.
func takeRuntime(config *C.ckpt_config, ops *C.ckpt_runtime_ops, ctx unsafe.Pointer) (*mpiRuntime, error) {
	if config == nil || ops == nil {
		return nil, errOf(C.CKPT_E_ARG, "ckpt_open was given no config or no ops")
	}
	rt := &mpiRuntime{ctx: ctx}
	r := &rt.calls
	c, err := takeConfig(config)
	if err != nil {
		return nil, err
	}
	if err := taken(unsafe.Pointer(&r.ops), C.sizeof_ckpt_runtime_ops, opsSize10, unsafe.Pointer(ops), "ckpt_runtime_ops"); err != nil {
		return nil, err
	}
	for _, layer := range []struct {
		to          unsafe.Pointer
		mine, least uintptr
		from        unsafe.Pointer
		what        string
	}{
		{unsafe.Pointer(&r.objects), C.sizeof_ckpt_object_ops, objectsSize10, unsafe.Pointer(r.ops.objects), "ckpt_object_ops"},
		{unsafe.Pointer(&r.messages), C.sizeof_ckpt_message_ops, messagesSize10, unsafe.Pointer(r.ops.messages), "ckpt_message_ops"},
		{unsafe.Pointer(&r.sync), C.sizeof_ckpt_sync_ops, syncSize10, unsafe.Pointer(r.ops.sync), "ckpt_sync_ops"},
		{unsafe.Pointer(&r.state), C.sizeof_ckpt_state_ops, stateSize10, unsafe.Pointer(r.ops.state), "ckpt_state_ops"},
	} {
		if layer.from == nil {
			continue
		}
		if err := taken(layer.to, layer.mine, layer.least, layer.from, layer.what); err != nil {
			return nil, err
		}
	}
	if r.ops.rank == nil || r.ops.ranks == nil || r.ops.oob_allgather == nil {
		return nil, errOf(C.CKPT_E_ARG, "ckpt_runtime_ops lacks rank, ranks or oob_allgather, which every runtime needs")
	}
	rt.signals = c.api_minor >= 1 // older ones do not know them, and open without an all-gather
	rt.name, rt.version, rt.threads = C.GoString(c.runtime), C.GoString(c.runtime_version), int(c.thread_level)
	return rt, nil
}

// takeConfig copies the runtime's ckpt_config.
func takeConfig(config *C.ckpt_config) (c C.ckpt_config, err error) {
	if err := taken(unsafe.Pointer(&c), C.sizeof_ckpt_config, configSize10, unsafe.Pointer(config), "ckpt_config"); err != nil {
		return c, err
	}
	if c.api_major != C.CKPT_API_MAJOR {
		return c, errOf(C.CKPT_E_VERSION, "the runtime was compiled against version %d.%d of ckpt.h, and this is version %d.%d",
			c.api_major, c.api_minor, C.CKPT_API_MAJOR, C.CKPT_API_MINOR)
	}
	if c.runtime == nil {
		return c, errOf(C.CKPT_E_ARG, "ckpt_config.runtime is NULL: the runtime needs a name")
	}
	return c, nil
}

// isOpen tells whether job is what ckpt_open returned.
func isOpen(job *C.ckpt_job) bool { return job != nil && job == opened.c }

var errNotOpen = errOf(C.CKPT_E_ARG, "this is no open job: it was not returned by ckpt_open, or was closed")

//export ckpt_close
func ckpt_close(job *C.ckpt_job, e *C.ckpt_error) C.int {
	if !opened.mu.TryLock() {
		return report(e, errOf(C.CKPT_E_STATE, "another thread is opening or closing the job"))
	}
	defer opened.mu.Unlock()
	if !isOpen(job) {
		return report(e, errNotOpen)
	}
	var err error
	if process.Job != nil {
		err = process.Job.Close()
	}
	if opened.signals != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err = opened.leave(ctx)
		cancel()
		opened.signals = nil
	}
	// The tables stay mapped: the application may still hold ids.
	opened.c = nil
	return report(e, err)
}

//export ckpt_restart_thread_level
func ckpt_restart_thread_level() C.int {
	if process.Restart == nil {
		return -1
	}
	return C.int(process.Restart.Threads())
}

//export ckpt_restarted
func ckpt_restarted(job *C.ckpt_job) C.int {
	if job != nil && process.Job != nil && process.Job.Restarted() {
		return 1
	}
	return 0
}

//export ckpt_runtime_state
func ckpt_runtime_state(job *C.ckpt_job, bytes C.size_t) unsafe.Pointer {
	if !isOpen(job) {
		return nil
	}
	if opened.state == nil {
		p := C.calloc(1, max(bytes, 1))
		if p == nil {
			return nil
		}
		opened.state, opened.bytes = p, bytes
		b := unsafe.Slice((*byte)(opened.state), int(bytes))
		if process.Job != nil {
			copy(b, process.Job.RuntimeState())
			process.Job.SetRuntimeState(b)
		}
	}
	return opened.state
}

//export ckpt_checkpoint
func ckpt_checkpoint(job *C.ckpt_job, task C.int, state *C.ckpt_state, e *C.ckpt_error) C.int {
	var ignored C.ckpt_state
	if state == nil {
		state = &ignored
	}
	*state = C.CKPT_STATE_ERROR
	switch {
	case !isOpen(job):
		return report(e, errNotOpen)
	case task != 0:
		return report(e, errOf(C.CKPT_E_NOTSUP, "local task %d: a process has one rank here, whose task is 0", task))
	case process.Job == nil:
		*state = C.CKPT_STATE_IGNORE
		report(e, errOf(C.CKPT_E_STATE, "%s", withoutCkptrun))
		return C.CKPT_OK
	}
	s, err := process.Job.Cooperative()
	*state = C.ckpt_state(s)
	code := report(e, err)
	if s == ckpt.StateIgnore { // nothing failed: the text says what held it back
		return C.CKPT_OK
	}
	return code
}
