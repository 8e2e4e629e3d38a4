// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/polite"
)

// Helpers read, compress and make digests beside the workers while the program runs. They are for processors that nobody
// else wants:
//
//   - Their threads yield (niceness), and one that waited longer for a processor than it ran steps back for a while before
//     it takes the next job. Where the program uses all processors that leaves it all but one part in hundreds of each.
//   - They are not of the idle class (SCHED_IDLE). A thread of that class that has a job, or that Go's collector waits
//     for, gets three parts in a thousand of a processor on which another one computes, and the image waits for it.
//   - They do not write: the kernel locks a file for each write, and would keep it locked while the thread waits for a
//     processor. Another thread, the pen, writes for them.
//   - Their threads stay (package polite).
type helper struct {
	w     *writer
	waits func() bool // whether its thread waited longer for a processor than it ran, since the last call
	pause time.Duration
}

const (
	niceness   = 10 // a tenth of what a thread of the program gets on the same processor
	firstPause = 50 * time.Millisecond
	mostPause  = time.Second
)

// help is the life of a helper.
func (w *writer) help(ctx context.Context) error {
	var err error
	polite.Run(niceness, func(yields error) {
		if yields != nil {
			return // the others do its work
		}
		priority(ioIdle, 0)
		defer priority(0, 0)
		meter := polite.NewMeter()
		defer meter.Close()
		h := &helper{w: w, waits: meter.Waits}
		w.helping.Add(1)
		defer w.helping.Add(-1)
		err = w.work(ctx, h)
	})
	return err
}

// Classes of priority for the disk (ioprio_set(2)).
const (
	ioBest = 2
	ioIdle = 3
)

// priority is for this thread. Where it does not work the disk treats all alike.
func priority(class, level int) {
	const ofThread = 1
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ofThread, 0, uintptr(class<<13|level))
}

// next is called before each job: it steps back when all processors are busy.
func (h *helper) next(ctx context.Context) {
	if !h.waits() {
		h.pause = 0
		return
	}
	h.pause = min(max(2*h.pause, firstPause), mostPause)
	h.w.helping.Add(-1)
	defer h.w.helping.Add(1)
	timer := time.NewTimer(h.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-h.w.taken:
	}
	h.waits() // the pause itself is no wait, but being woken may have been
}

// pen writes for the helpers.
type pen struct {
	orders chan order
	wg     sync.WaitGroup
}

type order struct {
	data []byte
	at   int64
	done chan error
}

func (w *writer) newPen() *pen {
	p := &pen{orders: make(chan order)}
	p.wg.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		priority(ioBest, 7)
		defer priority(0, 0)
		for o := range p.orders {
			o.done <- w.writeData(o.data, o.at)
		}
	})
	return p
}

func (p *pen) write(data []byte, at int64) error {
	o := order{data, at, make(chan error, 1)}
	p.orders <- o
	return <-o.done
}

// stop is called when there are no helpers any more.
func (p *pen) stop() {
	close(p.orders)
	p.wg.Wait()
}

// pace keeps the writing of content below so many bytes a second.
type pace struct {
	limit int64 // 0: none
	mu    sync.Mutex
	due   time.Time // when the next bytes may be written
}

func (p *pace) wait(ctx context.Context, n int) error {
	if p.limit <= 0 {
		return nil
	}
	p.mu.Lock()
	now := time.Now()
	if p.due.Before(now) {
		p.due = now
	}
	rest := p.due.Sub(now)
	p.due = p.due.Add(time.Duration(float64(n) / float64(p.limit) * float64(time.Second)))
	p.mu.Unlock()
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
