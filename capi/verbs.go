// SPDX-License-Identifier: Apache-2.0

package main

/*
#cgo CFLAGS: -I${SRCDIR}
#include <stdlib.h>
#include "hostgo.h"
#include "verbs/back.h"

static const struct verbs_calls *call_verbs(const struct host_ops *o, int load, char *why, size_t n) {
    return o->verbs(load, why, n);
}
static int verbs_used(const struct verbs_calls *v) { return v->used(); }
static int verbs_tcp(const struct verbs_calls *v) { return v->tcp(); }
static uint64_t verbs_root(const struct verbs_calls *v) { return v->root(); }
static size_t verbs_holds(const struct verbs_calls *v, char *why, size_t n) { return v->holds(why, n); }
static int verbs_descriptors(const struct verbs_calls *v, int *l, int n) { return v->descriptors(l, n); }
static int verbs_turn(const struct verbs_calls *v, int first, const void *in, size_t n, void **out, size_t *m, int *left,
                      char *why, size_t wn) {
    return v->turn(first, in, n, out, m, left, why, wn);
}
static void verbs_end(const struct verbs_calls *v) { v->end(); }
static int verbs_answer(const struct verbs_calls *v, int from, int q, uint32_t id, void *a, size_t n) {
    return v->answer(from, q, id, a, n);
}
static int verbs_make(const struct verbs_calls *v, int step, uint64_t root, char *why, size_t n) {
    return v->make(step, root, why, n);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/verbs"
)

var _ ckpt.VerbsHost = host{}

// device is what is below the program's libibverbs, as package ckpt sees it.
type device struct{ calls *C.struct_verbs_calls }

func (h host) Verbs(load bool) (verbs.Device, error) {
	why := (*C.char)(C.calloc(1, whyBytes))
	defer C.free(unsafe.Pointer(why))
	must := C.int(0)
	if load {
		must = 1
	}
	calls := C.call_verbs(h.ops, must, why, whyBytes)
	if calls != nil {
		return device{calls}, nil
	}
	if load {
		return nil, fmt.Errorf("the program uses InfiniBand, which this machine does not have: %s", C.GoString(why))
	}
	return nil, nil
}

func (d device) Used() bool   { return C.verbs_used(d.calls) != 0 }
func (d device) Root() uint64 { return uint64(C.verbs_root(d.calls)) }
func (d device) TCP() bool    { return C.verbs_tcp(d.calls) != 0 }
func (d device) End()         { C.verbs_end(d.calls) }

func (d device) Holds() []string {
	const room = 4000
	why := (*C.char)(C.calloc(1, room))
	defer C.free(unsafe.Pointer(why))
	C.verbs_holds(d.calls, why, room-1)
	text := strings.TrimSpace(C.GoString(why))
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func (d device) Descriptors() []int {
	var list [512]C.int
	n := C.verbs_descriptors(d.calls, &list[0], C.int(len(list)))
	out := make([]int, n)
	for i := range out {
		out[i] = int(list[i])
	}
	return out
}

func (d device) Turn(first bool, in []byte) (told []byte, left int, why string, err error) {
	text := (*C.char)(C.calloc(1, whyBytes))
	defer C.free(unsafe.Pointer(text))
	var out unsafe.Pointer
	var n C.size_t
	var still, begin C.int
	if first {
		begin = 1
	}
	// in lies in Go's memory for the length of the call; out is C's until the next.
	if e := C.verbs_turn(d.calls, begin, start(in), C.size_t(len(in)), &out, &n, &still, text, whyBytes); e != 0 {
		return nil, 0, "", unix.Errno(e)
	}
	return C.GoBytes(out, C.int(n)), int(still), C.GoString(text), nil
}

func (d device) Make(step int, root uint64) error {
	why := (*C.char)(C.calloc(1, whyBytes))
	defer C.free(unsafe.Pointer(why))
	if e := C.verbs_make(d.calls, C.int(step), C.uint64_t(root), why, whyBytes); e != 0 {
		return errors.New(C.GoString(why))
	}
	return nil
}

func (d device) Answer(from int, question, id uint32) ([]byte, bool) {
	var b [C.VERBS_ANSWER_MAX]byte
	if C.verbs_answer(d.calls, C.int(from), C.int(question), C.uint32_t(id), unsafe.Pointer(&b[0]), C.VERBS_ANSWER_MAX) != 0 {
		return nil, false
	}
	return b[:], true
}

//export ckpt_host_verbs_job
func ckpt_host_verbs_job(rank, ranks *C.int) {
	r, n := ckpt.VerbsJob()
	*rank, *ranks = C.int(r), C.int(n)
}

//export ckpt_host_verbs_ask
func ckpt_host_verbs_ask(rank, question C.int, id C.uint32_t, answer unsafe.Pointer, bytes C.size_t) C.int {
	b, err := ckpt.VerbsAsk(int(rank), uint32(question), uint32(id))
	if err != nil {
		return C.int(unix.EHOSTUNREACH)
	}
	if answer != nil {
		copy(unsafe.Slice((*byte)(answer), int(bytes)), b)
	}
	return 0
}

//export ckpt_host_verbs_say
func ckpt_host_verbs_say(line *C.char) { process.Log.Warn(C.GoString(line)) }
