// SPDX-License-Identifier: Apache-2.0

package main

/*
#include <stdlib.h>
#include <string.h>
#include "ckpt.h"

static int op_rank(const ckpt_runtime_ops *o, void *c) { return o->rank(c); }
static int op_ranks(const ckpt_runtime_ops *o, void *c) { return o->ranks(c); }
static int op_allgather(const ckpt_runtime_ops *o, void *c, void *m, void *a, size_t n) {
    return o->oob_allgather(c, m, a, n);
}
static void op_progress(const ckpt_runtime_ops *o, void *c) { if (o->progress) o->progress(c); }
static int op_holds(const ckpt_runtime_ops *o, void *c, char *w, size_t n) {
    return o->holds ? o->holds(c, w, n) : 0;
}
static int op_bind(const ckpt_runtime_ops *o, void *c, ckpt_job *j) { return o->bind ? o->bind(c, j) : 0; }
static int op_rebuild(const ckpt_runtime_ops *o, void *c, int k, ckpt_vid v, void *d, size_t n, uint64_t *r) {
    return o->rebuild(c, (ckpt_kind)k, v, d, n, r);
}
static int op_one_sided(const ckpt_runtime_ops *o, void *c) { return o->one_sided ? o->one_sided(c) : 0; }
static int op_settle(const ckpt_runtime_ops *o, void *c) { return o->settle ? o->settle(c) : 0; }
static int op_drain(const ckpt_runtime_ops *o, void *c) { return o->drain ? o->drain(c) : 0; }
static int op_synchronous(const ckpt_runtime_ops *o, void *c) { return o->synchronous ? o->synchronous(c) : 0; }
static long op_claims(const ckpt_runtime_ops *o, void *c, ckpt_claim *l, long n) {
    return o->claims ? o->claims(c, l, n) : 0;
}
static void op_judge(const ckpt_runtime_ops *o, void *c, ckpt_claim *l, long n) { if (o->judge) o->judge(c, l, n); }
static void op_answered(const ckpt_runtime_ops *o, void *c, ckpt_claim *l, long n) {
    if (o->answered) o->answered(c, l, n);
}
static long op_save(const ckpt_runtime_ops *o, void *c, void *b, size_t n) {
    return o->save ? o->save(c, b, n) : 0;
}
static int op_load(const ckpt_runtime_ops *o, void *c, const void *b, size_t n) {
    return o->load ? o->load(c, b, n) : n ? CKPT_E_NOTSUP : 0;
}
static const char *op_inside(const ckpt_runtime_ops *o, void *c) { return o->inside ? o->inside(c) : NULL; }
static const char *op_failure(const ckpt_runtime_ops *o, void *c) {
    const char *why = o->failure ? o->failure(c) : NULL;
    return why ? why : "";
}
static long op_files(const ckpt_runtime_ops *o, void *c, char *b, size_t n) {
    return o->files ? o->files(c, b, n) : 0;
}
static long op_memory(const ckpt_runtime_ops *o, void *c, uint64_t *l, long n) {
    return o->memory ? o->memory(c, l, n) : 0;
}
static int op_waiting(const ckpt_runtime_ops *o, void *c, ckpt_waiting *l, int n) {
    return o->waiting ? o->waiting(c, l, n) : 0;
}
static void op_start(const ckpt_runtime_ops *o, void *c) { if (o->start) o->start(c); }
static int op_finalize(const ckpt_runtime_ops *o, void *c) { return o->finalize ? o->finalize(c) : 0; }
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/snapshot"
	"github.com/libckpt/libckpt/ckpt/where"
	"github.com/libckpt/libckpt/vid"
)

// mpiRuntime is an MPI that opened the job, as package ckpt sees it.
type mpiRuntime struct {
	ops           C.ckpt_runtime_ops
	ctx           unsafe.Pointer
	name, version string
	threads       int
}

func (r *mpiRuntime) Name() string    { return r.name }
func (r *mpiRuntime) Version() string { return r.version }
func (r *mpiRuntime) Threads() int    { return r.threads }
func (r *mpiRuntime) Rank() int       { return int(C.op_rank(&r.ops, r.ctx)) }
func (r *mpiRuntime) Ranks() int      { return int(C.op_ranks(&r.ops, r.ctx)) }
func (r *mpiRuntime) Progress()       { C.op_progress(&r.ops, r.ctx) }

func (r *mpiRuntime) Allgather(mine []byte) ([][]byte, error) {
	n, ranks := len(mine), r.Ranks()
	in, out := C.CBytes(mine), C.malloc(C.size_t(n*ranks))
	defer C.free(in)
	defer C.free(out)
	if e := C.op_allgather(&r.ops, r.ctx, in, out, C.size_t(n)); e != 0 {
		return nil, fmt.Errorf("the runtime's all-gather failed (%d)", e)
	}
	all := C.GoBytes(out, C.int(n*ranks))
	list := make([][]byte, ranks)
	for i := range list {
		list[i] = all[i*n : (i+1)*n]
	}
	return list, nil
}

func (r *mpiRuntime) Holds() string {
	var why [whyBytes]C.char
	if C.op_holds(&r.ops, r.ctx, &why[0], whyBytes) == 0 {
		return ""
	}
	return C.GoString(&why[0])
}

func (r *mpiRuntime) Inside() string {
	if call := C.op_inside(&r.ops, r.ctx); call != nil {
		return C.GoString(call)
	}
	return ""
}

func (r *mpiRuntime) OneSided() bool { return C.op_one_sided(&r.ops, r.ctx) != 0 }

func (r *mpiRuntime) Settle() error {
	if e := C.op_settle(&r.ops, r.ctx); e != 0 {
		return r.failure("completing what was begun on windows", C.long(e))
	}
	return nil
}

func (r *mpiRuntime) Drain() (int, error) {
	n := int(C.op_drain(&r.ops, r.ctx))
	if n < 0 {
		return 0, r.failure("receiving what is under way", C.long(n))
	}
	return n, nil
}

func (r *mpiRuntime) Synchronous() bool { return C.op_synchronous(&r.ops, r.ctx) != 0 }

func (r *mpiRuntime) Claims() []ckpt.Claim {
	n := C.op_claims(&r.ops, r.ctx, nil, 0)
	list := make([]C.ckpt_claim, n)
	if n == 0 {
		return nil
	}
	list = list[:min(n, C.op_claims(&r.ops, r.ctx, &list[0], n))]
	out := make([]ckpt.Claim, len(list))
	for i, c := range list {
		out[i] = ckpt.Claim{Rank: int(c.rank), ID: uint64(c.id), Comm: uint64(c.comm), Later: uint64(c.later),
			Source: int32(c.source), Tag: int32(c.tag), State: int32(c.state)}
	}
	return out
}

func claimsOut(claims []ckpt.Claim) []C.ckpt_claim {
	list := make([]C.ckpt_claim, len(claims))
	for i, c := range claims {
		list[i] = C.ckpt_claim{rank: C.int32_t(c.Rank), id: C.uint64_t(c.ID), comm: C.uint64_t(c.Comm), later: C.uint64_t(c.Later),
			source: C.int32_t(c.Source), tag: C.int32_t(c.Tag), state: C.int32_t(c.State)}
	}
	return list
}

func (r *mpiRuntime) Judge(claims []ckpt.Claim) {
	if len(claims) == 0 {
		return
	}
	list := claimsOut(claims)
	C.op_judge(&r.ops, r.ctx, &list[0], C.long(len(list)))
	for i, c := range list {
		claims[i].State = int32(c.state)
	}
}

func (r *mpiRuntime) Answered(answers []ckpt.Claim) {
	if len(answers) == 0 {
		return
	}
	list := claimsOut(answers)
	C.op_answered(&r.ops, r.ctx, &list[0], C.long(len(list)))
}

// start is where C finds bytes that Go holds for the length of one call; NULL when there are none.
func start(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func (r *mpiRuntime) Save(room func(bytes int) ([]byte, error)) ([]byte, error) {
	n := C.op_save(&r.ops, r.ctx, nil, 0)
	if n < 0 {
		return nil, r.failure("messages and requests", n)
	}
	b, err := room(int(n))
	if err != nil {
		return nil, err
	}
	if m := C.op_save(&r.ops, r.ctx, start(b), C.size_t(n)); m < 0 {
		return nil, r.failure("messages and requests", m)
	} else if m != n {
		return nil, fmt.Errorf("messages and requests changed while the program was stopped (%d, then %d bytes)", n, m)
	}
	return b, nil
}

func (r *mpiRuntime) Load(state []byte) error {
	if e := C.op_load(&r.ops, r.ctx, start(state), C.size_t(len(state))); e != 0 {
		if e == C.CKPT_E_CORRUPT {
			return fmt.Errorf("%w: messages and requests of the image", vid.ErrCorrupt)
		}
		return r.failure("messages and requests of the image", C.long(e))
	}
	return nil
}

// failure is the error of a callback that returned code.
func (r *mpiRuntime) failure(what string, code C.long) error {
	if why := C.GoString(C.op_failure(&r.ops, r.ctx)); why != "" {
		return fmt.Errorf("%s: %s", what, why)
	}
	return fmt.Errorf("%s: the runtime failed and does not say why (code %d)", what, code)
}

func (r *mpiRuntime) Files() (all, own []files.Named, err error) {
	n := C.op_files(&r.ops, r.ctx, nil, 0)
	if n <= 0 {
		return nil, nil, nil
	}
	b := make([]byte, n)
	if m := C.op_files(&r.ops, r.ctx, (*C.char)(start(b)), C.size_t(n)); m != n {
		return nil, nil, errors.New("the runtime's open files changed while the program was stopped")
	}
	return files.ParseNamed(string(b))
}

func (r *mpiRuntime) Memory() []uint64 {
	list := make([]uint64, max(C.op_memory(&r.ops, r.ctx, nil, 0), 0))
	if len(list) > 0 {
		C.op_memory(&r.ops, r.ctx, (*C.uint64_t)(unsafe.Pointer(&list[0])), C.long(len(list)))
	}
	return list
}

func (r *mpiRuntime) Rebuild(kind, id uint32, descriptor []byte, real uint64) (uint64, error) {
	out, words := C.uint64_t(real), make([]uint64, len(descriptor)/8+1) // which are aligned
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words)), descriptor)
	if e := C.op_rebuild(&r.ops, r.ctx, C.int(kind), C.ckpt_vid(id), unsafe.Pointer(&words[0]), C.size_t(len(descriptor)), &out); e != 0 {
		return 0, r.failure("the runtime could not make it again", C.long(e))
	}
	return uint64(out), nil
}

// maxWaiting bounds how many calls a rank tells of.
const maxWaiting = 16

func (r *mpiRuntime) Waiting() []where.Waiting {
	var list [maxWaiting]C.ckpt_waiting
	n := int(C.op_waiting(&r.ops, r.ctx, &list[0], maxWaiting))
	out := make([]where.Waiting, 0, max(n, 0))
	for _, w := range list[:max(n, 0)] {
		out = append(out, where.Waiting{Call: C.GoString(w.call), Comm: vid.ID(w.comm), Peer: int(w.peer),
			Tag: int(w.tag), For: where.For(w.what)})
	}
	return out
}

func (r *mpiRuntime) StartDeferred() { C.op_start(&r.ops, r.ctx) }

func (r *mpiRuntime) Finalize() error {
	if e := C.op_finalize(&r.ops, r.ctx); e != 0 {
		return fmt.Errorf("the runtime reports %d", e)
	}
	return nil
}

// opened is the job that C holds. One a process: a second ckpt_open fails.
var opened struct {
	c       *C.ckpt_job
	tables  *vid.Tables
	runtime *mpiRuntime
	state   unsafe.Pointer // of ckpt_runtime_state
	bytes   C.size_t
}

// report puts err into a ckpt_error and returns its code.
func report(e *C.ckpt_error, err error) C.int {
	code := codeOf(err)
	if e != nil && e.size >= C.sizeof_ckpt_error {
		e.code = code
		putText(&e.message[0], C.size_t(len(e.message)), err)
	}
	return code
}

func codeOf(err error) C.int {
	var refused *control.RefusedError
	var corrupt *image.CorruptError
	switch {
	case err == nil:
		return C.CKPT_OK
	case errors.As(err, &refused):
		return C.CKPT_E_STATE
	case errors.As(err, &corrupt), errors.Is(err, vid.ErrCorrupt):
		return C.CKPT_E_CORRUPT
	}
	return C.CKPT_E_SYSTEM
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
	switch {
	case config.size < C.sizeof_ckpt_config || ops.size > C.sizeof_ckpt_runtime_ops:
		return nil, errors.New("the runtime was compiled against another version of ckpt.h")
	case config.api_major != C.CKPT_API_MAJOR:
		return nil, fmt.Errorf("the runtime was compiled against API %d, this is %d", config.api_major, C.CKPT_API_MAJOR)
	case opened.c != nil:
		return nil, errors.New("this process has an open job already")
	}
	rt := &mpiRuntime{ctx: ctx, name: C.GoString(config.runtime), version: C.GoString(config.runtime_version),
		threads: int(config.thread_level)}
	C.memcpy(unsafe.Pointer(&rt.ops), unsafe.Pointer(ops), ops.size)
	var at uintptr
	if process.Host != nil {
		at = snapshot.Tables
	}
	tables, err := vid.Open(at, snapshot.TablesBytes)
	if err != nil {
		return nil, err
	}
	c := (*C.ckpt_job)(C.calloc(1, C.sizeof_ckpt_job))
	a := tables.Address()
	c.tables = *(**C.ckpt_tables)(unsafe.Pointer(&a))
	opened.c, opened.tables, opened.runtime = c, tables, rt
	err = process.Open(rt, tables, func() error {
		if e := C.op_bind(&rt.ops, rt.ctx, c); e != 0 {
			return rt.failure("the runtime could not bind its predefined objects", C.long(e))
		}
		return nil
	})
	if err != nil {
		_ = tables.Close()
		C.free(unsafe.Pointer(c))
		opened.c, opened.tables = nil, nil
		return nil, err
	}
	return c, nil
}

//export ckpt_close
func ckpt_close(job *C.ckpt_job, e *C.ckpt_error) C.int {
	if job == nil || job != opened.c {
		return C.CKPT_E_ARG
	}
	var err error
	if process.Job != nil {
		err = process.Job.Close()
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
	if job == nil || job != opened.c {
		return nil
	}
	if opened.state == nil {
		opened.state, opened.bytes = C.calloc(1, max(bytes, 1)), bytes
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
	if job == nil || job != opened.c || state == nil || task != 0 {
		return C.CKPT_E_ARG
	}
	if process.Job == nil {
		*state = C.CKPT_STATE_IGNORE
		return report(e, errors.New(withoutCkptrun))
	}
	s, err := process.Job.Cooperative()
	*state = C.ckpt_state(s)
	return report(e, err)
}

func putString(to *C.char, bytes C.size_t, s string) { putText(to, bytes, errors.New(s)) }
