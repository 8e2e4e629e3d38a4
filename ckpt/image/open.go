// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/zeebo/blake3"

	"github.com/libckpt/libckpt/internal/regular"
)

// File is an open image. Several goroutines may call its methods at the same time.
type File struct {
	name     string
	r        io.ReaderAt
	close    func() error
	size     int64
	version  uint32
	seal     Digest
	sections []sectionEntry
	sources  []Source
	others   others // the files of sources, once they are needed
	find     func(s Source) string
	regions  []Region
	chunks   []Chunk
	first    []int // first[i] is the first chunk of region i; one more entry at the end

	keep func(s SectionInfo) bool // of OpenKeeping
	mu   sync.Mutex
	kept map[string][]byte // until they are taken
}

// Open opens an image and checks everything in it but the content of the chunks: header, sections,
// index and footer, their digests, and that these parts agree with each other. It fails with
// *CorruptError, *VersionError or *ArchError.
func Open(path string) (*File, error) { return OpenKeeping(path, nil) }

// OpenKeeping is Open, and keeps the content of those sections that keep says yes to for Take: it is read to be checked.
func OpenKeeping(path string, keep func(s SectionInfo) bool) (*File, error) {
	f, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("image: %w", err), f.Close())
	}
	img := &File{name: path, r: f, size: st.Size(), close: f.Close, keep: keep, kept: map[string][]byte{}}
	if err := img.load(); err != nil {
		_ = f.Close()
		return nil, err
	}
	return img, nil
}

// OpenReader is Open for size bytes that are not in a file; name is for messages.
func OpenReader(name string, r io.ReaderAt, size int64) (*File, error) {
	f := &File{name: name, r: r, size: size, close: func() error { return nil }}
	if err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

// Close closes the file.
func (f *File) Close() error { return errors.Join(f.close(), f.others.close()) }

// Name is the path that the file was opened by.
func (f *File) Name() string { return f.name }

// Bytes is the length of the file.
func (f *File) Bytes() int64 { return f.size }

// Digest is the digest of the whole file, which Write reported.
func (f *File) Digest() Digest { return f.seal }

// Regions returns the regions, in order of address. The caller must not change them.
func (f *File) Regions() []Region { return f.regions }

// Chunks returns the index, in order of address. The caller must not change it.
func (f *File) Chunks() []Chunk { return f.chunks }

// RegionChunks returns the part of Chunks that lies in region i.
func (f *File) RegionChunks(i int) []Chunk { return f.chunks[f.first[i]:f.first[i+1]] }

// Meta returns the caller's JSON document.
func (f *File) Meta() ([]byte, error) { return f.Section(metaSection) }

// SectionInfo names a section and says how long it is.
type SectionInfo struct {
	Name  string
	Bytes int64
}

// Sections lists all sections, "meta" and "regions" included.
func (f *File) Sections() []SectionInfo {
	list := make([]SectionInfo, len(f.sections))
	for i, s := range f.sections {
		list[i] = SectionInfo{s.name, s.bytes}
	}
	return list
}

// Section reads and checks a section and returns its content. The error wraps ErrNoSection when there is
// no section of that name.
func (f *File) Section(name string) ([]byte, error) {
	for i := range f.sections {
		if s := &f.sections[i]; s.name == name {
			return f.readSection(s)
		}
	}
	return nil, fmt.Errorf("%s: section %q: %w", f.name, name, ErrNoSection)
}

// Take is Section, once without reading it again where OpenKeeping has kept it.
func (f *File) Take(name string) ([]byte, error) {
	f.mu.Lock()
	p, kept := f.kept[name]
	delete(f.kept, name)
	f.mu.Unlock()
	if kept {
		return p, nil
	}
	return f.Section(name)
}

func (f *File) readSection(s *sectionEntry) ([]byte, error) {
	p := make([]byte, s.bytes) // load has checked that the file is that long
	what := "section " + s.name
	if err := f.readAt(p, s.offset, what); err != nil {
		return nil, err
	}
	if got := sum(p); got != s.sum {
		return nil, f.corrupt(what, s.offset, "digest", s.sum, got)
	}
	return p, nil
}

func (f *File) corrupt(section string, at int64, what string, expected, found any) error {
	return &CorruptError{File: f.name, Section: section, Offset: at, What: what,
		Expected: fmt.Sprint(expected), Found: fmt.Sprint(found)}
}

// readAt reads all of p; a file that ends too early is damage, not an I/O error.
func (f *File) readAt(p []byte, at int64, section string) error {
	n, err := f.r.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return f.corrupt(section, at, "length", fmt.Sprintf("%d bytes", len(p)), fmt.Sprintf("%d bytes", n))
	}
	return fmt.Errorf("%s: read %s at offset %d: %w", f.name, section, at, err)
}

// load reads and checks everything but the chunks.
func (f *File) load() error {
	header := make([]byte, headerBytes)
	if err := f.readAt(header, 0, "header"); err != nil {
		return err
	}
	if err := f.checkHeader(header); err != nil {
		return err
	}
	ft, tail, err := f.loadFooter()
	if err != nil {
		return err
	}
	index := make([]byte, f.size-footerBytes-ft.indexOffset)
	if err := f.readAt(index, ft.indexOffset, "index"); err != nil {
		return err
	}
	if err := f.decodeIndex(&ft, index); err != nil {
		return err
	}
	// This is one digest over header, sections, index and footer. Their own digests are checked, too, so
	// that a message can name the damaged section.
	seal := blake3.New()
	seal.Write(header)
	var regions []byte
	for i := range f.sections {
		s := &f.sections[i]
		p, err := f.readSection(s)
		if err != nil {
			return err
		}
		if i == 1 {
			regions = p
		}
		seal.Write(p)
		if f.keep != nil && f.keep(SectionInfo{s.name, s.bytes}) {
			f.kept[s.name] = p
		}
	}
	seal.Write(index)
	seal.Write(tail[:footerSealed])
	var got Digest
	seal.Sum(got[:0])
	if got != ft.seal {
		return f.corrupt("index", ft.indexOffset, "digest of header, sections, index and footer",
			ft.seal, got)
	}
	f.seal = ft.seal
	if f.regions, err = decodeRegions(regions); err != nil {
		return f.corrupt("section regions", headerBytes, "content", "a list of regions", err)
	}
	return f.checkChunks(ft.indexOffset)
}

func (f *File) checkHeader(p []byte) error {
	le := binary.LittleEndian
	if string(p[:8]) != headerMagic {
		return f.corrupt("header", 0, "mark", fmt.Sprintf("%q", headerMagic), fmt.Sprintf("%q", p[:8]))
	}
	want, got := Sum(p[headerBytes-16:]), sum(p[:headerBytes-16])
	if got != want {
		return f.corrupt("header", 0, "digest", want, got)
	}
	f.version = le.Uint32(p[8:])
	if f.version < oldestReadable || f.version > Version {
		return &VersionError{File: f.name, Found: f.version, Supported: Version}
	}
	if m := le.Uint32(p[16:]); m != machineAMD64 {
		return &ArchError{f.name, "architecture", machineName(m), machineName(machineAMD64)}
	}
	if ps := le.Uint32(p[20:]); ps != PageSize {
		return &ArchError{f.name, "page size", fmt.Sprint(ps), fmt.Sprint(PageSize)}
	}
	// The rest is constant in this version.
	if !bytes.Equal(p, encodeHeader(f.version)) {
		return f.corrupt("header", 12, "content", fmt.Sprintf("that of version %d", f.version), "another")
	}
	return nil
}

func machineName(m uint32) string {
	switch m {
	case machineAMD64:
		return "x86_64"
	case 183:
		return "aarch64"
	case 243:
		return "riscv"
	case 21:
		return "ppc64"
	}
	return fmt.Sprintf("ELF machine %d", m)
}

func (f *File) loadFooter() (ft footer, p []byte, err error) {
	at := f.size - footerBytes
	if at < headerBytes {
		return ft, nil, f.corrupt("footer", f.size, "length of the file",
			fmt.Sprintf("at least %d bytes", headerBytes+footerBytes), fmt.Sprintf("%d bytes", f.size))
	}
	p = make([]byte, footerBytes)
	if err := f.readAt(p, at, "footer"); err != nil {
		return ft, nil, err
	}
	if string(p[120:]) != footerMagic {
		return ft, nil, f.corrupt("footer", at+120, "mark at the end of the file",
			fmt.Sprintf("%q", footerMagic), fmt.Sprintf("%q (was the file cut short?)", p[120:]))
	}
	if want, got := Sum(p[96:112]), sum(p[:96]); want != got {
		return ft, nil, f.corrupt("footer", at, "digest", want, got)
	}
	reserved := p[32:64]
	if f.version >= versionRefers {
		reserved = p[40:64]
	}
	if !isZeroAny(reserved) || !isZeroAny(p[112:120]) {
		return ft, nil, f.corrupt("footer", at, "reserved bytes", "zero", "others")
	}
	ft.get(p)
	if ft.fileBytes != f.size {
		return ft, nil, f.corrupt("footer", at, "length of the file", ft.fileBytes, f.size)
	}
	room := at - ft.indexOffset
	if ft.indexOffset < headerBytes || room < 0 {
		return ft, nil, f.corrupt("footer", at, "offset of the index",
			fmt.Sprintf("%d to %d", headerBytes, at), ft.indexOffset)
	}
	// These are divisions, because products of numbers from a file may overflow.
	if ft.sections > uint64(room)/sectionBytes || ft.chunks > uint64(room)/chunkBytes || ft.sources > maxSources ||
		ft.sections*sectionBytes+ft.chunks*chunkBytes+ft.sources*sourceBytes != uint64(room) {
		return ft, nil, f.corrupt("footer", at, "number of index entries", fmt.Sprintf("%d bytes of them", room),
			fmt.Sprintf("%d sections, %d chunks and %d sources", ft.sections, ft.chunks, ft.sources))
	}
	return ft, p, nil
}

// decodeIndex decodes the index and checks the sections' places.
func (f *File) decodeIndex(ft *footer, p []byte) error {
	f.sections = make([]sectionEntry, ft.sections)
	at := int64(headerBytes)
	seen := map[string]bool{}
	for i := range f.sections {
		s := &f.sections[i]
		s.get(p[i*sectionBytes:])
		here := ft.indexOffset + int64(i*sectionBytes)
		if !validName(s.name) || seen[s.name] {
			return f.corrupt("index", here, "name of a section", "a new one", fmt.Sprintf("%q", s.name))
		}
		seen[s.name] = true
		if s.offset != at || s.bytes < 0 || s.bytes > ft.indexOffset-at {
			return f.corrupt("index", here, "place of section "+s.name, fmt.Sprintf("offset %d", at),
				fmt.Sprintf("%d bytes at offset %d", s.bytes, s.offset))
		}
		at += s.bytes
	}
	if len(f.sections) < 2 || f.sections[0].name != metaSection || f.sections[1].name != regionsSection {
		return f.corrupt("index", ft.indexOffset, "list of sections", "meta, regions, ...", "another")
	}
	f.chunks = make([]Chunk, ft.chunks)
	p = p[ft.sections*sectionBytes:]
	for i := range f.chunks {
		if e := p[i*chunkBytes:]; e[25] != 0 || f.version < versionRefers && !isZeroAny(e[26:32]) {
			return f.corrupt("index", ft.indexOffset, fmt.Sprintf("reserved bytes of chunk %d", i), "zero", "others")
		}
		f.chunks[i].get(p[i*chunkBytes:])
	}
	return f.decodeSources(p[ft.chunks*chunkBytes:], int(ft.sources), f.size-footerBytes-int64(ft.sources)*sourceBytes)
}

// checkChunks checks that the chunks lie in regions and in the file, each in its own place.
func (f *File) checkChunks(indexOffset int64) error {
	f.first = make([]int, len(f.regions)+1)
	region, last := 0, uint64(0)
	for i := range f.chunks {
		c := &f.chunks[i]
		bad := func(what string, expected, found any) error {
			return f.corrupt("index entry of "+c.name(), indexOffset, what, expected, found)
		}
		for region < len(f.regions) && f.regions[region].End <= c.Addr {
			region++
			f.first[region] = i
		}
		switch {
		case c.Bytes == 0 || c.Bytes%PageSize != 0 || c.Bytes > MaxChunk:
			return bad("length", fmt.Sprintf("whole pages, at most %d bytes", MaxChunk), c.Bytes)
		case c.Addr%PageSize != 0 || c.Addr < last:
			return bad("address", "a page behind the chunk before", fmt.Sprintf("0x%x", c.Addr))
		case region == len(f.regions) || c.Addr < f.regions[region].Start || c.End() > f.regions[region].End:
			return bad("address", "inside one region", "outside")
		}
		last = c.End()
		if c.Source != 0 {
			if err := f.checkReference(c, bad); err != nil {
				return err
			}
			continue
		}
		if c.Skip != 0 || c.Whole != 0 {
			return bad("part of a chunk", "none, unless it is in another image", c.Skip)
		}
		switch c.Kind {
		case KindZero:
			if c.Stored != 0 || c.Offset != 0 {
				return bad("stored length and offset of a zero chunk", 0, c.Stored)
			}
			continue
		case KindRaw:
			if c.Stored != c.Bytes || c.Offset%PageSize != 0 || c.Data != c.Content {
				return bad("entry of a raw chunk", "length, alignment and digests of its content", "others")
			}
		case KindSnappy, KindZstd:
			if c.Stored == 0 || c.Stored >= c.Bytes {
				return bad("stored length", fmt.Sprintf("1 to %d", c.Bytes-1), c.Stored)
			}
		default:
			return bad("kind", "zero, raw, snappy or zstd", c.Kind)
		}
		if c.Offset < headerBytes || c.Offset > indexOffset-int64(c.Stored) {
			return bad("offset", fmt.Sprintf("%d to %d", headerBytes, indexOffset-int64(c.Stored)), c.Offset)
		}
	}
	for region < len(f.regions) {
		region++
		f.first[region] = len(f.chunks)
	}
	// No two parts may be in the same place.
	at := int64(headerBytes)
	for _, s := range f.sections {
		at = s.offset + s.bytes
	}
	for _, c := range f.byOffset() {
		if c.Offset < at {
			return f.corrupt("index entry of "+c.name(), indexOffset, "offset",
				fmt.Sprintf("at least %d", at), c.Offset)
		}
		at = c.Offset + int64(c.Stored)
	}
	return nil
}

// byOffset returns the chunks that are stored in this file, in the order in which they lie in the file.
func (f *File) byOffset() []*Chunk {
	list := make([]*Chunk, 0, len(f.chunks))
	for i := range f.chunks {
		if c := &f.chunks[i]; c.Kind != KindZero && c.Source == 0 {
			list = append(list, &f.chunks[i])
		}
	}
	slices.SortFunc(list, func(a, b *Chunk) int { return cmp.Compare(a.Offset, b.Offset) })
	return list
}

// isZeroAny is isZero for any length.
func isZeroAny(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
