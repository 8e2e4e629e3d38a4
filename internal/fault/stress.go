// SPDX-License-Identifier: Apache-2.0

//go:build faults

package fault

import (
	"runtime"
	godebug "runtime/debug"
	"time"
)

func init() { stress = keepBusy }

// keepBusy keeps Go's runtime as busy as it can be beside the application, when Debug has gcstress: the
// collector runs without pause, goroutines come and go on many threads, and preemption signals fly. Whatever Go
// does below must not show above.
func keepBusy() {
	if _, asked := Debug("gcstress"); !asked {
		return
	}
	godebug.SetGCPercent(5)
	go func() {
		for {
			runtime.GC()
		}
	}()
	for range 4 {
		go func() {
			var recent [16][]byte // reachable for a moment
			for i := 0; ; i++ {
				b := make([]byte, 1<<(8+i%12))
				b[len(b)-1] = byte(i)
				recent[i%len(recent)] = b
				done := make(chan int)
				go func() {
					runtime.LockOSThread() // ends with its thread: threads come and go too
					defer func() {
						if i%64 != 0 {
							runtime.UnlockOSThread()
						}
					}()
					s := 0
					for k := range 1 << 12 { // long enough to be preempted at times
						s += k
					}
					done <- s
				}()
				<-done
				if i%8 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		}()
	}
}
