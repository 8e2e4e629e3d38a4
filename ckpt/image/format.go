// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/zeebo/xxh3"
)

// Version is the newest version of the format that this package writes and reads. An image that refers to no other
// one is written as version 1, so that older readers have it too.
const Version = 2

const (
	versionAlone   = 1 // all content is in the file
	versionRefers  = 2 // chunks may be in other images
	oldestReadable = versionAlone
)

// PageSize is the unit of regions and chunks, in bytes. The format records it.
const PageSize = 4096

// MaxChunk bounds the content of one chunk, so that a reader knows how much memory it may need.
const MaxChunk = 4 << 20

// Sizes and marks of docs/image-format.md. All integers are little-endian.
const (
	headerBytes  = 4096
	footerBytes  = 128
	sectionBytes = 64  // one section entry of the index
	chunkBytes   = 64  // one chunk entry of the index
	nameBytes    = 32  // longest section name
	sourceBytes  = 192 // one source entry of the index
	sourceName   = 128 // longest name of a source

	headerMagic = "CKPTIMG\n"
	footerMagic = "CKPTEND\n"

	machineAMD64 = 62 // e_machine of ELF

	digestXXH3 = 1 // digests of chunks and sections
	sealBLAKE3 = 1 // digest of the whole

	metaSection    = "meta"
	regionsSection = "regions"
)

// Kind says how a chunk is stored. The numbers are part of the format and never reused.
type Kind uint8

// Kinds of chunks.
const (
	KindZero   Kind = 1 // all zero, not stored
	KindRaw    Kind = 2 // unchanged, at an offset that is a multiple of the page size
	KindSnappy Kind = 3 // one Snappy block
	KindZstd   Kind = 4 // one Zstandard frame
	KindParent Kind = 5 // reserved and refused: Chunk.Source says where content is, Kind how it is stored
)

func (k Kind) String() string {
	switch k {
	case KindZero:
		return "zero"
	case KindRaw:
		return "raw"
	case KindSnappy:
		return "snappy"
	case KindZstd:
		return "zstd"
	case KindParent:
		return "parent"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Digest is the BLAKE3-256 digest that covers a whole image.
type Digest [32]byte

// String returns the form that manifests hold.
func (d Digest) String() string { return "blake3:" + hex.EncodeToString(d[:]) }

// Sum is an XXH3-128 digest, high half first.
type Sum [16]byte

func (s Sum) String() string { return hex.EncodeToString(s[:]) }

func sum(p []byte) Sum { return xxh3.Hash128(p).Bytes() }

// Chunk is one entry of the index. It says where in the file the pages from Addr on are.
type Chunk struct {
	Addr    uint64
	Offset  int64  // in the file
	Bytes   uint32 // of content, a multiple of PageSize
	Stored  uint32 // bytes in the file
	Kind    Kind
	Content Sum // digest of the content
	Data    Sum // digest of the bytes in the file

	// Source is 0 when Offset is one in this file; n: in the file of Sources()[n-1]. A chunk that is compressed there
	// may be a part of what Stored bytes from Offset on decompress to: Whole bytes, of which it has those from Skip on.
	Source      uint16
	Skip, Whole uint32 // multiples of PageSize; 0 unless in a source and compressed
}

// End is the address after the chunk's last byte.
func (c *Chunk) End() uint64 { return c.Addr + uint64(c.Bytes) }

func (c *Chunk) name() string { return fmt.Sprintf("pages 0x%x-0x%x", c.Addr, c.End()) }

func (c *Chunk) put(p []byte) {
	le := binary.LittleEndian
	le.PutUint64(p[0:], c.Addr)
	le.PutUint64(p[8:], uint64(c.Offset))
	le.PutUint32(p[16:], c.Bytes)
	le.PutUint32(p[20:], c.Stored)
	p[24], p[25] = uint8(c.Kind), 0
	le.PutUint16(p[26:], c.Source)
	le.PutUint16(p[28:], uint16(c.Skip/PageSize))
	le.PutUint16(p[30:], uint16(c.Whole/PageSize))
	copy(p[32:48], c.Content[:])
	copy(p[48:64], c.Data[:])
}

func (c *Chunk) get(p []byte) {
	le := binary.LittleEndian
	c.Addr = le.Uint64(p[0:])
	c.Offset = int64(le.Uint64(p[8:]))
	c.Bytes = le.Uint32(p[16:])
	c.Stored = le.Uint32(p[20:])
	c.Kind = Kind(p[24])
	c.Source = le.Uint16(p[26:])
	c.Skip, c.Whole = uint32(le.Uint16(p[28:]))*PageSize, uint32(le.Uint16(p[30:]))*PageSize
	copy(c.Content[:], p[32:48])
	copy(c.Data[:], p[48:64])
}

// sectionEntry is one section entry of the index.
type sectionEntry struct {
	name   string
	offset int64
	bytes  int64
	sum    Sum
}

func (s *sectionEntry) put(p []byte) {
	le := binary.LittleEndian
	clear(p[:nameBytes])
	copy(p[:nameBytes], s.name)
	le.PutUint64(p[32:], uint64(s.offset))
	le.PutUint64(p[40:], uint64(s.bytes))
	copy(p[48:64], s.sum[:])
}

func (s *sectionEntry) get(p []byte) {
	le := binary.LittleEndian
	s.name = string(bytes.TrimRight(p[:nameBytes], "\x00"))
	s.offset = int64(le.Uint64(p[32:]))
	s.bytes = int64(le.Uint64(p[40:]))
	copy(s.sum[:], p[48:64])
}

// validName tells whether name can name a section: 1 to 32 characters a-z, 0-9, dot, dash,
// underscore.
func validName(name string) bool {
	if name == "" || len(name) > nameBytes {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// encodeHeader returns the first page of a file. Its first 16 bytes and its last 16 keep their
// meaning in every version, so that a reader can tell damage from another version.
func encodeHeader(version uint32) []byte {
	p := make([]byte, headerBytes)
	le := binary.LittleEndian
	copy(p, headerMagic)
	le.PutUint32(p[8:], version)
	le.PutUint32(p[12:], headerBytes)
	le.PutUint32(p[16:], machineAMD64)
	le.PutUint32(p[20:], PageSize)
	le.PutUint32(p[24:], digestXXH3)
	le.PutUint32(p[28:], sealBLAKE3)
	s := sum(p[:headerBytes-16])
	copy(p[headerBytes-16:], s[:])
	return p
}

// footer is the end of a file.
type footer struct {
	indexOffset int64
	sections    uint64
	chunks      uint64
	fileBytes   int64
	sources     uint64
	seal        Digest
}

// put writes everything but the seal, which covers these bytes.
func (f *footer) put(p []byte) {
	le := binary.LittleEndian
	le.PutUint64(p[0:], uint64(f.indexOffset))
	le.PutUint64(p[8:], f.sections)
	le.PutUint64(p[16:], f.chunks)
	le.PutUint64(p[24:], uint64(f.fileBytes))
	le.PutUint64(p[32:], f.sources)
	clear(p[40:64])
}

// finish adds seal, digest and mark.
func (f *footer) finish(p []byte) {
	copy(p[64:96], f.seal[:])
	s := sum(p[:96])
	copy(p[96:112], s[:])
	clear(p[112:120])
	copy(p[120:128], footerMagic)
}

func (f *footer) get(p []byte) {
	le := binary.LittleEndian
	f.indexOffset = int64(le.Uint64(p[0:]))
	f.sections = le.Uint64(p[8:])
	f.chunks = le.Uint64(p[16:])
	f.fileBytes = int64(le.Uint64(p[24:]))
	f.sources = le.Uint64(p[32:])
	copy(f.seal[:], p[64:96])
}

const footerSealed = 64 // bytes of the footer that the seal covers
