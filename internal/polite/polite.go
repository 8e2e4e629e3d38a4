// SPDX-License-Identifier: Apache-2.0

package polite

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// pools are the threads that wait for work, by niceness.
var pools sync.Map // of int to chan func(error)

// Run runs f on a thread of that niceness, or of the program's own if the program is nicer, and returns when f has.
// yields is nil if the thread does yield. A function must not change what belongs to its thread.
func Run(niceness int, f func(yields error)) {
	p, _ := pools.LoadOrStore(niceness, make(chan func(error)))
	pool := p.(chan func(error))
	done := make(chan struct{})
	job := func(yields error) {
		defer close(done)
		f(yields)
	}
	select {
	case pool <- job:
	default:
		begun := make(chan struct{})
		go live(niceness, pool, job, begun)
		<-begun
	}
	<-done
}

// live is the life of a thread.
func live(niceness int, pool chan func(error), job func(error), begun chan<- struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		// The process's first thread, which is the program's as well. It stays taken until another one is found.
		other := make(chan struct{})
		go live(niceness, pool, job, other)
		<-other
		runtime.UnlockOSThread()
		close(begun)
		return
	}
	close(begun)
	for {
		job(yield(niceness))
		job = <-pool
	}
}

// yield gives this thread its niceness. The program may have become nicer since the last job: its first thread tells.
// A thread that may set any niceness would otherwise get more than the program.
func yield(niceness int) error {
	if program, err := unix.Getpriority(unix.PRIO_PROCESS, os.Getpid()); err == nil {
		niceness = max(niceness, 20-program) // the kernel's answer is 20 - niceness
	}
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err == nil && 20-own == niceness {
		return nil
	}
	return unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
}
