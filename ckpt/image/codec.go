// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"fmt"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// Compression says how chunks are compressed. Chunks that do not shrink are stored raw.
type Compression string

// Compressions.
const (
	CompressNone   Compression = "none"
	CompressSnappy Compression = "snappy"
	CompressZstd   Compression = "zstd"
	CompressAuto   Compression = "auto" // of these three, for each chunk, the one with which all is on the disk first
)

// ParseCompression understands the values of the option --compress.
func ParseCompression(s string) (Compression, error) {
	switch c := Compression(s); c {
	case CompressNone, CompressSnappy, CompressZstd, CompressAuto:
		return c, nil
	}
	return "", fmt.Errorf("compression %q is not known: want auto, none, snappy or zstd", s)
}

// encoder compresses chunks for one worker.
type encoder struct {
	mode   Compression
	choice *chooser        // with CompressAuto
	ctx    context.Context // of the writing
	pen    *pen            // writes for a helper
	buffer *buffer         // what is encoded is in it; nil where it is written at once
	*scratch
}

// scratch is memory of an encoder that the next one uses, too: a small image takes less time than making it. The collector has what was not used
// for a while.
type scratch struct {
	zstd               *zstd.Encoder
	chunk, buf, sample []byte
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// newEncoder makes one; release gives it back.
func newEncoder(mode Compression, choice *chooser) (*encoder, error) {
	e := &encoder{mode: mode, choice: choice, scratch: scratches.Get().(*scratch)}
	if e.zstd == nil && (mode == CompressZstd || mode == CompressAuto) {
		// The chunk's own digests cover the frame, so the frame has no checksum. No match is farther away than a chunk is
		// long: more of a window is memory of the program's machine that is never looked at, 8 MB for each worker.
		z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(DefaultChunk),
			zstd.WithLowerEncoderMem(true), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		e.zstd = z
	}
	return e, nil
}

// release ends it, and what its methods have returned.
func (e *encoder) release() {
	scratches.Put(e.scratch)
	e.scratch = nil
}

// compress returns content, compressed. The bytes are valid until the next call.
func (e *encoder) compress(kind Kind, content []byte) []byte {
	switch kind {
	case KindSnappy:
		if need := s2.MaxEncodedLen(len(content)); cap(e.buf) < need {
			e.buf = make([]byte, need)
		}
		return s2.EncodeSnappy(e.buf[:cap(e.buf)], content)
	case KindZstd:
		e.buf = e.zstd.EncodeAll(content, e.buf[:0])
		return e.buf
	}
	return content
}

// worthIt tells whether a compressed chunk is kept: one that saves less than a sixteenth is not worth decompressing, nor
// losing the alignment.
func worthIt(stored, content int) bool { return stored <= content-content/16 }

// encode returns the kind and the bytes in which the content of a region is stored; rest is how much memory is still to
// be written. The bytes are valid until the next call.
func (e *encoder) encode(content []byte, region int, rest uint64) (Kind, []byte) {
	kind := KindRaw
	switch e.mode {
	case CompressSnappy:
		kind = KindSnappy
	case CompressZstd:
		kind = KindZstd
	case CompressAuto:
		return e.choice.encode(e, content, region, rest)
	}
	out := e.compress(kind, content)
	if kind != KindRaw && !worthIt(len(out), len(content)) {
		return KindRaw, content
	}
	return kind, out
}

// decoder decompresses chunks for one worker.
type decoder struct{ zstd *zstd.Decoder }

func (d *decoder) close() {
	if d.zstd != nil {
		d.zstd.Close()
	}
}

// decode fills dst, which has the length of the content, from the stored bytes.
func (d *decoder) decode(kind Kind, dst, stored []byte) error {
	var out []byte
	var err error
	switch kind {
	case KindSnappy:
		var n int
		if n, err = s2.DecodedLen(stored); err == nil && n != len(dst) {
			err = fmt.Errorf("%d bytes of content", n)
		}
		if err == nil {
			out, err = s2.Decode(dst, stored)
		}
	case KindZstd:
		if d.zstd == nil {
			if d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1),
				zstd.WithDecoderMaxMemory(2*MaxChunk)); err != nil {
				return err
			}
		}
		out, err = d.zstd.DecodeAll(stored, dst[:0:len(dst)])
	default:
		err = fmt.Errorf("%v is not a compression", kind)
	}
	if err != nil {
		return err
	}
	if len(out) != len(dst) {
		return fmt.Errorf("%d bytes of content", len(out))
	}
	if len(out) > 0 && &out[0] != &dst[0] {
		copy(dst, out)
	}
	return nil
}
