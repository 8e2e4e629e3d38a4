// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"errors"
	"os"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/control"
)

// Who asks besides operators and the program: the interval and signals.

// watchTime asks for checkpoints by --interval, or when the chooser says so, on rank 0.
func (j *Job) watchTime() {
	if j.options.Interval == 0 {
		if j.when != nil {
			j.watchChosen()
		}
		return
	}
	for {
		select {
		case <-j.done:
			return
		case <-time.After(j.options.Interval):
			j.ask(after.Continue, "the interval")
		}
	}
}

// ask requests a checkpoint on behalf of the job itself, as soon as requests are served; rank 0 only.
func (j *Job) ask(then after.Action, who string) {
	select {
	case <-j.serving:
	case <-j.done:
		return
	}
	if j.owned.lostTo() != nil {
		return
	}
	_, err := j.server.Request(context.Background(), control.Request{Then: then, Unattended: true}, func(control.Event) {})
	if err != nil && !errors.Is(err, control.ErrEnding) && j.owned.lostTo() == nil {
		j.log.Warn("checkpoint", zap.String("asked by", who), zap.Error(err))
	}
}

// watchSignals reads the numbers of signals that C writes into the pipe (--signal).
func (j *Job) watchSignals() {
	if triggers == nil {
		return
	}
	b := make([]byte, 1)
	for {
		if n, err := triggers.Read(b); err != nil || n == 0 {
			return
		}
		then, ok := j.options.Signals[unix.Signal(b[0])]
		if !ok {
			continue
		}
		if j.group.rank() == 0 {
			go j.ask(then, "a signal")
		} else if err := j.net.Send(context.Background(), 0, kindTrigger, []byte(then)); err != nil {
			j.log.Warn("passing a signal on to rank 0", zap.Error(err))
		}
	}
}

var triggers *os.File

// TriggerPipe makes the pipe through which signals ask for checkpoints; it returns the end for C.
func TriggerPipe() (fd int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return -1, err
	}
	triggers = os.NewFile(uintptr(p[0]), "signals")
	return p[1], nil
}
