// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"fmt"
	"runtime"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/snapshot"
)

// The memory of the frozen copy is bounded by --snapshot-memory. Where the bound would not hold from the beginning there
// is no copy. Otherwise the copy is watched while it is written, and when it has grown too much, the program is stopped
// again until its image is written: a program that stands changes nothing.

const (
	// brakeAt is the part of the bound at which the program is stopped: that takes a moment, in which it writes on.
	brakeAt = 7. / 8
	// brakeLook is how often faults are counted, which costs nothing.
	brakeLook = 2 * time.Millisecond
	// brakePark bounds one try to stop the program.
	brakePark = 100 * time.Millisecond
)

// brake watches one frozen copy.
type brake struct {
	over  chan struct{} // closed when the image is written
	ended chan struct{} // closed when the program is let go
	stood time.Duration
}

// sharedTooLarge says why a copy of so much shared memory, which all processes of a node make at once, would take too much; "" when
// it is made.
func (j *Job) sharedTooLarge(bytes uint64) string {
	if limit := j.options.SnapshotMemory; limit > 0 && bytes > uint64(limit) {
		return fmt.Sprintf("shared memory alone takes %d bytes to copy", bytes)
	}
	available, err := snapshot.Available()
	if err != nil { // then it is tried
		return ""
	}
	if here := uint64(max(1, min(j.group.size(), runtime.NumCPU()))); bytes > available/here {
		return fmt.Sprintf("shared memory takes %d bytes to copy, and this node has %d left", bytes, available)
	}
	return ""
}

// copyTooLarge says why a copy would take too much memory; "" when it is tried.
func (a *attempt) copyTooLarge() string {
	limit := a.j.options.SnapshotMemory
	if limit <= 0 {
		return ""
	}
	shared := uint64(0)
	if a.capture != nil {
		for i := range a.capture.regions {
			for _, p := range a.capture.regions[i].Copied {
				shared += uint64(len(p.Data))
			}
		}
	}
	own, err := snapshot.OwnMemory()
	if err != nil {
		return err.Error()
	}
	available, err := snapshot.Available()
	if err != nil {
		return err.Error()
	}
	if need := min(uint64(limit)-shared, own); available < need {
		return fmt.Sprintf("%d bytes may be needed, and this node has %d left", need, available)
	}
	a.copyRoom = uint64(limit) - shared
	return ""
}

// brakeOn begins to watch the copy.
func (a *attempt) brakeOn() {
	if a.j.options.SnapshotMemory <= 0 || a.copy == 0 {
		return
	}
	a.brake = &brake{over: make(chan struct{}), ended: make(chan struct{})}
	go a.brake.watch(a.j, a.copy, a.copyRoom)
}

// brakeOff lets the program go on, if it was stopped, and adds how long that was.
func (a *attempt) brakeOff() {
	if a.brake == nil {
		return
	}
	close(a.brake.over)
	<-a.brake.ended
	a.stoppedFor += a.brake.stood
	a.brake = nil
}

func (b *brake) watch(j *Job, copied int, room uint64) {
	defer close(b.ended)
	at := uint64(brakeAt * float64(room))
	ticker := time.NewTicker(brakeLook)
	defer ticker.Stop()
	// A page of the copy becomes its own by a fault of the program, or when the program gives memory back, which also
	// costs the program time: the copy is looked at anyway when it may have grown so.
	var last time.Time
	var faults int64
	have, cost := uint64(0), time.Duration(0)
	for {
		select {
		case <-b.over:
			return
		case <-ticker.C:
		}
		since := time.Since(last)
		grown := uint64(faultsHere()-faults) * image.PageSize
		if !last.IsZero() && have+grown < at && since < 50*cost+100*time.Millisecond || since < 4*cost {
			continue
		}
		last, faults = time.Now(), faultsHere()
		var err error
		if have, err = snapshot.CopyMemory(copied); err != nil {
			select {
			case <-b.over: // the copy has ended with it
			default:
				j.log.Warn("the memory of the frozen copy is not bounded", zap.Error(err))
			}
			return
		}
		cost = time.Since(last)
		if have >= at && b.stand(j, have) {
			return
		}
	}
}

// stand stops the program until the image is written. It returns false when the program could not be stopped yet.
func (b *brake) stand(j *Job, have uint64) bool {
	j.parking.Lock()
	defer j.parking.Unlock()
	begun := time.Now()
	if err := j.host.Park(brakePark); err != nil {
		j.log.Debug("the program is not stopped yet", zap.Error(err))
		return false
	}
	j.log.Warn("the program stands until its image is written: the frozen copy takes almost as much memory as --snapshot-memory allows",
		zap.Uint64("bytes", have), zap.Int64("limit", j.options.SnapshotMemory))
	<-b.over
	j.host.Release()
	b.stood = time.Since(begun)
	return true
}

// faultsHere counts the page faults of this process.
func faultsHere() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u.Minflt
}
