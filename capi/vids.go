// SPDX-License-Identifier: Apache-2.0

package main

/*
#include "ckpt.h"
#include "ckpt/private/news.h"
*/
import "C"

import (
	"unsafe"

	"github.com/libckpt/libckpt/vid"
)

// tablesOf are the tables of a job, with all that is new of communicators.
func tablesOf(job *C.ckpt_job) *vid.Tables {
	if job == nil {
		return nil
	}
	t := opened.tables
	if w := clockOf(job); w != nil {
		w.Hear()
	} else if t != nil {
		t.TakeNews(func(vid.News) {})
	}
	return t
}

func cBytes(p unsafe.Pointer, n C.size_t) []byte {
	if n == 0 {
		return nil
	}
	return append([]byte(nil), unsafe.Slice((*byte)(p), int(n))...)
}

func cIDs(p *C.ckpt_vid, n C.size_t) []vid.ID {
	out := make([]vid.ID, n)
	if n > 0 {
		for i, v := range unsafe.Slice(p, int(n)) {
			out[i] = vid.ID(v)
		}
	}
	return out
}

//export ckpt_vid_new
func ckpt_vid_new(job *C.ckpt_job, kind C.ckpt_kind, real C.uint64_t, desc unsafe.Pointer, bytes C.size_t,
	needs *C.ckpt_vid, nneeds C.size_t, order C.uint64_t) C.ckpt_vid {
	t := tablesOf(job)
	if t == nil {
		return C.CKPT_VID_NONE
	}
	id, err := t.New(vid.Kind(kind), uint64(real), cBytes(desc, bytes), cIDs(needs, nneeds), uint64(order))
	if err != nil {
		return C.CKPT_VID_NONE
	}
	return C.ckpt_vid(id)
}

//export ckpt_vid_reserve
func ckpt_vid_reserve(job *C.ckpt_job, kind C.ckpt_kind, ids *C.ckpt_vid, n C.int) C.int {
	t := tablesOf(job)
	if t == nil || ids == nil || n <= 0 {
		return C.CKPT_E_ARG
	}
	reserved, err := t.Reserve(vid.Kind(kind), int(n))
	if err != nil {
		return codeOf(err)
	}
	out := unsafe.Slice(ids, int(n))
	for i, id := range reserved {
		out[i] = C.ckpt_vid(id)
	}
	return C.int(len(reserved))
}

//export ckpt_core_comm_reserve
func ckpt_core_comm_reserve(job *C.ckpt_job, ids *C.ckpt_vid, n, peers C.int) C.int {
	t := tablesOf(job)
	if t == nil || ids == nil || n <= 0 {
		return C.CKPT_E_ARG
	}
	reserved, err := t.ReserveComms(int(n), int(peers))
	if err != nil && len(reserved) == 0 {
		return codeOf(err)
	}
	out := unsafe.Slice(ids, int(n))
	for i, id := range reserved {
		out[i] = C.ckpt_vid(id)
	}
	return C.int(len(reserved))
}

//export ckpt_core_comm_news
func ckpt_core_comm_news(job *C.ckpt_job, ring *C.struct_news_ring) C.int {
	if job == nil || ring == nil || opened.tables == nil {
		return C.CKPT_E_ARG
	}
	opened.tables.ListenTo((*vid.Ring)(unsafe.Pointer(ring)))
	tablesOf(job)
	return C.CKPT_OK
}

//export ckpt_vid_adopt
func ckpt_vid_adopt(job *C.ckpt_job, id C.ckpt_vid, desc unsafe.Pointer, bytes C.size_t,
	needs *C.ckpt_vid, nneeds C.size_t) C.int {
	t := tablesOf(job)
	if t == nil {
		return C.CKPT_E_ARG
	}
	return codeOf(t.Adopt(vid.ID(id), cBytes(desc, bytes), cIDs(needs, nneeds)))
}

//export ckpt_vid_bind
func ckpt_vid_bind(job *C.ckpt_job, id C.ckpt_vid, real C.uint64_t) C.int {
	t := tablesOf(job)
	if t == nil {
		return C.CKPT_E_ARG
	}
	return codeOf(t.Bind(vid.ID(id), uint64(real)))
}

//export ckpt_vid_describe
func ckpt_vid_describe(job *C.ckpt_job, id C.ckpt_vid, desc unsafe.Pointer, bytes C.size_t,
	needs *C.ckpt_vid, nneeds C.size_t) C.int {
	t := tablesOf(job)
	if t == nil {
		return C.CKPT_E_ARG
	}
	return codeOf(t.Describe(vid.ID(id), cBytes(desc, bytes), cIDs(needs, nneeds)))
}

//export ckpt_vid_free
func ckpt_vid_free(job *C.ckpt_job, id C.ckpt_vid) C.int {
	t := tablesOf(job)
	if t == nil {
		return C.CKPT_E_ARG
	}
	if vid.ID(id).Kind() == vid.Comm {
		clockOf(job).CommFreed(vid.ID(id))
	}
	return codeOf(t.Free(vid.ID(id)))
}

//export ckpt_vid_descriptor
func ckpt_vid_descriptor(job *C.ckpt_job, id C.ckpt_vid, buffer unsafe.Pointer, bytes C.size_t) C.long {
	t := tablesOf(job)
	if t == nil {
		return C.CKPT_E_ARG
	}
	d, err := t.Descriptor(vid.ID(id))
	if err != nil {
		return C.CKPT_E_ARG
	}
	if bytes > 0 && buffer != nil {
		copy(unsafe.Slice((*byte)(buffer), int(bytes)), d)
	}
	return C.long(len(d))
}

//export ckpt_vid_find
func ckpt_vid_find(job *C.ckpt_job, kind C.ckpt_kind, real C.uint64_t) C.ckpt_vid {
	t := tablesOf(job)
	if t == nil {
		return C.CKPT_VID_NONE
	}
	return C.ckpt_vid(t.Find(vid.Kind(kind), uint64(real)))
}

//export ckpt_comm_describe
func ckpt_comm_describe(job *C.ckpt_job, comm C.ckpt_vid, rank, size C.int, world *C.int, npeers C.int,
	identity C.uint64_t) C.int {
	t := tablesOf(job)
	if t == nil || npeers < 0 {
		return C.CKPT_E_ARG
	}
	info := vid.CommInfo{Rank: int(rank), Size: int(size), Identity: uint64(identity), World: make([]int32, npeers)}
	if npeers > 0 {
		for i, w := range unsafe.Slice(world, int(npeers)) {
			info.World[i] = int32(w)
		}
	}
	return codeOf(t.SetComm(vid.ID(comm), info))
}

//export ckpt_vid_set_name
func ckpt_vid_set_name(job *C.ckpt_job, id C.ckpt_vid, name *C.char) C.int {
	t := tablesOf(job)
	if t == nil {
		return C.CKPT_E_ARG
	}
	return codeOf(t.Name(vid.ID(id), C.GoString(name)))
}

//export ckpt_vid_grow
func ckpt_vid_grow(job *C.ckpt_job, kind C.ckpt_kind) C.int {
	t := tablesOf(job)
	if t == nil {
		return C.CKPT_E_ARG
	}
	return codeOf(t.Grow(vid.Kind(kind)))
}
