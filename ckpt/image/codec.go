// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"

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
)

// ParseCompression understands the values of the option --compress.
func ParseCompression(s string) (Compression, error) {
	switch c := Compression(s); c {
	case CompressNone, CompressSnappy, CompressZstd:
		return c, nil
	}
	return "", fmt.Errorf("compression %q is not known: want none, snappy or zstd", s)
}

// encoder compresses chunks for one worker; its buffer is reused.
type encoder struct {
	mode Compression
	zstd *zstd.Encoder
	buf  []byte
}

func newEncoder(mode Compression) (*encoder, error) {
	e := &encoder{mode: mode}
	if mode == CompressZstd {
		// The chunk's own digests cover the frame, so the frame has no checksum.
		z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		e.zstd = z
	}
	return e, nil
}

// encode returns the kind and the bytes in which the content is stored. The bytes are valid until the
// next call.
func (e *encoder) encode(content []byte) (Kind, []byte) {
	kind, out := KindRaw, content
	switch e.mode {
	case CompressSnappy:
		if need := s2.MaxEncodedLen(len(content)); cap(e.buf) < need {
			e.buf = make([]byte, need)
		}
		kind, out = KindSnappy, s2.EncodeSnappy(e.buf[:cap(e.buf)], content)
	case CompressZstd:
		e.buf = e.zstd.EncodeAll(content, e.buf[:0])
		kind, out = KindZstd, e.buf
	}
	// A chunk that saves less than a sixteenth is not worth decompressing, nor losing the alignment.
	if kind != KindRaw && len(out) > len(content)-len(content)/16 {
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
