// SPDX-License-Identifier: Apache-2.0

package main

/*
#include <stdlib.h>
#include <string.h>
#include "ckpt/private/talk.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"unsafe"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/meeting"
	"github.com/libckpt/libckpt/ckpt/snapshot"
	"github.com/libckpt/libckpt/ckpt/where"
	"github.com/libckpt/libckpt/vid"
)

// wholeRuntime is a runtime in the program's half. Its callbacks are asked for, see ckpt/private/talk.h: its methods
// may be called on the goroutine of a call alone, while the call's thread waits in ckpt_host_talk.
type wholeRuntime struct {
	name, version string
	threads       int
	has           C.uint64_t
	asks          chan *question
	// Until the second step of a restart nobody can be asked: what the launcher knows.
	boot bootstrap
}

// bootstrap is how processes know each other before they have a network.
type bootstrap interface {
	Rank() int
	Ranks() int
	Allgather(mine []byte) ([][]byte, error)
}

type question struct {
	ask    C.uint32_t
	a      [6]uint64
	answer chan int64
}

// talking is the call that is under way; one thread talks at a time.
var talking struct {
	runtime *wholeRuntime
	done    chan over
	pending *question // asked, not answered
}

// over is how a call ended.
type over struct {
	result int64
	err    error
}

//export ckpt_host_job
func ckpt_host_job() unsafe.Pointer { return unsafe.Pointer(opened.c) }

//export ckpt_host_talk
func ckpt_host_talk(p unsafe.Pointer) {
	t := (*C.ckpt_talk)(p)
	if t.subject != 0 {
		if err := beginTalk(t); err != nil {
			endTalk(t, over{err: err})
			return
		}
	} else {
		talking.pending.answer <- int64(t.result)
	}
	select {
	case q := <-talking.runtime.asks:
		talking.pending = q
		t.ask = q.ask
		for i, a := range q.a {
			t.a[i] = C.uint64_t(a)
		}
	case o := <-talking.done:
		opened.mu.Unlock()
		endTalk(t, o)
	}
}

func endTalk(t *C.ckpt_talk, o over) {
	t.ask, t.result = C.CKPT_ASK_NOTHING, C.int64_t(o.result)
	t.error.code, t.error.message[0] = 0, 0
	report(&t.error, o.err)
}

// beginTalk starts a call. opened.mu is held until the call is over.
func beginTalk(t *C.ckpt_talk) error {
	if !opened.mu.TryLock() {
		return errOf(C.CKPT_E_STATE, "another thread is opening, closing or saving the job")
	}
	f, err := subject(t)
	if err != nil {
		opened.mu.Unlock()
		return err
	}
	talking.done = make(chan over, 1)
	go func() {
		r, err := f()
		talking.done <- over{r, err}
	}()
	return nil
}

func subject(t *C.ckpt_talk) (func() (int64, error), error) {
	switch t.subject {
	case C.CKPT_TALK_OPEN:
		return talkOpen(*(**C.ckpt_config)(unsafe.Pointer(&t.a[0])), t.a[1])
	case C.CKPT_TALK_REOPEN:
		return talkReopen(t.a[1])
	}
	if opened.c == nil || talking.runtime == nil {
		return nil, errNotOpen
	}
	asked, stack := t.a[0] != 0, uint64(t.a[1])
	switch t.subject {
	case C.CKPT_TALK_CLOSE:
		return func() (int64, error) {
			err := process.Job.Close()
			opened.c = nil // its tables stay mapped: the application may still hold ids
			return 0, err
		}, nil
	case C.CKPT_TALK_CHECKPOINT:
		return func() (int64, error) {
			if rank, is := process.Job.TaskAt(stack); is {
				return int64(ckpt.StateError), errOf(C.CKPT_E_STATE,
					"ckpt_checkpoint was called on a stack in the memory of rank %d: call it on one of the process's own, since that of the rank goes on elsewhere", rank)
			}
			s, err := process.Job.Whole(asked)
			return int64(s), err
		}, nil
	}
	return nil, errOf(C.CKPT_E_VERSION, "libckpt.so and its core are of different versions")
}

func talkOpen(config *C.ckpt_config, has C.uint64_t) (func() (int64, error), error) {
	if opened.c != nil {
		return nil, errOf(C.CKPT_E_STATE, "this process has an open job already")
	}
	c, err := takeConfig(config)
	if err != nil {
		return nil, err
	}
	rt := &wholeRuntime{name: C.GoString(c.runtime), version: C.GoString(c.runtime_version), threads: int(c.thread_level), has: has,
		asks: make(chan *question)}
	talking.runtime = rt
	open := process.Open
	if process.Host == nil { // ckptrun has not started this process: regions mode
		o, err := ckpt.RegionOptions(C.GoString(c.dir), C.GoString(c.restart), os.Getenv)
		if err == nil {
			err = regionsLog(o)
		}
		if err != nil {
			return nil, err
		}
		open = func(_ ckpt.Runtime, tables *vid.Tables, bind func() error) error {
			return process.OpenRegions(rt, tables, o, bind)
		}
	}
	return func() (int64, error) {
		tables, job, err := newTables()
		if err != nil {
			return 0, err
		}
		opened.c, opened.tables = job, tables
		if err := open(rt, tables, func() error { return rt.bind(tables) }); err != nil {
			_ = tables.Close()
			C.free(unsafe.Pointer(job))
			opened.c, opened.tables = nil, nil
			return 0, err
		}
		return int64(tables.Address()), nil
	}, nil
}

// leaveLauncher is called when a continued program ends as it should.
var leaveLauncher = func() error { return nil }

// continueWhole is the first step of a restart.
func continueWhole() error {
	boot, err := meeting.Find(context.Background(), meeting.Options{
		Getenv: os.Getenv, Dir: process.Options.Dir, Ranks: process.Restart.Ranks(), PMIx: launcherPMIx, Log: ckpt.Structured(process.Log)})
	if err != nil {
		return err
	}
	// Open until the program has ended as it should: a launcher takes the end of a rank that has left for a good one.
	leaveLauncher = boot.Close
	tables, job, err := newTables()
	if err != nil {
		return err
	}
	rt := &wholeRuntime{name: process.Restart.MPIName(), version: process.Restart.MPIVersion(), threads: process.Restart.Threads(), boot: boot,
		asks: make(chan *question)}
	if err := process.ContinueWhole(rt, tables); err != nil {
		return err
	}
	talking.runtime, opened.c, opened.tables = rt, job, tables
	return nil
}

// talkReopen is the second step.
func talkReopen(has C.uint64_t) (func() (int64, error), error) {
	rt := talking.runtime
	if rt == nil || rt.boot == nil || process.Job == nil {
		return nil, errOf(C.CKPT_E_STATE, "this process was not restarted from an image")
	}
	rt.has, rt.boot = has, nil
	return func() (int64, error) {
		process.Restart = nil
		return 0, process.Job.Reopen(func() error { return rt.bind(opened.tables) })
	}, nil
}

// newTables makes the tables of virtual ids, and the job through which C finds them.
func newTables() (*vid.Tables, *C.ckpt_job, error) {
	var at uintptr
	if process.Host != nil {
		at = snapshot.Tables
	}
	tables, err := vid.Open(at, snapshot.TablesBytes)
	if err != nil {
		return nil, nil, err
	}
	c := (*C.ckpt_job)(C.calloc(1, C.sizeof_ckpt_job))
	if c == nil {
		return nil, nil, errors.Join(errOf(C.CKPT_E_SYSTEM, "memory is out"), tables.Close())
	}
	a := tables.Address()
	c.tables = *(**C.ckpt_tables)(unsafe.Pointer(&a))
	return tables, c, nil
}

// ---- callbacks ----------------------------------------------------------------------------------

func (r *wholeRuntime) ask(what C.uint32_t, args ...uint64) int64 {
	q := &question{ask: what, answer: make(chan int64)}
	copy(q.a[:], args)
	r.asks <- q
	return <-q.answer
}

// result is the error of a callback that returned code.
func (r *wholeRuntime) result(what string, code int64) error {
	if code >= 0 {
		return nil
	}
	if why := r.text(C.CKPT_ASK_FAILURE); why != "" {
		return errOf(C.int(code), "%s: %s", what, why)
	}
	return errOf(C.int(code), "%s: the runtime failed and does not say why (code %d)", what, code)
}

// text asks for a line.
func (r *wholeRuntime) text(what C.uint32_t) string {
	b := (*C.char)(C.calloc(1, whyBytes))
	defer C.free(unsafe.Pointer(b))
	if r.ask(what, uint64(uintptr(unsafe.Pointer(b))), whyBytes) == 0 && what == C.CKPT_ASK_HOLDS {
		return ""
	}
	return C.GoString(b)
}

// withError asks for a step that fills a ckpt_error, behind its other arguments.
func (r *wholeRuntime) withError(what C.uint32_t, args ...uint64) (int64, error) {
	e := (*C.ckpt_error)(C.calloc(1, C.sizeof_ckpt_error))
	defer C.free(unsafe.Pointer(e))
	e.size = C.sizeof_ckpt_error
	n := r.ask(what, append(args, uint64(uintptr(unsafe.Pointer(e))))...)
	if n < 0 {
		return n, errOf(C.int(n), "%s", C.GoString(&e.message[0]))
	}
	return n, nil
}

func (r *wholeRuntime) Name() string    { return r.name }
func (r *wholeRuntime) Version() string { return r.version }
func (r *wholeRuntime) Threads() int    { return r.threads }

func (r *wholeRuntime) Rank() int {
	if r.boot != nil {
		return r.boot.Rank()
	}
	return int(r.ask(C.CKPT_ASK_RANK))
}

func (r *wholeRuntime) Ranks() int {
	if r.boot != nil {
		return r.boot.Ranks()
	}
	return int(r.ask(C.CKPT_ASK_RANKS))
}

// Tasks asks which ranks live here.
func (r *wholeRuntime) Tasks() ([]int32, error) {
	if r.has&C.CKPT_HAS_TASKS == 0 {
		return nil, nil
	}
	n := r.ask(C.CKPT_ASK_LOCAL_TASKS)
	if n < 1 || n > mostTasks {
		return nil, errOf(C.CKPT_E_ARG, "the runtime says that this process has %d local tasks, and has task_rank: all must be there in ckpt_open", n)
	}
	tasks := make([]int32, n)
	for i := range tasks {
		rank := r.ask(C.CKPT_ASK_TASK_RANK, uint64(i))
		if rank < 0 || rank > math.MaxInt32 {
			return nil, errOf(C.CKPT_E_ARG, "the runtime says that local task %d is rank %d (task_rank)", i, rank)
		}
		tasks[i] = int32(rank)
	}
	return tasks, nil
}

// mostTasks is beyond what a process can have.
const mostTasks = 1 << 24

func (r *wholeRuntime) Allgather(mine []byte) ([][]byte, error) {
	if r.boot != nil {
		return r.boot.Allgather(mine)
	}
	n, ranks := len(mine), r.Ranks()
	in, out := C.CBytes(mine), C.malloc(C.size_t(max(1, n*ranks)))
	defer C.free(in)
	defer C.free(out)
	if e := r.ask(C.CKPT_ASK_ALLGATHER, uint64(uintptr(in)), uint64(uintptr(out)), uint64(n)); e != 0 {
		return nil, errOf(C.CKPT_E_PEER, "the runtime's all-gather failed (%d)", e)
	}
	all, list := C.GoBytes(out, C.int(n*ranks)), make([][]byte, ranks)
	for i := range list {
		list[i] = all[i*n : (i+1)*n]
	}
	return list, nil
}

func (r *wholeRuntime) Progress() {
	if r.has&C.CKPT_HAS_PROGRESS != 0 || process.Job != nil && process.Job.Signals().Waiting() {
		r.ask(C.CKPT_ASK_PROGRESS)
	}
}

func (r *wholeRuntime) bind(tables *vid.Tables) error {
	return r.result("the runtime could not bind its predefined objects", r.ask(C.CKPT_ASK_BIND, uint64(tables.Address())))
}

// Rebuild keeps the handle where the runtime does not say otherwise: its memory is that of the image.
func (r *wholeRuntime) Rebuild(kind, id uint32, descriptor []byte, real uint64) (uint64, error) {
	if r.has&C.CKPT_HAS_REBUILD == 0 {
		return real, nil
	}
	d, out := C.CBytes(descriptor), (*C.uint64_t)(C.malloc(8))
	defer C.free(d)
	defer C.free(unsafe.Pointer(out))
	*out = C.uint64_t(real)
	e := r.ask(C.CKPT_ASK_REBUILD, uint64(kind), uint64(id), uint64(uintptr(d)), uint64(len(descriptor)), uint64(uintptr(unsafe.Pointer(out))))
	if err := r.result("the runtime could not make it again", e); err != nil {
		return 0, err
	}
	return uint64(*out), nil
}

func (r *wholeRuntime) Holds() string {
	if r.has&C.CKPT_HAS_HOLDS == 0 {
		return ""
	}
	return r.text(C.CKPT_ASK_HOLDS)
}

func (r *wholeRuntime) OneSided() bool {
	return r.has&C.CKPT_HAS_ONE_SIDED != 0 && r.ask(C.CKPT_ASK_ONE_SIDED) != 0
}

func (r *wholeRuntime) Settle() error {
	return r.result("completing what was begun on windows", r.ask(C.CKPT_ASK_SETTLE))
}

// Drain makes one turn of the runtime's, takes signals that have come, and looks whether its rails are quiet.
func (r *wholeRuntime) Drain() (int, error) {
	left := int64(0)
	if r.has&C.CKPT_HAS_DRAIN != 0 {
		left = r.ask(C.CKPT_ASK_DRAIN)
		if err := r.result("receiving what is under way", left); err != nil {
			return 0, err
		}
	}
	quiet, err := r.withError(C.CKPT_ASK_RAILS_QUIET)
	if err != nil {
		return 0, err
	}
	if quiet == 0 {
		left++
	}
	return int(left), nil
}

func (r *wholeRuntime) Quiesce(on, program bool) error {
	var n, calls uint64
	if on {
		n = 1
	}
	if program {
		calls = 1
	}
	return r.result("keeping the runtime out of its rails (quiesce)", r.ask(C.CKPT_ASK_QUIESCE, n, calls))
}

func (r *wholeRuntime) CloseRails() error {
	_, err := r.withError(C.CKPT_ASK_RAILS_CLOSE)
	return err
}

func (r *wholeRuntime) ReopenRails(why ckpt.Why) error {
	_, err := r.withError(C.CKPT_ASK_RAILS_REOPEN, uint64(why))
	return err
}

// What follows is in the runtime's own memory, and saved with it, or may not be asked while its threads run.

func (*wholeRuntime) Inside() string                                 { return "" }
func (*wholeRuntime) Waiting() []where.Waiting                       { return nil }
func (*wholeRuntime) Synchronous() bool                              { return false }
func (*wholeRuntime) Claims() []ckpt.Claim                           { return nil }
func (*wholeRuntime) Judge([]ckpt.Claim)                             {}
func (*wholeRuntime) Answered([]ckpt.Claim)                          {}
func (*wholeRuntime) StartDeferred()                                 {}
func (*wholeRuntime) Finalize() error                                { return nil }
func (*wholeRuntime) Memory() []uint64                               { return nil }
func (*wholeRuntime) Save(func(int) ([]byte, error)) ([]byte, error) { return nil, errNotSaved }
func (*wholeRuntime) Load([]byte) error                              { return errNotSaved }
func (*wholeRuntime) Files() (all, own []files.Named, err error)     { return nil, nil, errNotSaved }

var errNotSaved = fmt.Errorf("a runtime in the program's half is saved with its memory")
