// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"fmt"
	"os"
	"time"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/posixshm"
)

const (
	// parkTimeout bounds one try to stop the threads; a try that fails costs nothing.
	parkTimeout = 10 * time.Second
	// asyncParkTimeout is shorter: the try is made again.
	asyncParkTimeout = 2 * time.Second
)

// parkReport is what a rank says once its program is stopped, or cannot be.
type parkReport struct {
	Obstacle string       `json:"obstacle,omitempty"`
	Disk     bool         `json:"disk,omitempty"` // the obstacle is a disk that does not answer
	OneSided bool         `json:"onesided,omitempty"`
	Synced   bool         `json:"synced,omitempty"`
	Then     after.Action `json:"then,omitempty"` // rank 0: what was asked for
	Segments []string     `json:"segments,omitempty"`
	Sockets  bool         `json:"sockets,omitempty"`
	Verbs    bool         `json:"verbs,omitempty"`
	SysV     bool         `json:"sysv,omitempty"`

	Posix *posixshm.Report `json:"posix,omitempty"`
}

// parkHere stops the program on this rank, and finds out what is in the way.
func (a *attempt) parkHere() parkReport {
	j := a.j
	mine := parkReport{Then: a.then}
	if err := j.finishLoading(a.ctx); err != nil {
		mine.Obstacle = err.Error()
		return mine
	}
	if err := j.host.Park(a.parkTimeout()); err != nil {
		mine.Obstacle = err.Error()
		if j.runtime != nil && j.embedded == nil {
			if call := j.runtime.Inside(); call != "" {
				mine.Obstacle += "; it waits for processes of another job in " + call
			}
		}
		return mine
	}
	a.parked.Store(true)
	mine.Sockets = j.hasSockets()
	mine.Verbs = j.usesVerbs()
	if err := a.lookShared(&mine); err != nil {
		mine.Obstacle = err.Error()
		return mine
	}
	mine.Segments = j.signals.Segments().Held()
	mine.Obstacle = j.slow.obstacle()
	mine.Disk = mine.Obstacle != ""
	// A rank that has withdrawn has let its program go on, which may be anywhere now.
	if a.async && !j.clock.Safe(a.clock) {
		mine.Obstacle, mine.Disk = errWithdrawn.Error(), false
	}
	if j.runtime == nil || j.embedded != nil { // an embedded one was asked before
		return mine
	}
	err := a.onProgram(func() {
		if mine.Obstacle == "" {
			mine.Obstacle = j.runtime.Holds()
		}
		mine.OneSided = j.runtime.OneSided()
		mine.Synced = j.runtime.Synchronous()
	})
	if err != nil {
		mine.Obstacle, mine.Disk = err.Error(), false
	}
	return mine
}

// lookShared says which memory this rank shares with others.
func (a *attempt) lookShared(mine *parkReport) error {
	if a.j.regional != nil {
		return nil
	}
	maps, err := os.ReadFile("/proc/self/maps") // once: of a program with many libraries it takes a millisecond
	if err != nil {
		return err
	}
	mine.SysV, mine.Posix = a.lookSysV(maps), lookPosix(maps)
	return nil
}

func (a *attempt) parkTimeout() time.Duration {
	timeout := parkTimeout
	if a.async {
		timeout = asyncParkTimeout
	}
	if end, ok := a.ctx.Deadline(); ok {
		timeout = max(min(timeout, time.Until(end)), time.Millisecond)
	}
	return timeout
}

func (a *attempt) prefix(rank int) string {
	if a.j.group.size() == 1 {
		return ""
	}
	return fmt.Sprintf("rank %d: ", rank)
}
