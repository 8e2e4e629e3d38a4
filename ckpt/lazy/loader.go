// SPDX-License-Identifier: Apache-2.0

package lazy

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/internal/fault"
	"github.com/libckpt/libckpt/internal/polite"
	"github.com/libckpt/libckpt/internal/userfault"
)

// Options of a Loader.
type Options struct {
	// Failed is called once, on a goroutine of its own, when content cannot be had: the image is damaged or cannot be
	// read. Threads that wait for it wait for ever; the caller ends the process.
	Failed func(error)
	// Loaded is called once, when nothing is missing any more, before anybody else hears of it. It does not wait.
	Loaded func()
	// Huge says whether region i of the image gets huge pages once it is there: pages come one by one, and a program
	// that had huge ones would be slower without. nil: none does.
	Huge func(i int) bool
}

// servers is how many goroutines answer faults: one may wait for a disk while another answers.
const servers = 2

// States of a chunk. A chunk that was dropped counts as present: pages that are missing in it are zero.
const (
	missing = iota
	loading // one goroutine reads it and puts it in place
	present
)

// Loader brings the memory of an image that is missing in this process. Several goroutines may call its methods.
type Loader struct {
	f       *image.File
	o       Options
	fd      int
	regions []image.Region // that are filled on touch; ascending
	chunks  []image.Chunk  // of these; ascending
	huge    []image.Extent // get huge pages at the end

	mu      sync.Mutex
	changed sync.Cond // a state is another, or err is set
	state   []uint8
	left    int // chunks that are not present
	done    uint64
	total   uint64
	order   []int // in which the background brings chunks
	next    int   // in order
	follow  int   // the chunk behind the one that was touched last; -1: none
	err     error

	over   chan struct{} // closed when left is 0 or err is set
	closed chan struct{} // closed when, after that, the kernel asks no more
	stop   int           // eventfd that ends the servers
	wg     sync.WaitGroup
}

// Takes says whether a region can be filled on touch: shared memory may be another process's as well.
func Takes(r *image.Region) bool {
	return r.Flags&(image.FlagShared|image.FlagNoData) == 0
}

// New makes a loader for the regions of f that Takes; nothing happens before Begin. f stays open until Loaded is
// called, or Close. The error is userfault.ErrForbidden where the kernel does not help.
func New(f *image.File, o Options) (*Loader, error) {
	l := plan(f, o)
	fd, err := userfault.Open()
	if err != nil {
		return nil, err
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	l.fd, l.stop = fd, stop
	return l, nil
}

// plan finds out what is to be loaded.
func plan(f *image.File, o Options) *Loader {
	l := &Loader{f: f, o: o, follow: -1, over: make(chan struct{}), closed: make(chan struct{})}
	l.changed.L = &l.mu
	regions := f.Regions()
	for i := range regions {
		if !Takes(&regions[i]) {
			continue
		}
		some := false
		for _, c := range f.RegionChunks(i) {
			if c.Kind != image.KindZero {
				l.chunks = append(l.chunks, c)
				l.total += uint64(c.Bytes)
				some = true
			}
		}
		if some {
			l.regions = append(l.regions, regions[i])
			if o.Huge != nil && o.Huge(i) {
				l.huge = append(l.huge, image.Extent{Start: regions[i].Start, End: regions[i].End})
			}
		}
	}
	l.state, l.left = make([]uint8, len(l.chunks)), len(l.chunks)
	return l
}

// Has says whether region r is one that this loader fills.
func (l *Loader) Has(r *image.Region) bool {
	_, ok := slices.BinarySearchFunc(l.regions, r.Start, func(a image.Region, at uint64) int { return cmp.Compare(a.Start, at) })
	return ok
}

// Close gives up a loader that was not begun.
func (l *Loader) Close() {
	_ = unix.Close(l.fd)
	_ = unix.Close(l.stop)
}

// Begin starts. The regions are mapped, and nothing in them has been touched. first are addresses that are used at
// once, such as stack pointers; they may lie anywhere. The memory at the first few of them is there when Begin
// returns, also for other processes, which cannot wait for a page.
func (l *Loader) Begin(first []uint64) error {
	for i := range l.regions {
		r := &l.regions[i]
		if err := userfault.Register(l.fd, r.Start, r.Bytes(), userfault.Missing); err != nil {
			return fmt.Errorf("%s: memory %s: userfaultfd: %w", l.f.Name(), r, err)
		}
	}
	l.arrange(first)
	l.bringFirst(first)
	for range servers {
		l.wg.Add(1)
		go l.serve()
	}
	go l.prefetch()
	go l.finish()
	return nil
}

// atOnce is how many of the first addresses are there before Begin returns: the rest comes on touch.
const atOnce = 8

func (l *Loader) bringFirst(first []uint64) {
	if l.left == 0 {
		close(l.over)
	}
	w := l.worker()
	defer w.r.Close()
	for _, a := range first[:min(atOnce, len(first))] {
		if i := l.find(a); i >= 0 && l.claim(i) == missing && !w.bring(i) {
			return
		}
	}
}

// smallRegion: programs with large arrays use the small regions at once (data, heap of the C library, stacks).
const smallRegion = 16 << 20

// arrange chooses the order of the background: what the program stands on, code and data of files, small regions,
// and the rest; in each of these what was written last, then in the order of addresses, which is mostly that of the file.
func (l *Loader) arrange(first []uint64) {
	rank := make([]int, len(l.chunks))
	for i := range l.chunks {
		r := l.regionOf(l.chunks[i].Addr)
		switch {
		case r.Flags&image.FlagFile != 0:
			rank[i] = 1
		case r.Bytes() <= smallRegion:
			rank[i] = 2
		default:
			rank[i] = 3
		}
	}
	for _, a := range first {
		if i := l.find(a); i >= 0 {
			rank[i] = 0
		}
	}
	l.order = make([]int, len(l.chunks))
	for i := range l.order {
		l.order[i] = i
	}
	age := ages(l.f.Sources())
	slices.SortStableFunc(l.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(age[l.chunks[a].Source], age[l.chunks[b].Source]))
	})
}

// ages says, by Chunk.Source, how many of the images that another one refers to are newer, itself included: what was
// written last is in the newest. Folders of epochs have names that sort.
func ages(sources []image.Source) []int {
	age := make([]int, len(sources)+1)
	for i, s := range sources {
		age[i+1] = 1
		for _, other := range sources {
			if other.Name > s.Name {
				age[i+1]++
			}
		}
	}
	return age
}

func (l *Loader) regionOf(addr uint64) *image.Region {
	i, _ := slices.BinarySearchFunc(l.regions, addr, func(r image.Region, a uint64) int {
		if r.End <= a {
			return -1
		}
		return 1
	})
	return &l.regions[i]
}

// from is the first chunk that ends behind addr.
func (l *Loader) from(addr uint64) int {
	i, _ := slices.BinarySearchFunc(l.chunks, addr, func(c image.Chunk, a uint64) int {
		if c.End() <= a {
			return -1
		}
		return 1
	})
	return i
}

// find is the chunk that addr lies in, or -1.
func (l *Loader) find(addr uint64) int {
	if i := l.from(addr); i < len(l.chunks) && l.chunks[i].Addr <= addr {
		return i
	}
	return -1
}

// Progress says how many bytes are there, of how many.
func (l *Loader) Progress() (done, total uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done, l.total
}

// Closed is closed when nothing is missing any more and the kernel asks no more; never after a failure.
func (l *Loader) Closed() <-chan struct{} { return l.closed }

// worker brings chunks, for one goroutine.
type worker struct {
	l      *Loader
	r      *image.ChunkReader
	buffer []byte
}

func (l *Loader) worker() *worker { return &worker{l: l, r: l.f.ChunkReader()} }

// claim makes the caller the one who brings chunk i, or says what state it is in.
func (l *Loader) claim(i int) (was uint8) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was = l.state[i]
	if was == missing {
		l.state[i] = loading
	}
	return was
}

// bring reads the chunk that the caller has claimed, checks it and puts it in place.
func (w *worker) bring(i int) bool {
	l, c := w.l, &w.l.chunks[i]
	w.buffer = slices.Grow(w.buffer[:0], int(c.Bytes))[:c.Bytes]
	err := w.r.Load(c, w.buffer)
	if err == nil {
		err = l.place(c.Addr, w.buffer)
	}
	if err != nil {
		l.fail(err)
		return false
	}
	l.settle(i)
	return true
}

func (l *Loader) settle(i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled(i)
}

func (l *Loader) settled(i int) {
	l.state[i] = present
	l.left--
	l.done += uint64(l.chunks[i].Bytes)
	if l.left == 0 && l.err == nil {
		close(l.over)
	}
	l.changed.Broadcast()
}

func (l *Loader) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = err
	l.changed.Broadcast()
	if l.left > 0 {
		close(l.over)
	}
	go l.o.Failed(err)
}

// noMemory is how long the kernel may say that it has no page, before that is a failure.
const noMemory = 10 * time.Second

// place puts p in place from addr on. Pages that the program has unmapped or mapped anew are left out.
func (l *Loader) place(addr uint64, p []byte) error {
	piece := len(p)
	var since time.Time
	for len(p) > 0 {
		n, err := userfault.Copy(l.fd, addr, p[:min(piece, len(p))])
		addr, p = addr+n, p[n:]
		switch err {
		case nil, unix.EAGAIN: // a part was copied
		case unix.EEXIST, unix.ENOENT, unix.EINVAL, unix.EFAULT:
			if piece > image.PageSize { // some page in it, or the range is of several mappings
				piece = image.PageSize
				continue
			}
			if err == unix.EFAULT || err == unix.EINVAL {
				return fmt.Errorf("userfaultfd: a page at 0x%x: %w", addr, err)
			}
			userfault.Wake(l.fd, addr, image.PageSize)
			addr, p = addr+image.PageSize, p[image.PageSize:]
		case unix.ESRCH: // the process ends
			return nil
		case unix.ENOMEM:
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) > noMemory {
				return fmt.Errorf("no memory for a page at 0x%x of the restarted program: %w; give the job more, or restart it on fewer ranks a node", addr, err)
			}
			time.Sleep(time.Millisecond)
		default:
			return fmt.Errorf("userfaultfd: a page at 0x%x: %w", addr, err)
		}
	}
	return nil
}

// ---- faults ------------------------------------------------------------------------------------

// serve answers faults until the loader stops.
func (l *Loader) serve() {
	defer l.wg.Done()
	w := l.worker()
	defer w.r.Close()
	for {
		f, ok, err := userfault.Next(l.fd)
		if err != nil {
			l.fail(err)
			return
		}
		if ok {
			w.answer(f)
			continue
		}
		ready := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}, {Fd: int32(l.stop), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); err != nil && err != unix.EINTR {
			l.fail(fmt.Errorf("poll of userfaultfd: %w", err))
			return
		}
		if ready[1].Revents != 0 {
			return
		}
	}
}

// ahead is how many pages of fresh memory a write gets.
const ahead = 16

var zeros [ahead * image.PageSize]byte

func (w *worker) answer(f userfault.Touch) {
	l, page := w.l, f.Addr&^(image.PageSize-1)
	i := l.from(page)
	room := uint64(ahead * image.PageSize)
	switch {
	case i == len(l.chunks):
	case l.chunks[i].Addr > page:
		room = min(room, l.chunks[i].Addr-page)
	default:
		l.mu.Lock()
		l.follow = i + 1
		l.mu.Unlock()
		switch l.claim(i) {
		case missing:
			w.bring(i)
			return
		case loading: // who brings it wakes the thread
			return
		}
		room = image.PageSize // it was given back, or was there a moment ago
	}
	// No chunk has it: it is zero.
	if f.Write {
		_ = l.place(page, zeros[:room])
	} else if err := userfault.Zero(l.fd, page, image.PageSize); err != nil { // it is there already, or the mapping is gone
		userfault.Wake(l.fd, page, image.PageSize)
	}
}

// ---- the background ----------------------------------------------------------------------------

// prefetch brings everything, one chunk after the other.
func (l *Loader) prefetch() {
	if fault.Point("lazy.background") != nil {
		return
	}
	w := l.worker()
	defer w.r.Close()
	polite.Pace(w.bringNext)
}

// bringNext brings one chunk, if there is one that nobody has claimed.
func (w *worker) bringNext() bool {
	i := w.l.choose()
	return i >= 0 && w.bring(i)
}

func (l *Loader) bringAll() {
	w := l.worker()
	defer w.r.Close()
	for w.bringNext() {
		runtime.Gosched() // where there is one processor, faults go first
	}
}

// choose claims the next chunk for the background: the one behind what was touched last, else the next one in
// order; -1 when none is missing.
func (l *Loader) choose() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return -1
	}
	if i := l.follow; i >= 0 && i < len(l.chunks) && l.state[i] == missing {
		l.follow++
		l.state[i] = loading
		return i
	}
	l.follow = -1
	for ; l.next < len(l.order); l.next++ {
		if i := l.order[l.next]; l.state[i] == missing {
			l.state[i] = loading
			return i
		}
	}
	return -1
}

// finish lets go of the kernel when all is there.
func (l *Loader) finish() {
	<-l.over
	if l.failure() != nil {
		return // who waits must not go on
	}
	one := [8]byte{1}
	_, _ = unix.Write(l.stop, one[:])
	l.wg.Wait()
	_ = unix.Close(l.fd) // whoever waits for a page goes on, and finds zeros where nothing was
	_ = unix.Close(l.stop)
	l.o.Loaded()
	close(l.closed)
	l.collapse()
}

const hugePage = 2 << 20

// collapse makes huge pages of those that came one by one (Linux 6.1 and later). The program may have unmapped them.
func (l *Loader) collapse() {
	if b, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled"); err != nil || strings.Contains(string(b), "[never]") {
		return
	}
	var pages []uint64
	for _, e := range l.huge {
		for at := (e.Start + hugePage - 1) &^ (hugePage - 1); at+hugePage <= e.End; at += hugePage {
			pages = append(pages, at)
		}
	}
	polite.Pace(func() bool {
		if len(pages) == 0 {
			return false
		}
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(pages[0]), hugePage, unix.MADV_COLLAPSE)
		pages = pages[1:]
		return errno != unix.ENOMEM // or the kernel has none left
	})
}

func (l *Loader) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// ---- for those who change the memory -----------------------------------------------------------

// Finish brings all that is missing, with all processors, and returns when the kernel asks no more: from then on the
// process may be copied.
func (l *Loader) Finish(ctx context.Context) error {
	for range min(4, runtime.GOMAXPROCS(0)) {
		go l.bringAll()
	}
	select {
	case <-l.over:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := l.failure(); err != nil {
		return err
	}
	<-l.closed
	return nil
}

// Fill returns when nothing is missing between start and end. After a failure it does not return nil.
func (l *Loader) Fill(start, end uint64) error { return l.clear(start, end, false) }

// Drop is for memory whose content nobody wants any more. What is missing there later is zero.
func (l *Loader) Drop(start, end uint64) error { return l.clear(start, end, true) }

func (l *Loader) clear(start, end uint64, drop bool) error {
	w := l.worker()
	defer w.r.Close()
	for i := l.from(start); i < len(l.chunks) && l.chunks[i].Addr < end; i++ {
		c := &l.chunks[i]
		if l.claim(i) == missing {
			if drop && c.Addr >= start && c.End() <= end {
				l.settle(i)
			} else {
				w.bring(i)
			}
		}
		l.mu.Lock()
		for l.state[i] != present && l.err == nil {
			l.changed.Wait()
		}
		err := l.err
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
