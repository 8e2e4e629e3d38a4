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
	"path/filepath"
	"strings"
	"unsafe"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/internal/backs"
	"github.com/libckpt/libckpt/internal/fault"
)

// process says how this process was started. ckpt_host_plan writes it before anything else runs.
var process = ckpt.Process{Log: zap.NewNop()}

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
	process.Host = host{ops}
	if err := makePlan(plan, cArgs(argc, argv)); err != nil {
		text, status := launch.Exit(err, ckpt.Version)
		var said *ckpt.SaidError
		if errors.As(err, &said) {
			text = ""
		}
		plan.action, plan.exit_status, plan.message = C.PLAN_EXIT, C.int(status), C.CString(text)
	}
	return 0
}

func makePlan(plan *C.struct_host_plan, args []string) error {
	o, rest, own, err := launch.Parse(args[1:], os.Getenv)
	if err != nil {
		return err
	}
	process.Options = o
	fault.Stress()
	if process.Log, err = ckpt.NewLog(o.Log, process.Host.Original(2)); err != nil {
		return err
	}
	if plan.fs_switched != nil {
		process.Log.Debug("each crossing between the halves writes the FS base", zap.String("why", C.GoString(plan.fs_switched)))
	} else {
		process.Log.Debug("no crossing between the halves writes the FS base: the lower half uses GS")
	}
	if o.Trap == "sud" {
		plan.sud = 1
	}
	if o.SafeState == "2pc" {
		plan.two_phase = 1
	}
	if o.Whole {
		plan.whole = 1
	}
	chooseBack(plan, o.MPI)
	again := func() { plan.again = cStrings(launch.Again(args[1:1+own], process.Options)) }
	again()
	if launch.Launched(os.Getenv) && !o.Several() {
		plan.launched = 1
	}
	if plan.trigger_fd, plan.trigger_mask, err = openTriggers(o); err != nil {
		return err
	}
	if o.Restart != "" {
		err := planRestart(plan)
		again() // the epoch says how many ranks there are
		return err
	}
	p, err := o.Find(rest, os.Getenv("PATH"))
	if err != nil {
		return err
	}
	if err := checkFront(p.Exe, o); err != nil {
		return err
	}
	process.Program = p
	plan.action = C.PLAN_RUN
	plan.exe, plan.interp, plan.argv = C.CString(p.Exe), C.CString(p.Interp), cStrings(p.Argv)
	plan.comm = C.CString(p.Comm)
	return nil
}

func planRestart(plan *C.struct_host_plan) error {
	back, err := process.PlanRestart(os.Getenv)
	if err != nil {
		return err
	}
	plan.action = C.PLAN_RESTART
	switch {
	case process.Restart.Whole():
		plan.whole = 1
	case process.Restart.MPI():
		plan.restart_mpi = 1
	case process.Restart.Together():
		plan.launched = 0
	}
	if back != "" {
		chooseBack(plan, back)
	}
	return nil
}

// chooseBack finds the back for an MPI. That there is none matters to MPI programs alone.
func chooseBack(plan *C.struct_host_plan, mpi string) {
	var path string
	lib, err := backs.Library()
	if err == nil {
		chosen := mpi != launch.LauncherMPI(os.Getenv)
		path, err = backs.PlaceOf(os.Getenv, lib).Choose(mpi, ckpt.Version, chosen, ckpt.Launchers)
	}
	plan.back, plan.no_back = C.CString(path), C.CString(line(err))
}

// checkFront refuses a program of an MPI for which there is no front: the dynamic linker would load that MPI into the
// program's half, which is saved.
func checkFront(exe string, o launch.Options) error {
	lib, err := backs.Library()
	if err != nil || o.Whole { // a program that brings its MPI
		return err
	}
	dir := filepath.Join(lib, "ckpt", "front")
	if library, has := backs.FrontOf(exe, dir); library != "" && !has {
		return fmt.Errorf("%s is linked with %s, an MPI of an ABI for which libckpt has no front: compile it with MPICH 3.1 or newer "+
			"(or Intel MPI, MVAPICH or another one of its ABI), with Open MPI 3 or newer, or for the standard ABI (mpicc_abi)", exe, library)
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

// sentence makes an error one line in C memory, which is never freed because the process then ends. The line is
// empty when there is no message to print.
func sentence(err error) *C.char { return C.CString(line(err)) }

func line(err error) string {
	var said *ckpt.SaidError
	if err == nil || errors.As(err, &said) {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

//export ckpt_host_start
func ckpt_host_start(message **C.char) C.int {
	if err := process.Start(); err != nil {
		*message = sentence(err)
		return 1
	}
	return 0
}

//export ckpt_host_restore
func ckpt_host_restore(message **C.char, status *C.int) C.int {
	next := process.Continue
	if process.Restart.Whole() {
		next = continueWhole
	}
	if err := next(); err != nil {
		*message = sentence(err)
		*status = launch.ExitFailed
		return 1
	}
	return 0
}

//export ckpt_host_memory
func ckpt_host_memory(start, end C.uint64_t, change C.int) {
	process.Memory(uint64(start), uint64(end), ckpt.MemoryChange(change))
}

//export ckpt_host_come
func ckpt_host_come(state *C.int, why *C.char, bytes C.size_t) C.int {
	if process.Job == nil {
		return C.HOST_COME
	}
	come, err := process.Job.Come()
	switch {
	case err != nil:
		putText(why, bytes, err)
		*state = C.int(ckpt.StateIgnore)
		return C.HOST_STAY
	case !come:
		return C.HOST_AGAIN
	}
	return C.HOST_COME
}

//export ckpt_host_checkpoint
func ckpt_host_checkpoint(why *C.char, bytes C.size_t) C.int {
	if process.Job == nil {
		return C.int(ckpt.StateIgnore)
	}
	state, err := process.Job.Cooperative()
	putText(why, bytes, err)
	return C.int(state)
}

//export ckpt_host_ending
func ckpt_host_ending(status, parent C.int) {
	if process.Job != nil {
		process.Job.Ending(status == 0 && parent == 0)
	}
	if status == 0 {
		if err := leaveLauncher(); err != nil {
			process.Log.Info("leaving the launcher", zap.Error(err))
		}
	}
}

func putText(to *C.char, bytes C.size_t, err error) {
	if to == nil || bytes == 0 {
		return
	}
	text := line(err)
	b := unsafe.Slice((*byte)(unsafe.Pointer(to)), int(bytes))
	n := copy(b[:len(b)-1], text)
	b[n] = 0
}
