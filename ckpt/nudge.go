// SPDX-License-Identifier: Apache-2.0

package ckpt

import "time"

const (
	// nudgeAfter is how long a deferred call may wait for the program's next call of the runtime, which
	// starts it. Most programs come within microseconds.
	nudgeAfter = 100 * time.Millisecond
	// nudgePark is shorter than a user notices. A thread that cannot be stopped is inside a call of the
	// runtime, and starts what there is itself.
	nudgePark = 50 * time.Millisecond
)

// nudge starts deferred collective calls for a program that makes no call of the runtime: the program computes, or
// waits in a way that the runtime does not see (a file, a pipe) for what another rank does after that collective.
// The program is stopped meanwhile, as for a checkpoint, so that only one thread uses the runtime.
func (j *Job) nudge() {
	for pause := nudgeAfter; ; pause = min(2*pause, time.Second) {
		select {
		case <-j.done:
			return
		case <-time.After(pause):
		}
		if !j.clock.Unstarted() {
			return
		}
		if !j.turn.TryLock() {
			continue // a checkpoint is being made
		}
		if j.parking.TryLock() { // else the program stands until an image is written
			if j.host.Park(nudgePark) == nil {
				_ = j.host.Errand(j.runtime.StartDeferred) // no thread to do it: the program is ending
				j.host.Release()
			}
			j.parking.Unlock()
		}
		j.turn.Unlock()
	}
}
