// SPDX-License-Identifier: Apache-2.0

package image

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Model is what writing images has measured on this machine: what compressing costs and how fast the disk takes bytes.
// It is kept from one image to the next, so that the first chunks of that are right. The zero value is ready for use;
// several goroutines may use it.
type Model struct {
	mu sync.Mutex
	// Seconds of a processor for a byte: of content, by the kind in which it is stored ...
	encode [kinds]float64
	// ... and of what is stored, for its digest and the copy to the page cache.
	put float64
	// Seconds of the disk for a byte.
	disk float64
	// How many seconds pass in a second of a processor: more than 1 where others use the processors too.
	slow float64
}

// kinds is one more than the highest Kind.
const kinds = KindZstd + 1

// What is believed until something is measured: orders of magnitude.
const (
	priorSnappy = 1e-9
	priorZstd   = 3e-9
	priorPut    = 0.5e-9
	priorDisk   = 1e-9
)

// learn moves a figure an eighth of the way to a new measurement; the first one is taken as it is.
func learn(figure *float64, measured float64) {
	if *figure == 0 {
		*figure = measured
		return
	}
	*figure += (measured - *figure) / 8
}

func or(figure, prior float64) float64 {
	if figure == 0 {
		return prior
	}
	return figure
}

// costs is a copy of the model, with the priors where nothing was measured.
func (m *Model) costs() (encode [kinds]float64, put, disk, slow float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	encode[KindSnappy], encode[KindZstd] = or(m.encode[KindSnappy], priorSnappy), or(m.encode[KindZstd], priorZstd)
	return encode, or(m.put, priorPut), or(m.disk, priorDisk), max(m.slow, 1)
}

// leastMeasured is how much content is worth the two system calls of a measurement.
const leastMeasured = 8 << 10

func (m *Model) encoded(kind Kind, bytes int, cpu, wall time.Duration) {
	if bytes < leastMeasured || cpu <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	learn(&m.encode[kind], cpu.Seconds()/float64(bytes))
	learn(&m.slow, min(max(wall.Seconds()/cpu.Seconds(), 1), 100))
}

func (m *Model) wrote(bytes int, cpu time.Duration) {
	if bytes < leastMeasured || cpu <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	learn(&m.put, cpu.Seconds()/float64(bytes))
}

func (m *Model) flushed(bytes int64, wall time.Duration) {
	if wall <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	learn(&m.disk, wall.Seconds()/float64(bytes))
}

// stopwatch measures the processor's time of this thread beside that of the clock. A goroutine that changes its thread in
// between measures nonsense, which is rare, and bounded by learn.
type stopwatch struct {
	cpu  unix.Timespec
	wall time.Time
}

func startWatch() (s stopwatch) {
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &s.cpu)
	s.wall = time.Now()
	return s
}

// stop returns both times; a processor's time longer than the clock's is of another thread, and no measurement.
func (s stopwatch) stop() (cpu, wall time.Duration) {
	now := startWatch()
	cpu, wall = time.Duration(now.cpu.Nano()-s.cpu.Nano()), now.wall.Sub(s.wall)
	if cpu > wall+wall/8 {
		return 0, wall
	}
	return cpu, wall
}

// chooser decides for one image, chunk by chunk, how its content is stored.
//
// What counts is when the image is on the disk. The processors and the disk work at the same time, so that is when the
// slower of them is done: for each kind the rest of the memory is thought to be like the chunk, what waits for the disk is
// added, and the kind with the earliest end is taken. Among those that end at almost the same time it is the smallest.
type chooser struct {
	model   *Model
	workers func() int
	limit   int64        // bytes a second that may be written; 0: any
	backlog func() int64 // bytes written that are not on the disk yet

	mu      sync.Mutex
	regions map[int]*gain
}

// gain is what is known of one region.
type gain struct {
	snappy float64 // what was left of content, of 1, in the last sample
	zstd   float64 // the same, when zstd was tried
	age    int     // chunks since then
	steady int     // how many samples were like the one before
	// By how much the chunks became smaller or larger than their samples promised.
	actual [kinds]float64
	encode [kinds]float64 // as in Model; 0: not measured here
}

const (
	// A sample is so many blocks of so many bytes, spread over the chunk.
	sampleBlocks = 4
	sampleBlock  = 2 << 10
	// zstd is tried on a sample when so many chunks have gone by, or when the content is another.
	zstdEvery  = 32
	sameSample = 0.1
	// Where so many samples were alike, only every so many chunks have one taken.
	steadyAfter = 4
	steadyEvery = 4
	// nearly is by how much one end may be later than another and still be the same.
	nearly = 1.02
)

// sampleOf returns some of the content, in dst's memory where it is not all of it.
func sampleOf(dst, content []byte) []byte {
	if len(content) <= 2*sampleBlocks*sampleBlock {
		return content
	}
	dst = dst[:0]
	step := (len(content) - sampleBlock) / (sampleBlocks - 1)
	for i := range sampleBlocks {
		at := i * step
		dst = append(dst, content[at:at+sampleBlock]...)
	}
	return dst
}

// ratio is what is left of content when it is stored so; chunks that save less than a sixteenth are stored raw.
func ratio(stored, content int) float64 {
	if !worthIt(stored, content) {
		return 1
	}
	return float64(stored) / float64(content)
}

// choose says how a chunk of a region is stored; rest is how much memory is to be written, with the chunk.
func (c *chooser) choose(e *encoder, region int, content []byte, rest uint64) (kind Kind, promised float64) {
	c.mu.Lock()
	g := c.regions[region]
	if g == nil {
		g = &gain{age: zstdEvery}
		c.regions[region] = g
	}
	g.age++
	known := *g
	c.mu.Unlock()
	if known.steady < steadyAfter || known.age%steadyEvery == 0 {
		c.look(e, g, &known, content)
	}
	left := [kinds]float64{KindRaw: 1, KindSnappy: known.snappy, KindZstd: known.zstd}
	kind = c.earliest(left, &known, max(rest, uint64(len(content))))
	return kind, left[kind]
}

// look takes a sample.
func (c *chooser) look(e *encoder, g, known *gain, content []byte) {
	e.sample = slices.Grow(e.sample[:0], sampleBlocks*sampleBlock)
	s := sampleOf(e.sample, content)
	now := c.try(e, KindSnappy, s)
	drift := max(now-known.snappy, known.snappy-now)
	zstd := known.age >= zstdEvery || drift > sameSample
	if zstd {
		known.zstd, known.age = c.try(e, KindZstd, s), 0
	}
	if known.snappy = now; drift > sameSample {
		known.steady = 0
	} else {
		known.steady++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g.snappy, g.steady = known.snappy, known.steady
	if zstd {
		g.zstd, g.age = known.zstd, 0
	}
}

// encode compresses a chunk in the way that is chosen for it.
func (c *chooser) encode(e *encoder, content []byte, region int, rest uint64) (Kind, []byte) {
	kind, promised := c.choose(e, region, content, rest)
	if kind == KindRaw {
		return kind, content
	}
	w := startWatch()
	out := e.compress(kind, content)
	cpu, wall := w.stop()
	c.was(region, kind, promised, len(out), len(content), cpu, wall)
	if !worthIt(len(out), len(content)) {
		return KindRaw, content
	}
	return kind, out
}

// earliest is the kind with which all is on the disk first.
func (c *chooser) earliest(left [kinds]float64, g *gain, rest uint64) Kind {
	encode, put, disk, slow := c.model.costs()
	if c.limit > 0 {
		disk = max(disk, 1/float64(c.limit))
	}
	workers := c.workers()
	waits := float64(c.backlog()) * disk
	all := []Kind{KindRaw, KindSnappy, KindZstd}
	var end, size [kinds]float64
	best := KindRaw
	for _, k := range all {
		size[k] = left[k]
		if g.actual[k] > 0 && left[k] < 1 {
			size[k] = min(left[k]*g.actual[k], 1)
		}
		cpu := (or(g.encode[k], encode[k]) + size[k]*put) * slow / float64(workers)
		end[k] = max(float64(rest)*cpu, waits+float64(rest)*size[k]*disk)
		if k != KindRaw && size[k] >= 1 {
			continue // nothing is gained
		}
		if end[k] < end[best] {
			best = k
		}
	}
	soonest := end[best]
	for _, k := range all {
		if end[k] <= soonest*nearly && size[k] < size[best] {
			best = k
		}
	}
	return best
}

// try compresses a sample, and learns what that costs.
func (c *chooser) try(e *encoder, kind Kind, s []byte) float64 {
	w := startWatch()
	out := e.compress(kind, s)
	cpu, wall := w.stop()
	if kind == KindZstd || len(s) < leastMeasured {
		cpu = 0 // beginning a frame costs more than a sample: only whole chunks tell
	}
	c.model.encoded(kind, len(s), cpu, wall)
	return ratio(len(out), len(s))
}

// was tells what became of a chunk.
func (c *chooser) was(region int, kind Kind, promised float64, stored, content int, cpu, wall time.Duration) {
	if content < leastMeasured {
		return
	}
	c.model.encoded(kind, content, cpu, wall)
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.regions[region]
	learn(&g.actual[kind], ratio(stored, content)/promised)
	if cpu > 0 {
		learn(&g.encode[kind], cpu.Seconds()/float64(content))
	}
}

// flusher follows the workers and waits until what they wrote is on the disk: how fast that goes is what compression is
// weighed against.
type flusher struct {
	fd    int
	model *Model

	mu      sync.Mutex
	more    sync.Cond
	queue   []span
	waiting int64 // bytes in the queue, and in what is waited for
	over    bool
	done    chan struct{}
}

type span struct {
	from, to int64
	since    time.Time // when it was written
}

func newFlusher(fd int, m *Model) *flusher {
	f := &flusher{fd: fd, model: m, done: make(chan struct{})}
	f.more.L = &f.mu
	go f.run()
	return f
}

func (f *flusher) add(from, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = append(f.queue, span{from, from + n, time.Now()})
	f.waiting += n
	f.more.Signal()
}

func (f *flusher) backlog() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting
}

// stop waits until the file is not used any more.
func (f *flusher) stop() {
	if f == nil {
		return
	}
	f.mu.Lock()
	f.over = true
	f.more.Signal()
	f.mu.Unlock()
	<-f.done
}

// flushAtOnce is how many bytes are waited for at a time: enough to measure, few enough to know soon.
const flushAtOnce = 4 << 20

// take returns the oldest spans; none at the end.
func (f *flusher) take() (batch []span, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.queue) == 0 && !f.over {
		f.more.Wait()
	}
	if f.over {
		return nil, 0
	}
	n := 0
	for n < len(f.queue) && bytes < flushAtOnce {
		bytes += f.queue[n].to - f.queue[n].from
		n++
	}
	batch, f.queue = f.queue[:n:n], f.queue[n:]
	return batch, bytes
}

func (f *flusher) run() {
	defer close(f.done)
	last := time.Now() // when the disk was done before
	for {
		batch, bytes := f.take()
		if batch == nil {
			return
		}
		for _, s := range batch {
			// A failure is one that fsync returns too; it is not a measurement.
			err := unix.SyncFileRange(f.fd, s.from, s.to-s.from,
				unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
			if err != nil {
				bytes = 0
				break
			}
		}
		now := time.Now()
		if begun := later(last, batch[0].since); bytes >= flushAtOnce {
			f.model.flushed(bytes, now.Sub(begun))
		}
		last = now
		f.mu.Lock()
		for _, s := range batch {
			f.waiting -= s.to - s.from
		}
		f.mu.Unlock()
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
