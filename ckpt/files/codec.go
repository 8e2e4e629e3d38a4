// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// The encoded form:
//
//	offset  bytes
//	0       8      "CKPFILES"
//	8       4      version, little-endian
//	12      4      n, length of the description, little-endian
//	16      n      description: the Table as JSON
//	16+n    ...    the bytes of all pipes in order, then of all extents of all contents in order
//
// The lengths of the parts at the end stand in the description. Nothing follows them.
const (
	magic   = "CKPFILES"
	version = 1
	// maxDescription bounds the JSON: 768 descriptors with paths, watches and locks are far less.
	maxDescription = 64 << 20
	headerBytes    = 16
)

// Encode returns the table as bytes for an image.
func (t *Table) Encode() ([]byte, error) {
	if err := t.validate(); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	description, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encode open files: %w", err)
	}
	if len(description) > maxDescription {
		return nil, fmt.Errorf("encode open files: description of %d bytes is too long", len(description))
	}
	out := make([]byte, headerBytes, headerBytes+int64(len(description))+t.dataBytes())
	copy(out, magic)
	binary.LittleEndian.PutUint32(out[8:], version)
	binary.LittleEndian.PutUint32(out[12:], uint32(len(description)))
	out = append(out, description...)
	for _, part := range t.parts() {
		out = append(out, *part.data...)
	}
	return out, nil
}

// Decode reads what Encode wrote. The table's contents point into b, which must not change after.
func Decode(b []byte) (Table, error) {
	fail := func(offset int64, format string, args ...any) (Table, error) {
		return Table{}, fmt.Errorf("open files, offset %d: %s", offset, fmt.Sprintf(format, args...))
	}
	if len(b) < headerBytes {
		return fail(int64(len(b)), "cut short: %d bytes, the header has %d", len(b), headerBytes)
	}
	if string(b[:8]) != magic {
		return fail(0, "found %q, expected %q", b[:8], magic)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != version {
		return fail(8, "version %d, this libckpt reads version %d", v, version)
	}
	n := int64(binary.LittleEndian.Uint32(b[12:]))
	if n > maxDescription || n > int64(len(b))-headerBytes {
		return fail(12, "description of %d bytes, %d are there", n, len(b)-headerBytes)
	}
	var t Table
	decoder := json.NewDecoder(bytes.NewReader(b[headerBytes : headerBytes+n]))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&t); err != nil {
		return fail(headerBytes, "description: %v", err)
	}
	if decoder.InputOffset() != n {
		return fail(headerBytes+decoder.InputOffset(), "bytes after the description")
	}
	if err := t.validate(); err != nil {
		return fail(headerBytes, "%v", err)
	}
	offset := headerBytes + n
	for _, part := range t.parts() {
		if part.bytes > int64(len(b))-offset {
			return fail(offset, "cut short: %d bytes of content expected, %d are there", part.bytes, int64(len(b))-offset)
		}
		*part.data = b[offset : offset+part.bytes : offset+part.bytes]
		offset += part.bytes
	}
	if offset != int64(len(b)) {
		return fail(offset, "%d bytes more than expected", int64(len(b))-offset)
	}
	return t, nil
}

// part is one run of content: where its bytes are kept, and how many it has.
type part struct {
	data  *[]byte
	bytes int64
}

func (t *Table) parts() []part {
	var parts []part
	for i := range t.Pipes {
		parts = append(parts, part{&t.Pipes[i].data, int64(t.Pipes[i].Bytes)})
	}
	for i := range t.Contents {
		for j := range t.Contents[i].Extents {
			e := &t.Contents[i].Extents[j]
			parts = append(parts, part{&e.data, e.Bytes})
		}
	}
	return parts
}

func (t *Table) dataBytes() int64 {
	var n int64
	for _, p := range t.parts() {
		n += p.bytes
	}
	return n
}

// Path is a file name as the kernel has it: any bytes but NUL. As text, bytes that are not UTF-8
// become \xNN and a backslash is doubled, so that JSON keeps every name exactly.
type Path string

// MarshalText implements encoding.TextMarshaler.
func (p Path) MarshalText() ([]byte, error) {
	var out []byte
	for s := string(p); len(s) > 0; {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			out = append(out, fmt.Sprintf(`\x%02x`, s[0])...)
		case r == '\\':
			out = append(out, `\\`...)
		default:
			out = append(out, s[:n]...)
		}
		s = s[n:]
	}
	return out, nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Path) UnmarshalText(text []byte) error {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] != '\\':
			out = append(out, text[i])
		case i+1 < len(text) && text[i+1] == '\\':
			out = append(out, '\\')
			i++
		case i+3 < len(text) && text[i+1] == 'x':
			v, err := strconv.ParseUint(string(text[i+2:i+4]), 16, 8)
			if err != nil {
				return fmt.Errorf("path %q: bad escape at %d", text, i)
			}
			out = append(out, byte(v))
			i += 3
		default:
			return fmt.Errorf("path %q: bad escape at %d", text, i)
		}
	}
	if bytes.IndexByte(out, 0) >= 0 {
		return fmt.Errorf("path %q: NUL byte", text)
	}
	*p = Path(out)
	return nil
}
