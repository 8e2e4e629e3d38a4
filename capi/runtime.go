// SPDX-License-Identifier: Apache-2.0

package main

/*
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/where"
	"github.com/libckpt/libckpt/vid"
)

// mpiRuntime is an MPI that opened the job, as package ckpt sees it.
type mpiRuntime struct {
	calls         C.struct_runtime_calls
	ctx           unsafe.Pointer
	name, version string
	threads       int
	signals       bool // wants the signaling network for messages of its own
}

func (r *mpiRuntime) Name() string    { return r.name }
func (r *mpiRuntime) Version() string { return r.version }
func (r *mpiRuntime) Threads() int    { return r.threads }
func (r *mpiRuntime) Rank() int       { return int(C.op_rank(&r.calls, r.ctx)) }
func (r *mpiRuntime) Ranks() int      { return int(C.op_ranks(&r.calls, r.ctx)) }
func (r *mpiRuntime) Progress()       { C.op_progress(&r.calls, r.ctx) }

func (r *mpiRuntime) Allgather(mine []byte) ([][]byte, error) {
	n, ranks := len(mine), r.Ranks()
	in, out := C.CBytes(mine), C.malloc(C.size_t(n*ranks))
	defer C.free(in)
	defer C.free(out)
	if e := C.op_allgather(&r.calls, r.ctx, in, out, C.size_t(n)); e != 0 {
		return nil, errOf(C.CKPT_E_PEER, "the runtime's all-gather failed (%d)", e)
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
	if C.op_holds(&r.calls, r.ctx, &why[0], whyBytes) == 0 {
		return ""
	}
	return C.GoString(&why[0])
}

func (r *mpiRuntime) Inside() string {
	if call := C.op_inside(&r.calls, r.ctx); call != nil {
		return C.GoString(call)
	}
	return ""
}

func (r *mpiRuntime) OneSided() bool { return C.op_one_sided(&r.calls, r.ctx) != 0 }

func (r *mpiRuntime) Settle() error {
	if e := C.op_settle(&r.calls, r.ctx); e != 0 {
		return r.failure("completing what was begun on windows", C.long(e))
	}
	return nil
}

func (r *mpiRuntime) Drain() (int, error) {
	n := int(C.op_drain(&r.calls, r.ctx))
	if n < 0 {
		return 0, r.failure("receiving what is under way", C.long(n))
	}
	return n, nil
}

func (r *mpiRuntime) Synchronous() bool { return C.op_synchronous(&r.calls, r.ctx) != 0 }

func (r *mpiRuntime) Claims() []ckpt.Claim {
	n := C.op_claims(&r.calls, r.ctx, nil, 0)
	list := make([]C.ckpt_claim, n)
	if n == 0 {
		return nil
	}
	list = list[:min(n, C.op_claims(&r.calls, r.ctx, &list[0], n))]
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
	C.op_judge(&r.calls, r.ctx, &list[0], C.long(len(list)))
	for i, c := range list {
		claims[i].State = int32(c.state)
	}
}

func (r *mpiRuntime) Answered(answers []ckpt.Claim) {
	if len(answers) == 0 {
		return
	}
	list := claimsOut(answers)
	C.op_answered(&r.calls, r.ctx, &list[0], C.long(len(list)))
}

func (r *mpiRuntime) bind(job *C.ckpt_job) error {
	if e := C.op_bind(&r.calls, r.ctx, job); e != 0 {
		return r.failure("the runtime could not bind its predefined objects", C.long(e))
	}
	return nil
}

// start is where C finds bytes that Go holds for the length of one call; NULL when there are none.
func start(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func (r *mpiRuntime) Save(room func(bytes int) ([]byte, error)) ([]byte, error) {
	n := C.op_save(&r.calls, r.ctx, nil, 0)
	if n < 0 {
		return nil, r.failure("messages and requests", n)
	}
	b, err := room(int(n))
	if err != nil {
		return nil, err
	}
	if m := C.op_save(&r.calls, r.ctx, start(b), C.size_t(n)); m < 0 {
		return nil, r.failure("messages and requests", m)
	} else if m != n {
		return nil, fmt.Errorf("messages and requests changed while the program was stopped (%d, then %d bytes)", n, m)
	}
	return b, nil
}

func (r *mpiRuntime) Load(state []byte) error {
	if e := C.op_load(&r.calls, r.ctx, start(state), C.size_t(len(state))); e != 0 {
		if e == C.CKPT_E_CORRUPT {
			return fmt.Errorf("%w: messages and requests of the image", vid.ErrCorrupt)
		}
		return r.failure("messages and requests of the image", C.long(e))
	}
	return nil
}

// failure is the error of a callback that returned code.
func (r *mpiRuntime) failure(what string, code C.long) error {
	if why := C.GoString(C.op_failure(&r.calls, r.ctx)); why != "" {
		return errOf(C.int(code), "%s: %s", what, why)
	}
	return errOf(C.int(code), "%s: the runtime failed and does not say why (code %d)", what, code)
}

func (r *mpiRuntime) Files() (all, own []files.Named, err error) {
	n := C.op_files(&r.calls, r.ctx, nil, 0)
	if n <= 0 {
		return nil, nil, nil
	}
	b := make([]byte, n)
	if m := C.op_files(&r.calls, r.ctx, (*C.char)(start(b)), C.size_t(n)); m != n {
		return nil, nil, errors.New("the runtime's open files changed while the program was stopped")
	}
	return files.ParseNamed(string(b))
}

func (r *mpiRuntime) Memory() []uint64 {
	list := make([]uint64, max(C.op_memory(&r.calls, r.ctx, nil, 0), 0))
	if len(list) > 0 {
		C.op_memory(&r.calls, r.ctx, (*C.uint64_t)(unsafe.Pointer(&list[0])), C.long(len(list)))
	}
	return list
}

func (r *mpiRuntime) Rebuild(kind, id uint32, descriptor []byte, real uint64) (uint64, error) {
	out, words := C.uint64_t(real), make([]uint64, len(descriptor)/8+1) // which are aligned
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words)), descriptor)
	if e := C.op_rebuild(&r.calls, r.ctx, C.int(kind), C.ckpt_vid(id), unsafe.Pointer(&words[0]), C.size_t(len(descriptor)), &out); e != 0 {
		return 0, r.failure("the runtime could not make it again", C.long(e))
	}
	return uint64(out), nil
}

// maxWaiting bounds the number of waiting calls that a rank reports.
const maxWaiting = 16

func (r *mpiRuntime) Waiting() []where.Waiting {
	var list [maxWaiting]C.ckpt_waiting
	n := int(C.op_waiting(&r.calls, r.ctx, &list[0], maxWaiting))
	out := make([]where.Waiting, 0, max(n, 0))
	for _, w := range list[:max(n, 0)] {
		out = append(out, where.Waiting{Call: C.GoString(w.call), Comm: vid.ID(w.comm), Peer: int(w.peer),
			Tag: int(w.tag), For: where.For(w.what)})
	}
	return out
}

func (r *mpiRuntime) StartDeferred() { C.op_start(&r.calls, r.ctx) }

func (r *mpiRuntime) Finalize() error {
	if e := C.op_finalize(&r.calls, r.ctx); e != 0 {
		return fmt.Errorf("the runtime reports %d", e)
	}
	return nil
}
