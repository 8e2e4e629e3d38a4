// SPDX-License-Identifier: Apache-2.0

package main

/*
#include "ckpt.h"
*/
import "C"

import (
	"unsafe"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/vid"
)

//export ckpt_coll_members
func ckpt_coll_members(job *C.ckpt_job, comm C.ckpt_vid, world *C.int, n C.int, identity C.uint64_t) C.int {
	if job == nil || n < 0 {
		return C.CKPT_E_ARG
	}
	members := make([]int32, n)
	if n > 0 {
		for i, w := range unsafe.Slice(world, int(n)) {
			if w < 0 {
				return C.CKPT_OK // a process outside the job: its calls cannot be known
			}
			members[i] = int32(w)
		}
	}
	if process.job != nil {
		process.job.CommMembers(vid.ID(comm), uint64(identity), members)
	}
	return C.CKPT_OK
}

//export ckpt_coll_call
func ckpt_coll_call(job *C.ckpt_job, comm C.ckpt_vid, k C.uint64_t, mode C.int) C.int {
	if job == nil || process.job == nil {
		return C.CKPT_COLL_ENTER
	}
	return C.int(process.job.CollCall(vid.ID(comm), uint64(k), int(mode)))
}

//export ckpt_coll_permitted
func ckpt_coll_permitted(job *C.ckpt_job, comm C.ckpt_vid, k C.uint64_t) C.int {
	if job == nil || process.job == nil {
		return C.CKPT_COLL_ENTER
	}
	return C.int(process.job.CollPermitted(vid.ID(comm), uint64(k)))
}

//export ckpt_coll_returned
func ckpt_coll_returned(job *C.ckpt_job, comm C.ckpt_vid, k C.uint64_t) {
	if job != nil && process.job != nil {
		process.job.CollReturned(vid.ID(comm), uint64(k))
	}
}

//export ckpt_coll_start
func ckpt_coll_start(job *C.ckpt_job, comm *C.ckpt_vid, k *C.uint64_t) C.int {
	if job == nil || process.job == nil {
		return 0
	}
	s, ok := process.job.CollStart()
	if !ok {
		return 0
	}
	*comm, *k = C.ckpt_vid(s.Comm), C.uint64_t(s.K)
	return 1
}

//export ckpt_coll_started
func ckpt_coll_started(job *C.ckpt_job, comm C.ckpt_vid, k C.uint64_t) {
	if job != nil && process.job != nil {
		process.job.CollStarted(ckpt.DeferredStart{Comm: vid.ID(comm), K: uint64(k)})
	}
}
