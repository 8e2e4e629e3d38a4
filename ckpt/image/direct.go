// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/fault"
)

// direct writes raw chunks past the page cache (O_DIRECT) while the workers read the next ones: those that have gathered meanwhile
// at once, as a disk takes one large write sooner than many small ones.
//
// The copy to the page cache is most of what writing costs of a processor (BenchmarkDirect: 0.30 s a GiB, and 0.06 s without
// it), and it is the program's processor and the program's page cache. In return a restart finds nothing there, which it notices
// only where it is read at once and whole.
//
// Chunks go to places of the file that are allocated already: a file system that has to make a file longer lets in one
// write at a time.
type direct struct {
	w    *writer
	file *os.File
	off  atomic.Bool // the file system has refused a write that another way could do

	taking sync.Mutex // one writer at a time takes orders, so that what it takes is in one place
	orders chan parcel
	pool   pool
	wg     sync.WaitGroup

	mu        sync.Mutex
	allocated int64 // of the file; guarded by mu
	fixed     bool  // no more is allocated
	failed    error // the first that could not be written

	// What is measured of the disk.
	waiting int64     // bytes under way
	done    int64     // bytes written since
	since   time.Time // ... when some were under way all the time
}

// parcel is a chunk on its way.
type parcel struct {
	data []byte
	at   int64
	from *buffer
}

const (
	// directFrom is the least memory of which an image is written so: a small one is on the disk at once.
	directFrom = 16 << 20
	// directLeast is the smallest chunk for which it is worthwhile.
	directLeast = 64 << 10
	// directDepth is how many writes are under way at a time.
	directDepth = 2
	// directAtOnce is how much is written at a time, at most, but for the last chunk.
	directAtOnce = 4 << 20
	// directBuffers is how many chunks wait for the writers, or are being written.
	directBuffers = 24
	// allocateAhead is by how much the file is made longer.
	allocateAhead = 64 << 20
)

// goodDirect are file systems of which it is known that they write past the cache what is aligned, several at a time. Others
// have a cache that is not this system's (NFS, FUSE), or one that holds the only copy (tmpfs).
var goodDirect = map[int64]bool{unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true}

// newDirect returns nil where chunks go through the page cache.
func newDirect(w *writer) *direct {
	from := w.opt.directFrom
	if from == 0 {
		from = directFrom
	}
	if w.opt.ReadSoon || w.opt.NoSync || w.total < uint64(from) {
		return nil
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(int(w.file.Fd()), &fs) != nil || !goodDirect[fs.Type] {
		return nil
	}
	f, err := os.OpenFile(w.file.Name(), os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		return nil
	}
	d := &direct{w: w, file: f, orders: make(chan parcel, directBuffers)}
	d.pool.fill(directBuffers+w.opt.Workers+w.opt.Helpers, w.opt.Chunk)
	for range directDepth {
		d.wg.Go(d.run)
	}
	return d
}

// takes tells whether a chunk may be written so.
func (d *direct) takes(kind Kind, n int) bool {
	return d != nil && kind == KindRaw && n >= directLeast && !d.off.Load()
}

// write has a chunk written, and returns what went wrong with an earlier one.
func (d *direct) write(data []byte, at int64, from *buffer) error {
	from.refs.Add(1)
	d.mu.Lock()
	err := d.failed
	if d.allocate(at + int64(len(data))); d.waiting == 0 {
		d.since, d.done = time.Now(), 0
	}
	d.waiting += int64(len(data))
	d.mu.Unlock()
	d.orders <- parcel{data, at, from}
	return err
}

// allocate makes the file so long, and longer. Where that is not possible it grows by being written to.
func (d *direct) allocate(end int64) {
	if d.fixed || end <= d.allocated {
		return
	}
	to := end + allocateAhead
	if err := unix.Fallocate(int(d.file.Fd()), 0, d.allocated, to-d.allocated); err != nil {
		d.fixed = true // no room for so much, or not in this file system
		return
	}
	d.allocated = to
}

func (d *direct) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	priority(ioBest, 7)
	defer priority(0, 0)
	for {
		batch, ok := d.take()
		if !ok {
			return
		}
		slices.SortFunc(batch, func(a, b parcel) int { return cmp.Compare(a.at, b.at) })
		for len(batch) > 0 {
			n := 1
			for n < len(batch) && batch[n].at == batch[n-1].at+int64(len(batch[n-1].data)) {
				n++
			}
			d.finish(batch[:n], d.put(batch[:n]))
			batch = batch[n:]
		}
	}
}

// take waits for an order and takes those that are there, too. False: there are no more.
func (d *direct) take() (batch []parcel, ok bool) {
	d.taking.Lock()
	defer d.taking.Unlock()
	p, ok := <-d.orders
	if !ok {
		return nil, false
	}
	batch = append(batch, p)
	for bytes := len(p.data); bytes < directAtOnce; bytes += len(p.data) {
		select {
		case p, ok = <-d.orders:
			if !ok {
				return batch, true
			}
			batch = append(batch, p)
		default:
			return batch, true
		}
	}
	return batch, true
}

// finish notes that chunks have been written, or what went wrong.
func (d *direct) finish(run []parcel, err error) {
	bytes := int64(0)
	for _, p := range run {
		bytes += int64(len(p.data))
	}
	d.mu.Lock()
	if err != nil && d.failed == nil {
		d.failed = err
	}
	d.waiting -= bytes
	d.done += bytes
	if now := time.Now(); d.done >= flushAtOnce && err == nil {
		d.w.opt.Model.flushed(d.done, now.Sub(d.since))
		d.since, d.done = now, 0
	}
	d.mu.Unlock()
	for _, p := range run {
		p.from.drop()
	}
}

// put writes chunks that are beside each other.
func (d *direct) put(run []parcel) error {
	list, bytes := make([][]byte, len(run)), 0
	for i, p := range run {
		if err := fault.Point("image.write.data"); err != nil {
			return err
		}
		list[i] = p.data
		bytes += len(p.data)
	}
	watch := d.w.watch()
	n, err := d.pwritev(list, run[0].at)
	if err == nil && n == bytes {
		if d.w.choice != nil {
			cpu, _ := watch.stop()
			d.w.opt.Model.wrote(bytes, cpu)
		}
		return nil
	}
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return &os.PathError{Op: "write", Path: d.file.Name(), Err: err}
	}
	if err != nil {
		d.off.Store(true) // larger blocks than pages
	}
	for _, p := range run { // also where the disk took a part: this one says why
		if err := d.w.writeAt(p.data, p.at); err != nil {
			return err
		}
	}
	return nil
}

func (d *direct) pwritev(list [][]byte, at int64) (n int, err error) {
	for {
		if n, err = unix.Pwritev(int(d.file.Fd()), list, at); err != unix.EINTR {
			return n, err
		}
	}
}

// backlog is how many bytes are not on the disk yet.
func (d *direct) backlog() int64 {
	if d == nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting
}

// stop waits for all that is under way, and returns what went wrong.
func (d *direct) stop() error {
	if d == nil {
		return nil
	}
	close(d.orders)
	d.wg.Wait()
	d.pool.empty()
	if err := d.file.Close(); err != nil && d.failed == nil {
		d.failed = err
	}
	return d.failed
}
