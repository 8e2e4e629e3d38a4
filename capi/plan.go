// SPDX-License-Identifier: Apache-2.0

package main

/*
#include <stdlib.h>
#include <string.h>
#include "hostgo.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/store"
)

// process is what this process was started as. Written by ckpt_host_plan, before anything else runs.
var process struct {
	host    host
	options launch.Options
	program launch.Program
	restart *ckpt.Restart // nil when a program is started
	log     *zap.Logger
	job     *ckpt.Job // nil outside ckptrun
}

func init() { process.log = zap.NewNop() }

func cArgs(argc C.int, argv **C.char) []string {
	out := make([]string, argc)
	for i, p := range unsafe.Slice(argv, int(argc)) {
		out[i] = C.GoString(p)
	}
	return out
}

// cStrings makes a NULL-terminated array, which is never freed.
func cStrings(list []string) **C.char {
	p := C.calloc(C.size_t(len(list)+1), C.size_t(unsafe.Sizeof(uintptr(0))))
	for i, s := range list {
		unsafe.Slice((**C.char)(p), len(list)+1)[i] = C.CString(s)
	}
	return (**C.char)(p)
}

//export ckpt_host_plan
func ckpt_host_plan(plan *C.struct_host_plan, argc C.int, argv **C.char, ops *C.struct_host_ops) C.int {
	if plan.version != C.HOSTGO_VERSION || ops.size != C.sizeof_struct_host_ops {
		return -1
	}
	process.host = host{ops}
	if err := makePlan(plan, cArgs(argc, argv)); err != nil {
		text, status := "ckptrun: "+err.Error()+"\n", launch.ExitFailed
		var e *launch.Error
		switch {
		case errors.Is(err, launch.ErrHelp):
			text, status = launch.Help(), 0
		case errors.Is(err, launch.ErrVersion):
			text, status = "ckptrun "+ckpt.Version+"\n", 0
		case errors.As(err, &e):
			status = e.Status
		case errors.Is(err, store.ErrSpec):
			status = launch.ExitUsage
		case errors.Is(err, store.ErrNone):
			status = launch.ExitNone
		}
		plan.action, plan.exit_status, plan.message = C.PLAN_EXIT, C.int(status), C.CString(text)
	}
	return 0
}

// startStress makes it hard for Go's runtime, in the tree for tests (stress.go).
var startStress = func() {}

func makePlan(plan *C.struct_host_plan, args []string) error {
	o, rest, own, err := launch.Parse(args[1:], os.Getenv)
	if err != nil {
		return err
	}
	process.options = o
	startStress()
	if process.log, err = newLog(o.Log); err != nil {
		return err
	}
	if o.Trap == "sud" {
		plan.sud = 1
	}
	if o.SafeState == "2pc" {
		plan.two_phase = 1
	}
	plan.back = C.CString(o.MPI)
	plan.again = cStrings(launch.Again(args[1:1+own], o))
	if launch.Launched(os.Getenv) {
		plan.launched = 1
	}
	if plan.trigger_fd, plan.trigger_mask, err = openTriggers(o); err != nil {
		return err
	}
	if o.Restart != "" {
		return planRestart(plan, o)
	}
	p, err := o.Find(rest, os.Getenv("PATH"))
	if err != nil {
		return err
	}
	process.program = p
	plan.action = C.PLAN_RUN
	plan.exe, plan.interp, plan.argv = C.CString(p.Exe), C.CString(p.Interp), cStrings(p.Argv)
	plan.comm = C.CString(p.Comm)
	return nil
}

func planRestart(plan *C.struct_host_plan, o launch.Options) error {
	r, err := ckpt.OpenRestart(o.Restart)
	if err != nil {
		return err
	}
	if n := launch.LauncherRanks(os.Getenv); n > 0 || !r.MPI() {
		if err := r.CheckRanks(max(n, 1)); err != nil {
			return err
		}
	}
	// Before anything else, and of an MPI job before MPI is started: who is refused has touched nothing.
	switch rank := launch.LauncherRank(os.Getenv); {
	case !r.MPI() || o.MPI == "" || rank == 0:
		err = r.Own(o, process.log)
	case rank > 0:
		err = r.AwaitOwner(o, process.log)
	}
	if err != nil {
		return err
	}
	process.restart = r
	plan.action = C.PLAN_RESTART
	if r.MPI() {
		plan.restart_mpi = 1
		if o.MPI == "" {
			// Not under a launcher: a job of one rank can be continued alone.
			if r.Ranks() > 1 {
				r.Disown()
				return fmt.Errorf("the job has %d ranks; run `mpiexec -n %d ckptrun --restart %s`", r.Ranks(), r.Ranks(), o.Restart)
			}
			plan.back = C.CString(r.MPIName())
		}
	}
	return nil
}

func openTriggers(o launch.Options) (C.int, C.uint64_t, error) {
	var mask C.uint64_t
	for sig := range o.Signals {
		mask |= 1 << (uint(sig) - 1)
	}
	if mask == 0 {
		return -1, 0, nil
	}
	fd, err := ckpt.TriggerPipe()
	return C.int(fd), mask, err
}

// newLog writes to the launcher's stderr: the program may close or redirect its own.
func newLog(level string) (*zap.Logger, error) {
	l, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, err
	}
	fd := process.host.Original(2)
	if fd < 0 {
		return zap.NewNop(), nil
	}
	enc := zap.NewDevelopmentEncoderConfig()
	enc.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
	sink := zapcore.Lock(zapcore.AddSync(os.NewFile(uintptr(fd), "stderr")))
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(enc), sink, l)).Named("ckptrun"), nil
}

// sentence makes an error one line of C memory, never freed: the process ends with it.
func sentence(err error) *C.char { return C.CString(strings.ReplaceAll(err.Error(), "\n", "; ")) }

//export ckpt_host_start
func ckpt_host_start(message **C.char) C.int {
	job, err := ckpt.Start(process.host, process.options, process.program, process.log)
	if err != nil {
		*message = sentence(err)
		return 1
	}
	process.job = job
	return 0
}

//export ckpt_host_restore
func ckpt_host_restore(message **C.char, status *C.int) C.int {
	job, err := ckpt.Continue(process.host, process.options, process.restart, process.log)
	if err != nil {
		*message = sentence(err)
		*status = launch.ExitFailed
		return 1
	}
	process.job = job
	return 0
}

//export ckpt_host_checkpoint
func ckpt_host_checkpoint(why *C.char, bytes C.size_t) C.int {
	if process.job == nil {
		return C.int(ckpt.StateIgnore)
	}
	state, err := process.job.Cooperative()
	putText(why, bytes, err)
	return C.int(state)
}

//export ckpt_host_ending
func ckpt_host_ending(status, parent C.int) {
	if process.job != nil {
		process.job.Ending(status == 0 && parent == 0)
	}
}

func putText(to *C.char, bytes C.size_t, err error) {
	if to == nil || bytes == 0 {
		return
	}
	text := ""
	if err != nil {
		text = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(to)), int(bytes))
	n := copy(b[:len(b)-1], text)
	b[n] = 0
}
