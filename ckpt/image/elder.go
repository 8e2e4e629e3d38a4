// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"
)

// Elder is the image of another process that is written at the same time, into the same folder: what it has at an
// address, the image with Input.Elder need not have there, too. What the other writer tells (Options.Tell) comes in by
// Add, from address to address; this one is never ahead of it, and so both are done at about the same time.
type Elder struct {
	mu      sync.Mutex
	news    chan struct{} // closed and replaced when something comes in
	known   bool          // sources are valid
	sources []Source      // images that pieces of the elder are in, but for its own
	chunks  []piece       // in order of address
	upTo    uint64        // all that the elder has below is in chunks
	self    Source        // valid at the end
	ended   bool
	err     error
}

// NewElder is an image of which nothing is known yet.
func NewElder() *Elder { return &Elder{news: make(chan struct{})} }

// What a writer tells of its image: a byte that says what follows, and that.
const (
	tellSources = 1 // its sources; they may be more than it refers to in the end
	tellChunks  = 2 // up to which address all is told, and chunks
	TellEnd     = 3 // itself: all is written; nothing follows
)

// tellEvery is how much memory a writer tells of at a time.
const tellEvery = 2 << 20

// Lost says that the elder will not be written: neither will be what refers to it.
func (e *Elder) Lost(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil && !e.ended {
		e.err = err
		e.wake()
	}
}

func (e *Elder) wake() {
	close(e.news)
	e.news = make(chan struct{})
}

// Add takes in what the other writer told, in that order. After an error nothing more is taken, and the writer that
// waits fails.
func (e *Elder) Add(told []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	if err := e.take(told); err != nil {
		e.err = fmt.Errorf("what is told of an image that is being written: %w", err)
	}
	e.wake()
	return e.err
}

func (e *Elder) take(p []byte) error {
	if len(p) == 0 {
		return errors.New("nothing")
	}
	what, p := p[0], p[1:]
	switch {
	case e.ended:
		return errors.New("it goes on after its end")
	case what == tellSources && !e.known:
		return e.takeSources(p)
	case what == tellChunks && e.known:
		return e.takeChunks(p)
	case what == TellEnd && e.upTo == math.MaxUint64 && len(p) == sourceBytes:
		e.self.get(p)
		e.ended = true
		return e.self.plausible()
	}
	return fmt.Errorf("%d bytes of kind %d at the wrong time", len(p), what)
}

// plausible tells whether an image can have such a source.
func (s *Source) plausible() error {
	if !validSource(s.Name) || s.Bytes < headerBytes+footerBytes {
		return fmt.Errorf("a source %q of %d bytes", s.Name, s.Bytes)
	}
	return nil
}

func (e *Elder) takeSources(p []byte) error {
	if len(p)%sourceBytes != 0 || len(p)/sourceBytes > maxSources {
		return fmt.Errorf("%d bytes of sources", len(p))
	}
	e.known = true
	for ; len(p) > 0; p = p[sourceBytes:] {
		var s Source
		s.get(p[:sourceBytes])
		if err := s.plausible(); err != nil {
			return err
		}
		e.sources = append(e.sources, s)
	}
	return nil
}

func (e *Elder) takeChunks(p []byte) error {
	le := binary.LittleEndian
	if len(p) < 8 {
		return fmt.Errorf("%d bytes of chunks", len(p))
	}
	upTo := le.Uint64(p)
	if upTo < e.upTo {
		return fmt.Errorf("address 0x%x after 0x%x", upTo, e.upTo)
	}
	end := uint64(0)
	if n := len(e.chunks); n > 0 {
		end = e.chunks[n-1].End()
	}
	for p = p[8:]; len(p) > 0; {
		if len(p) < chunkBytes+4 {
			return fmt.Errorf("%d bytes of a chunk", len(p))
		}
		var c piece
		c.get(p[:chunkBytes])
		n := int(le.Uint32(p[chunkBytes:]))
		p = p[chunkBytes+4:]
		switch {
		case c.Bytes == 0 || c.Bytes%PageSize != 0 || c.Bytes > MaxChunk || c.Addr%PageSize != 0 || c.Addr < end || c.End() > upTo || c.End() < c.Addr:
			return fmt.Errorf("%s after 0x%x, up to 0x%x", c.name(), end, upTo)
		case c.Kind != KindRaw && c.Kind != KindSnappy && c.Kind != KindZstd, int(c.Source) > len(e.sources):
			return fmt.Errorf("%s of kind %d in source %d of %d", c.name(), c.Kind, c.Source, len(e.sources))
		case n != 0 && n != int(c.Bytes)/PageSize || n > len(p)/8:
			return fmt.Errorf("%s has %d digests", c.name(), n)
		}
		if n > 0 {
			c.pages = make([]uint64, n)
			for i := range c.pages {
				c.pages[i] = le.Uint64(p[8*i:])
			}
			p = p[8*n:]
		}
		end = c.End()
		e.chunks = append(e.chunks, c)
	}
	e.upTo = upTo
	return nil
}

// wait returns when ready does, or the elder is lost. ready is called under e.mu.
func (e *Elder) wait(ctx context.Context, ready func() bool) error {
	for {
		e.mu.Lock()
		err, is, news := e.err, ready(), e.news
		e.mu.Unlock()
		switch {
		case err != nil:
			return err
		case is:
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// between are the chunks of the elder that are at least in part between two addresses, of which all is told. They do
// not change.
func (e *Elder) between(start, end uint64) []piece {
	e.mu.Lock()
	defer e.mu.Unlock()
	first, _ := slices.BinarySearchFunc(e.chunks, start, func(c piece, a uint64) int {
		if c.End() <= a {
			return -1
		}
		return 1
	})
	last := first
	for last < len(e.chunks) && e.chunks[last].Addr < end {
		last++
	}
	return e.chunks[first:last:last]
}

// ---- the writer that refers -----------------------------------------------------------------------

// awaitElder returns when the elder has told all that it has up to an address, and says whether there is one.
func (w *writer) awaitElder(ctx context.Context, end uint64) (is bool, err error) {
	e := w.in.Elder
	if e == nil {
		return false, nil
	}
	if err := e.wait(ctx, func() bool { return e.upTo >= end }); err != nil {
		return false, err
	}
	return w.ownSources()+len(e.sources)+1 <= maxSources, nil // the sources do not change any more
}

// ownSources is how many images this one may refer to by its parent.
func (w *writer) ownSources() int {
	if w.in.Parent == nil {
		return 0
	}
	return len(w.in.Parent.sources) + 1
}

// ofElder adds what the elder has, in the gaps between runs, which are ascending.
func (w *writer) ofElder(list []run, addr uint64, p []byte) []run {
	var all []run
	done := 0
	gap := func(to int) {
		if to == done {
			return
		}
		var found []run
		at := addr + uint64(done)
		chunks := w.in.Elder.between(at, addr+uint64(to))
		for i := range chunks {
			found = w.compare(found, &chunks[i], at, p[done:to], true)
		}
		for _, r := range worthwhile(found, p[done:to]) {
			r.from, r.to = r.from+done, r.to+done
			all = append(all, r)
		}
	}
	for _, r := range list {
		gap(r.from)
		all = append(all, r)
		done = r.to
	}
	gap(len(p))
	return all
}

// bases are the images that chunks may be in, as refer numbers them. It waits for the end of the elder if one is in its
// own file.
func (w *writer) bases(ctx context.Context) (all []Source, err error) {
	if p := w.in.Parent; p != nil {
		all = append(slices.Clone(p.sources), p.self)
	}
	e := w.in.Elder
	if e == nil {
		return all, nil
	}
	last := uint16(0)
	for i := range w.chunks {
		last = max(last, w.chunks[i].Source)
	}
	if int(last) <= len(all) { // nothing is the elder's
		return all, nil
	}
	all = append(all, e.sources...)
	if int(last) > len(all) {
		if err := e.wait(ctx, func() bool { return e.ended }); err != nil {
			return nil, err
		}
		all = append(all, e.self)
	}
	return all, nil
}

// ---- the writer that tells ------------------------------------------------------------------------

// teller tells of an image while it is written, from address to address.
type teller struct {
	tell func(told []byte)

	mu     sync.Mutex
	jobs   []job
	pieces [][]piece // of each job
	done   []bool
	next   int    // jobs before it are done
	told   int    // jobs before it were told
	memory uint64 // of those between
}

func newTeller(tell func([]byte), jobs []job, parent *Parent) *teller {
	t := &teller{tell: tell, jobs: jobs, pieces: make([][]piece, len(jobs)), done: make([]bool, len(jobs))}
	first := []byte{tellSources}
	if parent != nil {
		for _, s := range append(slices.Clone(parent.sources), parent.self) {
			first = append(first, make([]byte, sourceBytes)...)
			s.put(first[len(first)-sourceBytes:])
		}
	}
	tell(first)
	t.flush()
	return t
}

// add notes a chunk of a job that is under way.
func (t *teller) add(c piece) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, _ := slices.BinarySearchFunc(t.jobs, c.Addr, func(j job, a uint64) int {
		if j.end <= a {
			return -1
		}
		return 1
	})
	t.pieces[i] = append(t.pieces[i], c)
}

// finish: all chunks of the job were added.
func (t *teller) finish(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done[i] = true
	for t.next < len(t.jobs) && t.done[t.next] {
		t.memory += t.jobs[t.next].end - t.jobs[t.next].start
		t.next++
	}
	if t.memory >= tellEvery || t.next == len(t.jobs) {
		t.flush()
	}
}

// flush tells of the jobs that are done. Under mu, so that the order is right.
func (t *teller) flush() {
	le := binary.LittleEndian
	upTo := uint64(math.MaxUint64)
	if t.next < len(t.jobs) {
		upTo = t.jobs[t.next].start
	}
	msg := le.AppendUint64([]byte{tellChunks}, upTo)
	for ; t.told < t.next; t.told++ {
		list := t.pieces[t.told]
		t.pieces[t.told] = nil
		slices.SortFunc(list, func(a, b piece) int { return cmp.Compare(a.Addr, b.Addr) })
		for i := range list {
			c := &list[i]
			msg = append(msg, make([]byte, chunkBytes)...)
			c.put(msg[len(msg)-chunkBytes:])
			msg = le.AppendUint32(msg, uint32(len(c.pages)))
			for _, s := range c.pages {
				msg = le.AppendUint64(msg, s)
			}
		}
	}
	t.memory = 0
	t.tell(msg)
}

// end: the image is complete, but not yet on stable storage; if it does not come there, there is no epoch.
func (t *teller) end(self Source) {
	msg := append([]byte{TellEnd}, make([]byte, sourceBytes)...)
	self.put(msg[1:])
	t.tell(msg)
}

// mayBe tells cheaply whether a whole chunk may be what is in memory now.
func (c *piece) mayBe(now []byte) bool {
	n := len(c.pages)
	return n == 0 || xxh3.Hash(now[:PageSize]) == c.pages[0] && xxh3.Hash(now[len(now)-PageSize:]) == c.pages[n-1]
}
