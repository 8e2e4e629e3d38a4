// SPDX-License-Identifier: Apache-2.0

package main

/*
#include <stdlib.h>
#include "ckpt/private/named.h"
static int world_allgather(const ckpt_world *w, const void *mine, void *all, size_t n) {
    return w->allgather(mine, all, n);
}
static void world_progress(const ckpt_world *w) { w->progress(); }
*/
import "C"

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"sync"
	"unsafe"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/meeting"
	"github.com/libckpt/libckpt/ckpt/regions"
	"github.com/libckpt/libckpt/ckpt/store"
)

// nameable is the job of a program that names its state. A process has one.
var nameable struct {
	mu    sync.Mutex
	job   *ckpt.Job
	level int             // unless the program says one
	met   meeting.Meeting // of the launcher; nil: the program's MPI.  A process meets once, also when it opens again.
}

// mpiWorld is the program's MPI.
type mpiWorld struct{ c C.ckpt_world }

func (w *mpiWorld) Rank() int { return int(w.c.rank) }
func (w *mpiWorld) Size() int { return int(w.c.ranks) }
func (w *mpiWorld) progress() { C.world_progress(&w.c) }

func (w *mpiWorld) Allgather(mine []byte) ([][]byte, error) {
	n, ranks := len(mine), w.Size()
	in, out := C.CBytes(mine), C.malloc(C.size_t(max(1, n*ranks)))
	defer C.free(in)
	defer C.free(out)
	if e := C.world_allgather(&w.c, in, out, C.size_t(n)); e != 0 {
		return nil, errOf(C.CKPT_E_PEER, "the all-gather of the program's MPI failed (%d)", e)
	}
	all, list := C.GoBytes(out, C.int(n*ranks)), make([][]byte, ranks)
	for i := range list {
		list[i] = all[i*n : (i+1)*n]
	}
	return list, nil
}

// metRanks are those of a launcher.
type metRanks struct{ meeting.Meeting }

func (m metRanks) Size() int { return m.Ranks() }

//export ckpt_named_open
func ckpt_named_open(world *C.ckpt_world, e *C.ckpt_error) C.int {
	nameable.mu.Lock()
	defer nameable.mu.Unlock()
	return report(e, openNamed(world))
}

// getenv reads the program's environment as it is now: Go has that with which the process was started.
func getenv(name string) string {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	return C.GoString(C.getenv(n))
}

func openNamed(world *C.ckpt_world) error {
	if nameable.job != nil {
		return nil
	}
	if opened.c != nil {
		return errOf(C.CKPT_E_STATE, "a runtime in this process has a job open already (ckpt_open)")
	}
	o, err := ckpt.NamedOptions("", getenv)
	if err != nil {
		return err
	}
	if nameable.level, err = ckpt.DefaultLevel(o, getenv); err != nil {
		return errOf(C.CKPT_E_ARG, "%v", err)
	}
	if err = regionsLog(o); err != nil {
		return err
	}
	if world != nil {
		w := &mpiWorld{*world}
		nameable.job, err = ckpt.OpenNamed(w, C.GoString(w.c.name), C.GoString(&w.c.version[0]), w.progress, o, process.Log)
		return err
	}
	if _, err := store.Create(o.Dir); err != nil { // the processes may meet there
		return err
	}
	if nameable.met == nil {
		if nameable.met, err = meeting.Find(context.Background(), meeting.Options{Getenv: os.Getenv, Dir: o.Dir, PMIx: launcherPMIx, Log: ckpt.Structured(process.Log)}); err != nil {
			return err
		}
	}
	nameable.job, err = ckpt.OpenNamed(metRanks{nameable.met}, "none", "", nil, o, process.Log)
	return err
}

//export ckpt_named_close
func ckpt_named_close(e *C.ckpt_error) C.int {
	nameable.mu.Lock()
	defer nameable.mu.Unlock()
	if nameable.job == nil {
		return report(e, nil)
	}
	err := nameable.job.Close()
	nameable.job = nil
	if nameable.met != nil {
		err = errors.Join(err, nameable.met.Close())
		nameable.met = nil
	}
	return report(e, err)
}

//export ckpt_named_level
func ckpt_named_level(level C.int, e *C.ckpt_error) C.int {
	o, err := ckpt.NamedOptions("", getenv)
	if err == nil {
		err = ckpt.CheckLevel(int(level), o)
	}
	if err != nil {
		return report(e, errOf(C.CKPT_E_NOTSUP, "%v", err))
	}
	return report(e, nil)
}

//export ckpt_named_raise
func ckpt_named_raise(level C.int, e *C.ckpt_error) C.int {
	return withNamed(e, func(j *ckpt.Job) error { return j.RaiseNamed(int(level)) })
}

// withNamed runs f with the open job.
func withNamed(e *C.ckpt_error, f func(j *ckpt.Job) error) C.int {
	nameable.mu.Lock()
	defer nameable.mu.Unlock()
	err := error(errOf(C.CKPT_E_STATE, "the job was closed: the program has called MPI_Finalize"))
	if nameable.job != nil {
		err = f(nameable.job)
	}
	if errors.Is(err, ckpt.ErrNoneSaved) {
		report(e, err)
		return C.CKPT_NAMED_NONE
	}
	return report(e, err)
}

// takeNamed makes pieces of C's list, whose memory is the program's.
func takeNamed(list *C.ckpt_named, n C.size_t) []ckpt.Protected {
	out := make([]ckpt.Protected, n)
	for i, c := range unsafe.Slice(list, int(n)) {
		out[i] = ckpt.Protected{ID: int(c.id), Data: unsafe.Slice((*byte)(c.base), uint64(c.bytes))}
		if c.dims == C.CKPT_NAMED_OWN {
			continue
		}
		b := &regions.Block{Element: uint64(c.element)}
		for d := range int(c.dims) {
			b.Whole = append(b.Whole, uint64(c.whole[d]))
			b.First = append(b.First, uint64(c.first[d]))
			b.Count = append(b.Count, uint64(c.count[d]))
		}
		out[i].Block = b
	}
	return out
}

//export ckpt_named_save
func ckpt_named_save(list *C.ckpt_named, n C.size_t, level C.int, state *C.int, e *C.ckpt_error) C.int {
	*state = C.CKPT_STATE_ERROR
	return withNamed(e, func(j *ckpt.Job) error {
		if level == 0 {
			level = C.int(nameable.level)
		}
		s, _, err := j.SaveNamed(takeNamed(list, n), int(level), nil)
		*state = C.int(s)
		return err
	})
}

//export ckpt_named_look
func ckpt_named_look(e *C.ckpt_error) C.int {
	var lost []string
	var epoch int
	r := withNamed(e, func(j *ckpt.Job) (err error) {
		epoch, lost, err = j.Look()
		return err
	})
	if r == 0 && len(lost) > 0 {
		report(e, errOf(C.CKPT_OK, "%s: epoch %d was taken", strings.Join(lost, "; "), epoch))
	}
	return r
}

//export ckpt_named_load
func ckpt_named_load(list *C.ckpt_named, n C.size_t, e *C.ckpt_error) C.int {
	return withNamed(e, func(j *ckpt.Job) error { return j.LoadNamed(takeNamed(list, n)) })
}

//export ckpt_named_load_one
func ckpt_named_load_one(one *C.ckpt_named, e *C.ckpt_error) C.int {
	return withNamed(e, func(j *ckpt.Job) error { return j.LoadOne(takeNamed(one, 1)[0]) })
}

//export ckpt_named_bytes
func ckpt_named_bytes(id C.int, bytes *C.size_t, e *C.ckpt_error) C.int {
	return withNamed(e, func(j *ckpt.Job) error {
		n, err := j.SavedBytes(int(id))
		if err == nil && n > math.MaxInt64 {
			err = errOf(C.CKPT_E_CORRUPT, "region %d has %d bytes", id, n)
		}
		*bytes = C.size_t(n)
		return err
	})
}
