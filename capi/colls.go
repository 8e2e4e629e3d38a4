// SPDX-License-Identifier: Apache-2.0

package main

/*
#include "ckpt.h"

int ckpt_core_vid_task(ckpt_job *job, ckpt_vid comm, int local_task);
*/
import "C"

import (
	"errors"
	"unsafe"

	"github.com/libckpt/libckpt/ckpt/clockwork"
	"github.com/libckpt/libckpt/vid"
)

// clockOf is the collective clock of a job; nil where there is none. A nil clock accepts all calls.
func clockOf(job *C.ckpt_job) *clockwork.Clock {
	if job == nil || process.Job == nil {
		return nil
	}
	return process.Job.Clock()
}

//export ckpt_comm_set_members
func ckpt_comm_set_members(job *C.ckpt_job, comm C.ckpt_vid, world *C.int, n C.int, identity C.uint64_t) C.int {
	if job == nil || n < 0 {
		return C.CKPT_E_ARG
	}
	if members, ok := ranksOf(world, n); ok {
		if err := clockOf(job).CommMade(vid.ID(comm), uint64(identity), members); err != nil {
			return C.CKPT_E_ARG
		}
	}
	return C.CKPT_OK
}

//export ckpt_vid_task
func ckpt_vid_task(job *C.ckpt_job, comm C.ckpt_vid, task C.int) C.int {
	t := tablesOf(job)
	if t == nil || task < 0 {
		return C.CKPT_E_ARG
	}
	var err error
	if w := clockOf(job); w != nil {
		err = w.Owned(vid.ID(comm), int(task))
	} else { // nothing is saved, and the caller knows its tasks
		err = t.SetTask(vid.ID(comm), int(task))
	}
	switch {
	case err == nil:
		return C.CKPT_OK
	case errors.Is(err, vid.ErrOwned):
		return C.CKPT_E_STATE
	}
	return C.CKPT_E_ARG
}

//export ckpt_core_vid_task
func ckpt_core_vid_task(job *C.ckpt_job, comm C.ckpt_vid, task C.int) C.int {
	return ckpt_vid_task(job, comm, task)
}

// ranksOf is a list of ranks of the world, never nil. It returns false when one is a process outside the job,
// whose calls cannot be known.
func ranksOf(world *C.int, n C.int) ([]int32, bool) {
	ranks := make([]int32, max(0, n))
	if n <= 0 {
		return ranks, true
	}
	for i, w := range unsafe.Slice(world, int(n)) {
		if w < 0 {
			return nil, false
		}
		ranks[i] = int32(w)
	}
	return ranks, true
}

//export ckpt_group_call_begin
func ckpt_group_call_begin(job *C.ckpt_job, comm C.ckpt_vid, parent C.uint64_t, tag C.int, world *C.int, n C.int, name *C.char) C.uint64_t {
	members, ok := ranksOf(world, n)
	if !ok {
		return 0
	}
	return C.uint64_t(clockOf(job).Subset(vid.ID(comm), uint64(parent), int(tag), members, C.GoString(name)))
}

//export ckpt_intercomm_call_begin
func ckpt_intercomm_call_begin(job *C.ckpt_job, b *C.ckpt_intercomm_call, name *C.char) C.uint64_t {
	if b == nil {
		return 0
	}
	members, _ := ranksOf(b.world, b.n)
	return C.uint64_t(clockOf(job).Bridge(clockwork.Bridge{
		Comm: vid.ID(b.comm), Identity: uint64(b.identity), Members: members, Leader: int32(b.leader),
		Peer: uint64(b.peer), Remote: int32(b.remote), Tag: int(b.tag),
	}, C.GoString(name)))
}

//export ckpt_group_call_ready
func ckpt_group_call_ready(job *C.ckpt_job, meeting C.uint64_t) C.int {
	return C.int(clockOf(job).Met(uint64(meeting)))
}

//export ckpt_group_call_end
func ckpt_group_call_end(job *C.ckpt_job, meeting C.uint64_t) {
	clockOf(job).Parted(uint64(meeting))
}

//export ckpt_coll_call
func ckpt_coll_call(job *C.ckpt_job, comm C.ckpt_vid, k C.uint64_t, mode C.int) C.int {
	return C.int(clockOf(job).Call(vid.ID(comm), uint64(k), clockwork.Mode(mode)))
}

//export ckpt_coll_permitted
func ckpt_coll_permitted(job *C.ckpt_job, comm C.ckpt_vid, k C.uint64_t) C.int {
	return C.int(clockOf(job).Permitted(vid.ID(comm), uint64(k)))
}

//export ckpt_coll_returned
func ckpt_coll_returned(job *C.ckpt_job, comm C.ckpt_vid, k C.uint64_t) {
	clockOf(job).Returned(vid.ID(comm), uint64(k))
}

//export ckpt_coll_withdrawn
func ckpt_coll_withdrawn(job *C.ckpt_job, comm C.ckpt_vid, k C.uint64_t, deferred C.int) {
	clockOf(job).Withdrawn(vid.ID(comm), uint64(k), deferred != 0)
}

//export ckpt_coll_start
func ckpt_coll_start(job *C.ckpt_job, comm *C.ckpt_vid, k *C.uint64_t) C.int {
	s, ok := clockOf(job).NextStart()
	if !ok {
		return 0
	}
	*comm, *k = C.ckpt_vid(s.Comm), C.uint64_t(s.K)
	return 1
}

//export ckpt_coll_started
func ckpt_coll_started(job *C.ckpt_job, comm C.ckpt_vid, k C.uint64_t) {
	clockOf(job).Started(clockwork.DeferredStart{Comm: vid.ID(comm), K: uint64(k)})
}
