// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/libckpt/libckpt/internal/pagemap"
)

// Parent is what a new image of a process may refer to: an earlier image that is complete. It does not change, and
// several writers may use it.
type Parent struct {
	path    string
	self    Source
	sources []Source
	chunks  []piece // in order of address
}

// Path is the file of the parent.
func (p *Parent) Path() string { return p.path }

// Pieces is how many chunks the parent has, in its own file or in others.
func (p *Parent) Pieces() int { return len(p.chunks) }

// Bytes is how much memory they hold.
func (p *Parent) Bytes() (n uint64) {
	for i := range p.chunks {
		n += uint64(p.chunks[i].Bytes)
	}
	return n
}

// beside tells whether an image at path may refer to the parent by its name.
func (p *Parent) beside(path string) error {
	if p == nil {
		return nil
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if filepath.Dir(filepath.Dir(full)) != filepath.Dir(filepath.Dir(p.path)) {
		return fmt.Errorf("it cannot refer to %s, whose folder is not beside its own", p.path)
	}
	if len(p.sources)+1 > maxSources {
		return fmt.Errorf("%s refers to %d images, which are too many for one more", p.path, len(p.sources))
	}
	return nil
}

// AsParent makes an open image the parent of the next one. Where a chunk differs from memory its content is read from
// the file, at the time of the writing, to find the pages that changed.
func (f *File) AsParent() (*Parent, error) {
	full, err := filepath.Abs(f.name)
	if err != nil {
		return nil, err
	}
	name, err := SourceName(full)
	if err != nil {
		return nil, err
	}
	p := &Parent{path: full, self: Source{name, f.size, f.seal}, sources: f.sources, chunks: make([]piece, len(f.chunks))}
	for i := range f.chunks {
		p.chunks[i].Chunk = f.chunks[i]
	}
	return p, nil
}

// asParent is AsParent for the image that was just written, whose pages are known by their digests. It is nil when the
// image cannot be referred to by its name.
func (w *writer) asParent(path string) *Parent {
	full, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	name, err := SourceName(full)
	if err != nil {
		return nil
	}
	return &Parent{path: full, self: Source{name, w.out.Bytes, w.out.Digest}, sources: w.out.Sources, chunks: w.chunks}
}

// pageSums are short digests of pages. A page that changed and has the same digest by chance would be taken for one that
// did not; the digest of the chunk, which is made from memory, does not fit its content then, and readers refuse it.
func pageSums(p []byte) []uint64 {
	list := make([]uint64, len(p)/PageSize)
	for i := range list {
		list[i] = xxh3.Hash(p[i*PageSize:][:PageSize])
	}
	return list
}

// minShared is the shortest run of unchanged pages between changed ones that is referred to. Shorter ones are written
// again: a restart reads runs one by one.
const minShared = 4 * PageSize

// oldImage reads the parent's content, where digests do not tell which pages of it changed.
type oldImage struct {
	once sync.Once
	file *File
}

func (o *oldImage) close() {
	if o.file != nil {
		_ = o.file.Close()
	}
}

// read returns the content of a chunk of the parent, nil when it cannot be had: it is damaged, or gone.
func (w *writer) readOld(c *Chunk) []byte {
	o, p := &w.parent, w.in.Parent
	o.once.Do(func() {
		if f, err := Open(p.path); err == nil && f.seal == p.self.Seal {
			o.file = f
		} else if err == nil {
			_ = f.Close()
		}
	})
	if o.file == nil {
		return nil
	}
	r := chunkReader{file: o.file}
	defer r.dec.close()
	content := make([]byte, c.Bytes)
	if r.load(c, content) != nil {
		return nil
	}
	return content
}

// store stores the content of a job: it refers to what the parent has and, if it has told of the job, the elder, and
// writes the rest. It returns how many bytes of it are zero and left out.
func (w *writer) store(enc *encoder, j job, p []byte, elder bool) (zero int, err error) {
	addr := j.start
	write := func(from, to int) error {
		n, err := cut(p[from:to], func(a, b int) error {
			return w.writeChunk(enc, j.region, addr+uint64(from+a), p[from+a:from+b])
		})
		zero += n
		return err
	}
	done := 0
	list := w.shared(addr, p)
	if elder {
		list = w.ofElder(list, addr, p)
	}
	for _, s := range list {
		if s.from > done {
			if err := write(done, s.from); err != nil {
				return 0, err
			}
		}
		w.refer(s, addr, p)
		done = s.to
	}
	if done < len(p) {
		err = write(done, len(p))
	}
	return zero, err
}

// run is a part of a job that is in a chunk of the parent, unchanged, or of the elder.
type run struct {
	from, to int // in the job
	chunk    *piece
	elder    bool
	whole    bool     // all of the chunk
	pages    []uint64 // digests; nil: not known
}

// shared finds what the parent has of a job, in order.
func (w *writer) shared(addr uint64, p []byte) []run {
	old := w.in.Parent
	if old == nil {
		return nil
	}
	var list []run
	end := addr + uint64(len(p))
	i, _ := slices.BinarySearchFunc(old.chunks, addr, func(c piece, a uint64) int {
		if c.End() <= a {
			return -1
		}
		return 1
	})
	for ; i < len(old.chunks) && old.chunks[i].Addr < end; i++ {
		if c := &old.chunks[i]; c.Kind != KindZero {
			list = w.compare(list, c, addr, p, false)
		}
	}
	return worthwhile(list, p)
}

// inherit refers to what the parent has of a job that was not written since, without reading it. known is false when
// that cannot be told, or a chunk of the parent goes on outside of the job. It returns how many bytes are zero.
func (w *writer) inherit(j job) (zero int, known bool) {
	old := w.in.Parent
	if old == nil || !contains(w.in.Unwritten, j.start, j.end) {
		return 0, false
	}
	first, _ := slices.BinarySearchFunc(old.chunks, j.start, func(c piece, a uint64) int {
		if c.End() <= a {
			return -1
		}
		return 1
	})
	last := first
	for ; last < len(old.chunks) && old.chunks[last].Addr < j.end; last++ {
		if c := &old.chunks[last]; c.Addr < j.start || c.End() > j.end {
			return 0, false
		}
	}
	zero = int(j.end - j.start)
	for i := first; i < last; i++ {
		if c := &old.chunks[i]; c.Kind != KindZero {
			w.refer(run{from: int(c.Addr - j.start), to: int(c.End() - j.start), chunk: c, whole: true, pages: c.pages}, j.start, nil)
			zero -= int(c.Bytes)
		}
	}
	return zero, true
}

// Calm is memory that was the same in the parent and in an image before it. Ascending.
func (p *Parent) Calm() (list []Extent) {
	for i := range p.chunks {
		if c := &p.chunks[i]; c.Source != 0 && !c.same {
			list = pagemap.Append(list, Extent{Start: c.Addr, End: c.End()})
		}
	}
	return list
}

// contains tells whether all of start to end is in the ascending list, whose ranges may meet.
func contains(list []Extent, start, end uint64) bool {
	i, _ := slices.BinarySearchFunc(list, start, func(e Extent, a uint64) int {
		if e.End <= a {
			return -1
		}
		return 1
	})
	for ; i < len(list) && list[i].Start <= start; i++ {
		if start = list[i].End; start >= end {
			return true
		}
	}
	return false
}

// compare appends the runs of one chunk of the parent, or of the elder.
func (w *writer) compare(list []run, c *piece, addr uint64, p []byte, elder bool) []run {
	lo, hi := max(c.Addr, addr), min(c.End(), addr+uint64(len(p)))
	now := p[lo-addr : hi-addr]
	if lo == c.Addr && hi == c.End() && c.mayBe(now) && sum(now) == c.Content {
		return append(list, run{int(lo - addr), int(hi - addr), c, elder, true, c.pages})
	}
	at := int(lo - c.Addr)
	var same func(i int) bool // of the page of now that begins there
	if c.pages != nil {
		same = func(i int) bool { return xxh3.Hash(now[i:i+PageSize]) == c.pages[(at+i)/PageSize] }
	} else {
		var content []byte
		if !elder {
			content = w.readOld(&c.Chunk)
		}
		if content == nil {
			return list
		}
		same = func(i int) bool { return string(now[i:i+PageSize]) == string(content[at+i:at+i+PageSize]) }
	}
	for i := 0; i < len(now); {
		from := i
		for i < len(now) && same(i) {
			i += PageSize
		}
		if i > from {
			r := run{from: int(lo-addr) + from, to: int(lo-addr) + i, chunk: c, elder: elder}
			if c.pages != nil {
				r.pages = c.pages[(at+from)/PageSize : (at+i)/PageSize]
			}
			list = append(list, r)
		}
		i += PageSize
	}
	return list
}

// worthwhile leaves out short runs between data that is written anyway.
func worthwhile(list []run, p []byte) []run {
	kept := list[:0]
	written := func(from int) bool { // the page is in no run and not zero
		return from >= 0 && from < len(p) && !isZero(p[from:from+PageSize])
	}
	for i, r := range list {
		before := r.from > 0 && (i == 0 || list[i-1].to < r.from) && written(r.from-PageSize)
		after := (i+1 == len(list) || list[i+1].from > r.to) && written(r.to)
		if r.to-r.from < minShared && before && after {
			continue
		}
		kept = append(kept, r)
	}
	return kept
}

// refer adds a chunk that is in another image; p, the job's content, is nil only for a whole chunk. Its source is a number
// in the list that bases makes, until nameSources.
func (w *writer) refer(r run, addr uint64, p []byte) {
	c := r.chunk.Chunk
	c.Addr = addr + uint64(r.from)
	switch {
	case r.elder && c.Source == 0:
		c.Source = uint16(w.ownSources() + len(w.in.Elder.sources) + 1)
	case r.elder:
		c.Source += uint16(w.ownSources())
	case c.Source == 0:
		c.Source = uint16(w.ownSources())
	}
	if !r.whole {
		part := uint32(c.Addr - r.chunk.Addr)
		c.Content = sum(p[r.from:r.to])
		if c.Kind == KindRaw {
			c.Offset += int64(part)
			c.Stored = uint32(r.to - r.from)
			c.Data = c.Content
		} else {
			c.Skip += part
		}
		c.Bytes = uint32(r.to - r.from)
	}
	if c.Kind != KindRaw && c.Whole == 0 {
		c.Whole = r.chunk.Bytes
	}
	pages := r.pages
	if pages == nil && w.tracks() && p != nil {
		pages = pageSums(p[r.from:r.to])
	}
	one := piece{c, pages, r.elder && r.chunk.Source == 0}
	w.mu.Lock()
	w.chunks = append(w.chunks, one)
	w.out.SharedBytes += uint64(c.Bytes)
	if r.elder {
		w.out.SameBytes += uint64(c.Bytes)
	}
	w.mu.Unlock()
	if w.teller != nil {
		w.teller.add(one)
	}
}

// nameSources lists the images that chunks are in, and numbers them.
func (w *writer) nameSources(ctx context.Context) error {
	all, err := w.bases(ctx)
	if err != nil {
		return err
	}
	number := make([]uint16, len(all)+1)
	named := map[string]uint16{} // one may be a source of the parent and of the elder
	for i := range w.chunks {
		c := &w.chunks[i]
		if c.Source == 0 {
			continue
		}
		s := all[c.Source-1]
		if number[c.Source] == 0 {
			n, known := named[s.Name]
			if !known {
				w.out.Sources = append(w.out.Sources, s)
				n = uint16(len(w.out.Sources))
				named[s.Name] = n
			} else if w.out.Sources[n-1] != s {
				return fmt.Errorf("%s is two images: %v and %v", s.Name, w.out.Sources[n-1].Seal, s.Seal)
			}
			number[c.Source] = n
		}
		c.Source = number[c.Source]
	}
	return nil
}

// Check tells whether all that an image with this parent may refer to is there, without reading it.
func (p *Parent) Check() error {
	f, err := Open(p.path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if f.seal != p.self.Seal {
		return f.corrupt("footer", f.size-footerBytes, "digest", p.self.Seal, f.seal)
	}
	return f.CheckSources()
}
