// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/zeebo/blake3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/fault"
)

// writer fills one file. Workers take jobs, read the memory and write chunks at places that they allocate.
// The index, which is written last, puts the chunks in order.
type writer struct {
	file *os.File
	in   *Input
	opt  Options
	out  Summary
	seal *blake3.Hasher

	jobs    []job
	total   uint64
	next    atomic.Int64  // job to take
	taken   chan struct{} // closed when there is none
	helping atomic.Int32  // helpers that have not stepped back
	pen     *pen          // nil: there are no helpers
	direct  *direct       // nil: all goes through the page cache
	pace    pace

	mu     sync.Mutex // guards the fields below, and the calls of Progress
	end    int64      // where the file ends so far
	chunks []piece
	done   uint64

	parent oldImage
	teller *teller // nil: nobody is told

	// With CompressAuto.
	choice  *chooser
	flusher *flusher // nil: nothing is synced
}

// auto begins to measure.
func (w *writer) auto() {
	if w.opt.Compress != CompressAuto {
		return
	}
	backlog := func() int64 { return 0 }
	if !w.opt.NoSync {
		w.flusher = newFlusher(int(w.file.Fd()), w.opt.Model)
		backlog = func() int64 { return w.flusher.backlog() + w.direct.backlog() }
	}
	w.choice = &chooser{model: w.opt.Model, workers: func() int { return w.opt.Workers + int(w.helping.Load()) }, limit: w.opt.Limit, backlog: backlog, regions: map[int]*gain{}}
}

// rest is how much memory is not written yet.
func (w *writer) rest() uint64 {
	if w.choice == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total - w.done
}

func (w *writer) watch() (s stopwatch) {
	if w.choice != nil {
		s = startWatch()
	}
	return s
}

// wrote notes that a chunk is in the page cache.
func (w *writer) wrote(at int64, n int, watch stopwatch) {
	if w.choice == nil {
		return
	}
	cpu, _ := watch.stop()
	w.opt.Model.wrote(n, cpu)
	if w.flusher != nil {
		w.flusher.add(at, int64(n))
	}
}

// piece is a chunk, with what is kept of it for the next image.
type piece struct {
	Chunk
	pages []uint64 // digests of its pages; nil where they are not known
	same  bool     // it is in an image that was written at the same time
}

func (w *writer) run(ctx context.Context) error {
	w.seal = blake3.New()
	var err error
	if w.jobs, w.total, err = plan(w.in, uint64(w.opt.Chunk)); err != nil {
		return err
	}
	sections, err := w.writeHead()
	if err != nil {
		return err
	}
	if w.opt.Tell != nil {
		w.teller = newTeller(w.opt.Tell, w.jobs, w.in.Parent)
	}
	w.auto()
	w.direct = newDirect(w)
	err = w.writeMemory(ctx)
	if e := w.direct.stop(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return w.writeTail(ctx, sections)
}

// writeMemory writes the content of the regions.
func (w *writer) writeMemory(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	w.taken = make(chan struct{})
	for range min(w.opt.Workers, len(w.jobs)) {
		g.Go(func() error { return w.work(gctx, nil) })
	}
	if helpers := min(w.opt.Helpers, len(w.jobs)-w.opt.Workers); helpers > 0 {
		w.pen = w.newPen()
		defer w.pen.stop()
		for range helpers {
			g.Go(func() error { return w.help(gctx) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// tracks tells whether pages are to be known by their digests.
func (w *writer) tracks() bool { return w.opt.Track || w.opt.Tell != nil }

// writeAt writes at an offset.
func (w *writer) writeAt(p []byte, at int64) error { return w.writeTo(w.file, p, at) }

// writeTo writes to one of the descriptors of the file. Every write of an image goes through it.
func (w *writer) writeTo(f *os.File, p []byte, at int64) error {
	if err := fault.Point("image.write.data"); err != nil {
		return err
	}
	_, err := f.WriteAt(p, at)
	return err
}

// append writes p at the end of the file.
func (w *writer) append(p []byte) error {
	at := w.end
	w.end += int64(len(p))
	w.seal.Write(p) // never fails
	return w.writeAt(p, at)
}

// writeHead writes header and sections.
func (w *writer) writeHead() ([]sectionEntry, error) {
	version := uint32(versionAlone)
	if w.in.Parent != nil || w.in.Elder != nil {
		version = versionRefers
	}
	if err := w.append(encodeHeader(version)); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	all := append([]Section{{metaSection, w.in.Meta}, {regionsSection, encodeRegions(w.in.Regions)}},
		w.in.Sections...)
	entries := make([]sectionEntry, len(all))
	for i, s := range all {
		entries[i] = sectionEntry{name: s.Name, offset: w.end, bytes: int64(len(s.Data)), sum: sum(s.Data)}
		if err := w.appendSection(s.Data); err != nil {
			return nil, fmt.Errorf("section %s: %w", s.Name, err)
		}
	}
	return entries, nil
}

// sectionBlock is the unit in which the zeros of a section become a hole of the file.
const sectionBlock = 64 << 10

// appendSection is append, without writing zeros. More of the file comes behind it.
func (w *writer) appendSection(p []byte) error {
	at := w.end
	w.end += int64(len(p))
	w.seal.Write(p) // never fails
	for len(p) > 0 {
		n := 0 // what is written at once
		for n < len(p) && (len(p)-n < sectionBlock || !isZeroAny(p[n:n+sectionBlock])) {
			n = min(n+sectionBlock, len(p))
		}
		if err := w.writeAt(p[:n], at); err != nil {
			return err
		}
		for n+sectionBlock <= len(p) && isZeroAny(p[n:n+sectionBlock]) {
			n += sectionBlock
		}
		p, at = p[n:], at+int64(n)
	}
	return nil
}

// writeTail writes index and footer.
func (w *writer) writeTail(ctx context.Context, sections []sectionEntry) error {
	slices.SortFunc(w.chunks, func(a, b piece) int { return cmp.Compare(a.Addr, b.Addr) })
	if err := w.nameSources(ctx); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	ft := footer{
		indexOffset: w.end,
		sections:    uint64(len(sections)),
		chunks:      uint64(len(w.chunks)),
		sources:     uint64(len(w.out.Sources)),
	}
	index := make([]byte, sectionBytes*len(sections)+chunkBytes*len(w.chunks)+sourceBytes*len(w.out.Sources))
	at := index
	for i := range sections {
		sections[i].put(at)
		at = at[sectionBytes:]
	}
	for i := range w.chunks {
		w.chunks[i].put(at)
		at = at[chunkBytes:]
	}
	for i := range w.out.Sources {
		w.out.Sources[i].put(at)
		at = at[sourceBytes:]
	}
	if err := w.append(index); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	ft.fileBytes = w.end + footerBytes
	tail := make([]byte, footerBytes)
	ft.put(tail)
	w.seal.Write(tail[:footerSealed])
	w.seal.Sum(ft.seal[:0])
	ft.finish(tail)
	if err := w.writeAt(tail, w.end); err != nil {
		return fmt.Errorf("footer: %w", err)
	}
	if w.direct != nil { // more may have been allocated
		if err := w.file.Truncate(ft.fileBytes); err != nil {
			return fmt.Errorf("footer: %w", err)
		}
	}
	w.out.Bytes, w.out.Digest = ft.fileBytes, ft.seal
	w.out.Regions, w.out.Chunks = len(w.in.Regions), len(w.chunks)
	for i := range w.in.Regions {
		w.out.RegionBytes += w.in.Regions[i].Bytes()
	}
	return nil
}

// work is the loop of one worker, or of a helper.
func (w *writer) work(ctx context.Context, h *helper) error {
	enc, err := newEncoder(w.opt.Compress, w.choice)
	if err != nil {
		return err
	}
	defer enc.release()
	enc.ctx = ctx
	if h != nil {
		enc.pen = w.pen
	}
	var buf []byte
	if w.direct == nil {
		if cap(enc.chunk) < w.opt.Chunk {
			enc.chunk = make([]byte, w.opt.Chunk)
		}
		buf = enc.chunk[:w.opt.Chunk]
	}
	for {
		if h != nil {
			h.next(ctx)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		i := w.next.Add(1) - 1
		if i == int64(len(w.jobs)) {
			close(w.taken)
		}
		if i >= int64(len(w.jobs)) {
			return nil
		}
		j := w.jobs[i]
		zero, known := w.inherit(j)
		if !known {
			if w.direct != nil {
				enc.buffer = w.direct.pool.take()
				buf = enc.buffer.p
			}
			zero, err = w.readAndStore(ctx, enc, j, buf[:j.end-j.start])
			if w.direct != nil {
				enc.buffer.drop()
			}
			if err != nil {
				return err
			}
		}
		if w.teller != nil {
			w.teller.finish(int(i))
		}
		w.mu.Lock()
		w.out.ZeroBytes += uint64(zero)
		w.done += j.end - j.start
		if known {
			w.out.UnreadBytes += j.end - j.start
		}
		if w.opt.Progress != nil {
			w.opt.Progress(w.done, w.total)
		}
		w.mu.Unlock()
	}
}

// readAndStore does a job whose content is not known. p is memory for it.
func (w *writer) readAndStore(ctx context.Context, enc *encoder, j job, p []byte) (zero int, err error) {
	if err := w.read(p, j); err != nil {
		return 0, err
	}
	elder, err := w.awaitElder(ctx, j.end)
	if err != nil {
		return 0, err
	}
	return w.store(enc, j, p, elder)
}

// read fills p with the job's memory. A page that cannot be read and holds no data of its own counts as
// zero: such a page lies behind the end of a mapped file, or is a guard page.
func (w *writer) read(p []byte, j job) error {
	r := &w.in.Regions[j.region]
	var mem Memory = w.in.Memory
	if r.Copied != nil {
		mem = r.Copied
	}
	err := mem.ReadAt(p, j.start)
	if err == nil {
		return nil
	}
	present, perr := holdsData(mem, j.start, j.end)
	if perr != nil {
		return fmt.Errorf("region %v: which pages hold data: %w", r, perr)
	}
	for at := j.start; at < j.end; at += PageSize {
		page := p[at-j.start:][:PageSize]
		if err := mem.ReadAt(page, at); err == nil {
			continue
		} else if covers(present, at, at+PageSize) {
			return fmt.Errorf("region %v: read the page at 0x%x: %w", r, at, err)
		}
		clear(page)
	}
	return nil
}

// holdsData is like Present. For a process it reads the entries of the page map: more kernels mark guard
// pages there than in the answer of the ioctl.
func holdsData(mem Memory, start, end uint64) ([]Extent, error) {
	if p, ok := mem.(*ProcessMemory); ok {
		return p.presence.walk(start, end)
	}
	return mem.Present(start, end)
}

// writeChunk stores one part of a job.
func (w *writer) writeChunk(enc *encoder, region int, addr uint64, content []byte) error {
	kind, data := enc.encode(content, region, w.rest())
	c := Chunk{
		Addr: addr, Bytes: uint32(len(content)), Stored: uint32(len(data)), Kind: kind, Content: sum(content),
	}
	if c.Data = c.Content; kind != KindRaw {
		c.Data = sum(data)
	}
	var pages []uint64
	if w.tracks() {
		pages = pageSums(content)
	}
	w.mu.Lock()
	if kind == KindRaw {
		w.end = (w.end + PageSize - 1) &^ (PageSize - 1)
	}
	c.Offset = w.end
	w.end += int64(len(data))
	one := piece{c, pages, false}
	w.chunks = append(w.chunks, one)
	w.out.PayloadBytes += uint64(c.Bytes)
	w.out.StoredBytes += uint64(c.Stored)
	w.mu.Unlock()
	if w.teller != nil {
		w.teller.add(one)
	}
	err := w.pace.wait(enc.ctx, len(data))
	if err == nil && w.direct.takes(kind, len(data)) {
		err = w.direct.write(data, c.Offset, enc.buffer)
	} else if err == nil && enc.pen != nil {
		err = enc.pen.write(data, c.Offset)
	} else if err == nil {
		err = w.writeData(data, c.Offset)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.name(), err)
	}
	return nil
}

// writeData writes what is stored of a chunk.
func (w *writer) writeData(data []byte, at int64) error {
	watch := w.watch()
	if err := w.writeAt(data, at); err != nil {
		return err
	}
	if !w.opt.NoSync {
		// This starts writing to disk while the next chunk is read, which nearly halves the time with fsync.
		// It is only a hint: where it fails or has no effect, fsync writes everything and returns the error.
		_ = unix.SyncFileRange(int(w.file.Fd()), at, int64(len(data)), unix.SYNC_FILE_RANGE_WRITE)
	}
	w.wrote(at, len(data), watch)
	return nil
}
