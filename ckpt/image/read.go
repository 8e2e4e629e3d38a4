// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/libckpt/libckpt/internal/pagemap"
)

// ReadOptions are the options of Read. The zero value is ready for use.
type ReadOptions struct {
	Workers  int                      // goroutines; at most 4 and at most GOMAXPROCS unless given
	Progress func(done, total uint64) // bytes of content; called by one goroutine at a time
}

// Read fills memory with the content of the image, in parallel.
//
// Read calls dest once for each region that has content. dest returns the memory to fill, which must be
// writable and of the region's length. It must be all zero beforehand, like a fresh mapping, because zero
// pages are not written. nil leaves the region out. Raw chunks are read straight into that memory. Read
// checks every chunk's digest. After an error (*CorruptError when the image is damaged) the content of the
// memory is undefined.
func (f *File) Read(ctx context.Context, dest func(i int, r *Region) []byte, opt ReadOptions) error {
	type task struct {
		chunk *Chunk
		dst   []byte
	}
	var tasks []task
	var total uint64
	for i := range f.regions {
		chunks := f.RegionChunks(i)
		if len(chunks) == 0 {
			continue
		}
		r := &f.regions[i]
		mem := dest(i, r)
		if mem == nil {
			continue
		}
		if uint64(len(mem)) != r.Bytes() {
			return fmt.Errorf("%s: region %v: %d bytes of memory given for %d", f.name, r, len(mem), r.Bytes())
		}
		for k := range chunks {
			c := &chunks[k]
			at := c.Addr - r.Start
			tasks = append(tasks, task{c, mem[at : at+uint64(c.Bytes) : at+uint64(c.Bytes)]})
			total += uint64(c.Bytes)
		}
	}
	return f.parallel(ctx, len(tasks), opt, total, func(w *chunkReader, i int) (uint64, error) {
		return uint64(len(tasks[i].dst)), w.load(tasks[i].chunk, tasks[i].dst)
	})
}

// ReadRegion is Read for region i alone.
func (f *File) ReadRegion(ctx context.Context, i int, dst []byte, workers int) error {
	return f.Read(ctx, func(k int, _ *Region) []byte {
		if k == i {
			return dst
		}
		return nil
	}, ReadOptions{Workers: workers})
}

// Verify reads the whole image and checks every byte of it, and what it refers to in others. progress may be nil.
func (f *File) Verify(ctx context.Context, progress func(done, total uint64)) error {
	return f.verify(ctx, progress, true)
}

// VerifyOwn is Verify without what the image refers to in others, which may be elsewhere.
func (f *File) VerifyOwn(ctx context.Context) error { return f.verify(ctx, nil, false) }

func (f *File) verify(ctx context.Context, progress func(done, total uint64), others bool) error {
	// The metadata may have changed on disk since Open.
	again := &File{name: f.name, r: f.r, size: f.size}
	if err := again.load(); err != nil {
		return err
	}
	if again.seal != f.seal {
		return f.corrupt("footer", f.size-footerBytes, "digest", f.seal, again.seal)
	}
	if err := f.verifyPadding(); err != nil {
		return err
	}
	chunks := f.byOffset()
	for i := range f.chunks {
		if others && f.chunks[i].Source != 0 {
			chunks = append(chunks, &f.chunks[i])
		}
	}
	var total uint64
	for _, c := range chunks {
		total += uint64(c.Stored)
	}
	return f.verifyChunks(ctx, chunks, total, progress)
}

func (f *File) verifyChunks(ctx context.Context, chunks []*Chunk, total uint64, progress func(done, total uint64)) error {
	return f.parallel(ctx, len(chunks), ReadOptions{Progress: progress}, total, func(w *chunkReader, i int) (uint64, error) {
		c := chunks[i]
		w.content = slices.Grow(w.content[:0], int(c.Bytes))[:c.Bytes]
		return uint64(c.Stored), w.load(c, w.content)
	})
}

// VerifyRegions reads the content of those regions that want says yes to, wherever it is, and checks it.
func (f *File) VerifyRegions(ctx context.Context, want func(*Region) bool) error {
	var chunks []*Chunk
	var total uint64
	for i := range f.regions {
		if !want(&f.regions[i]) {
			continue
		}
		list := f.RegionChunks(i)
		for k := range list {
			chunks = append(chunks, &list[k])
			total += uint64(list[k].Stored)
		}
	}
	return f.verifyChunks(ctx, chunks, total, nil)
}

// verifyPadding checks that what lies between sections, chunks and index is zero.
func (f *File) verifyPadding() error {
	at := int64(headerBytes)
	for _, s := range f.sections {
		at = s.offset + s.bytes
	}
	gap := func(to int64) error {
		// Padding is less than a page; a longer gap is not from this package.
		if to-at >= PageSize {
			return f.corrupt("padding", at, "length", fmt.Sprintf("less than %d bytes", PageSize), to-at)
		}
		p := make([]byte, to-at)
		if err := f.readAt(p, at, "padding"); err != nil {
			return err
		}
		if !isZeroAny(p) {
			return f.corrupt("padding", at, "content", "zero", "other bytes")
		}
		return nil
	}
	for _, c := range f.byOffset() {
		if err := gap(c.Offset); err != nil {
			return err
		}
		at = c.Offset + int64(c.Stored)
	}
	index := f.size - footerBytes - int64(len(f.sections))*sectionBytes - int64(len(f.chunks))*chunkBytes -
		int64(len(f.sources))*sourceBytes
	return gap(index)
}

// parallel runs n tasks on workers. do returns how much of total it did.
func (f *File) parallel(ctx context.Context, n int, opt ReadOptions, total uint64,
	do func(w *chunkReader, i int) (uint64, error)) error {
	if opt.Workers <= 0 {
		opt.Workers = min(4, runtime.GOMAXPROCS(0))
	}
	var next atomic.Int64
	var mu sync.Mutex
	var done uint64
	g, gctx := errgroup.WithContext(ctx)
	for range min(opt.Workers, n) {
		g.Go(func() error {
			w := &chunkReader{file: f}
			defer w.dec.close()
			for {
				if gctx.Err() != nil {
					return context.Cause(gctx)
				}
				i := int(next.Add(1) - 1)
				if i >= n {
					return nil
				}
				bytes, err := do(w, i)
				if err != nil {
					return err
				}
				if opt.Progress != nil {
					mu.Lock()
					done += bytes
					opt.Progress(done, total)
					mu.Unlock()
				}
			}
		})
	}
	return g.Wait()
}

// chunkReader reads chunks for one worker; its buffers are reused.
type chunkReader struct {
	file    *File
	dec     decoder
	stored  []byte
	content []byte // for Verify
	whole   []byte // what a chunk of which a part is wanted decompresses to
	holds   Chunk  // what is in whole; Stored is 0 when nothing is
}

// load fills dst, of the chunk's length, with the chunk's content and checks its digests.
func (w *chunkReader) load(c *Chunk, dst []byte) error {
	if c.Kind == KindZero {
		return nil
	}
	f := w.file
	from, name, err := f.holder(c)
	if err != nil {
		return err
	}
	bad := func(what string, expected, found any) error {
		e := &CorruptError{File: name, Section: c.name(), Offset: c.Offset, What: what,
			Expected: fmt.Sprint(expected), Found: fmt.Sprint(found)}
		if c.Source != 0 {
			e.For = f.name
		}
		return e
	}
	read := func(p []byte) error {
		if n, err := from.ReadAt(p, c.Offset); n != len(p) {
			if errors.Is(err, io.EOF) {
				return bad("length", fmt.Sprintf("%d bytes", len(p)), fmt.Sprintf("%d bytes", n))
			}
			return fmt.Errorf("%s: read %s at offset %d: %w", name, c.name(), c.Offset, err)
		}
		return nil
	}
	if c.Kind == KindRaw {
		if err := read(dst); err != nil {
			return err
		}
		if got := sum(dst); got != c.Content {
			return bad("digest", c.Content, got)
		}
		return nil
	}
	out, part := dst, c.Whole != 0 && c.Whole != c.Bytes
	h := &w.holds
	if part && h.Stored == c.Stored && h.Source == c.Source && h.Offset == c.Offset && h.Whole == c.Whole && h.Data == c.Data {
		out = w.whole
	} else {
		w.stored = slices.Grow(w.stored[:0], int(c.Stored))[:c.Stored]
		if err := read(w.stored); err != nil {
			return err
		}
		// The digest is checked first, so that decompressors see only bytes that a compressor wrote.
		if got := sum(w.stored); got != c.Data {
			return bad("digest", c.Data, got)
		}
		if part {
			w.holds.Stored = 0
			w.whole = slices.Grow(w.whole[:0], int(c.Whole))[:c.Whole]
			out = w.whole
		}
		if err := w.dec.decode(c.Kind, out, w.stored); err != nil {
			return bad(c.Kind.String()+" data", fmt.Sprintf("%d bytes of content", len(out)), err)
		}
		if part {
			w.holds = *c
		}
	}
	if part {
		copy(dst, out[c.Skip:])
	}
	if got := sum(dst); got != c.Content {
		return bad("digest of the content", c.Content, got)
	}
	return nil
}

// ReadAt implements Memory for an image: it fills p with the memory of the process from addr on. Pages
// without a chunk are zero, and so are addresses outside all regions.
func (f *File) ReadAt(p []byte, addr uint64) error {
	clear(p)
	end := addr + uint64(len(p))
	w := &chunkReader{file: f}
	defer w.dec.close()
	i, _ := slices.BinarySearchFunc(f.chunks, addr, func(c Chunk, a uint64) int {
		if c.End() <= a {
			return -1
		}
		return 1
	})
	for ; i < len(f.chunks) && f.chunks[i].Addr < end; i++ {
		c := &f.chunks[i]
		if c.Kind == KindZero {
			continue
		}
		w.content = slices.Grow(w.content[:0], int(c.Bytes))[:c.Bytes]
		if err := w.load(c, w.content); err != nil {
			return err
		}
		if c.Addr >= addr {
			copy(p[c.Addr-addr:], w.content)
		} else {
			copy(p, w.content[addr-c.Addr:])
		}
	}
	return nil
}

// Present implements Memory for an image: it returns the ranges that have chunks.
func (f *File) Present(start, end uint64) ([]Extent, error) {
	var list []Extent
	for i := range f.chunks {
		c := &f.chunks[i]
		if c.Kind != KindZero && c.End() > start && c.Addr < end {
			list = pagemap.Append(list, Extent{Start: max(c.Addr, start), End: min(c.End(), end)})
		}
	}
	return list, nil
}

var _ Memory = (*File)(nil)
