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

	jobs  []job
	total uint64
	next  atomic.Int64 // job to take

	mu     sync.Mutex // guards the fields below, and the calls of Progress
	end    int64      // where the file ends so far
	chunks []Chunk
	done   uint64
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
	g, gctx := errgroup.WithContext(ctx)
	for range min(w.opt.Workers, len(w.jobs)) {
		g.Go(func() error { return w.work(gctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return w.writeTail(sections)
}

// writeAt writes at an offset. Every write of an image goes through writeAt.
func (w *writer) writeAt(p []byte, at int64) error {
	if err := fault.Point("image.write.data"); err != nil {
		return err
	}
	_, err := w.file.WriteAt(p, at)
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
	if err := w.append(encodeHeader()); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	all := append([]Section{{metaSection, w.in.Meta}, {regionsSection, encodeRegions(w.in.Regions)}},
		w.in.Sections...)
	entries := make([]sectionEntry, len(all))
	for i, s := range all {
		entries[i] = sectionEntry{name: s.Name, offset: w.end, bytes: int64(len(s.Data)), sum: sum(s.Data)}
		if err := w.append(s.Data); err != nil {
			return nil, fmt.Errorf("section %s: %w", s.Name, err)
		}
	}
	return entries, nil
}

// writeTail writes index and footer.
func (w *writer) writeTail(sections []sectionEntry) error {
	slices.SortFunc(w.chunks, func(a, b Chunk) int { return cmp.Compare(a.Addr, b.Addr) })
	ft := footer{
		indexOffset: w.end,
		sections:    uint64(len(sections)),
		chunks:      uint64(len(w.chunks)),
	}
	index := make([]byte, sectionBytes*len(sections)+chunkBytes*len(w.chunks))
	at := index
	for i := range sections {
		sections[i].put(at)
		at = at[sectionBytes:]
	}
	for i := range w.chunks {
		w.chunks[i].put(at)
		at = at[chunkBytes:]
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
	w.out.Bytes, w.out.Digest = ft.fileBytes, ft.seal
	w.out.Regions, w.out.Chunks = len(w.in.Regions), len(w.chunks)
	for i := range w.in.Regions {
		w.out.RegionBytes += w.in.Regions[i].Bytes()
	}
	return nil
}

// work is the loop of one worker.
func (w *writer) work(ctx context.Context) error {
	enc, err := newEncoder(w.opt.Compress)
	if err != nil {
		return err
	}
	buf := make([]byte, w.opt.Chunk)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		i := w.next.Add(1) - 1
		if i >= int64(len(w.jobs)) {
			return nil
		}
		j := w.jobs[i]
		p := buf[:j.end-j.start]
		if err := w.read(p, j); err != nil {
			return err
		}
		zero, err := cut(p, func(from, to int) error {
			return w.writeChunk(enc, j.start+uint64(from), p[from:to])
		})
		if err != nil {
			return err
		}
		w.mu.Lock()
		w.out.ZeroBytes += uint64(zero)
		w.done += uint64(len(p))
		if w.opt.Progress != nil {
			w.opt.Progress(w.done, w.total)
		}
		w.mu.Unlock()
	}
}

// read fills p with the job's memory. A page that cannot be read and holds no data of its own counts as
// zero: such a page lies behind the end of a mapped file, or is a guard page.
func (w *writer) read(p []byte, j job) error {
	r := &w.in.Regions[j.region]
	var mem Memory = w.in.Memory
	if r.Data != nil {
		mem = sliceMemory{r.Start, r.Data}
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
		return p.pagemap.walk(start, end)
	}
	return mem.Present(start, end)
}

// writeChunk stores one part of a job.
func (w *writer) writeChunk(enc *encoder, addr uint64, content []byte) error {
	kind, data := enc.encode(content)
	c := Chunk{
		Addr: addr, Bytes: uint32(len(content)), Stored: uint32(len(data)), Kind: kind, Content: sum(content),
	}
	if c.Data = c.Content; kind != KindRaw {
		c.Data = sum(data)
	}
	w.mu.Lock()
	if kind == KindRaw {
		w.end = (w.end + PageSize - 1) &^ (PageSize - 1)
	}
	c.Offset = w.end
	w.end += int64(len(data))
	w.chunks = append(w.chunks, c)
	w.out.PayloadBytes += uint64(c.Bytes)
	w.out.StoredBytes += uint64(c.Stored)
	w.mu.Unlock()
	if err := w.writeAt(data, c.Offset); err != nil {
		return fmt.Errorf("%s: %w", c.name(), err)
	}
	if !w.opt.NoSync {
		// This starts writing to disk while the next chunk is read, which nearly halves the time with fsync.
		// It is only a hint: where it fails or has no effect, fsync writes everything and returns the error.
		_ = unix.SyncFileRange(int(w.file.Fd()), c.Offset, int64(len(data)), unix.SYNC_FILE_RANGE_WRITE)
	}
	return nil
}
