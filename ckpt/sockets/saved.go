// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// State says what a socket is to the program.
type State string

// States of a saved socket.
const (
	// Fresh: made, perhaps bound, and neither connected nor listening.
	Fresh State = "fresh"
	// Listening for connections; those that wait to be accepted have Visits.
	Listening State = "listening"
	// Connected to another socket of the job.
	Connected State = "connected"
	// Alone: the other end is closed, or the connection is over. What it has received can be read.
	Alone State = "alone"
)

// Ref names a socket of the job.
type Ref struct {
	Rank  int `json:"rank"`
	Index int `json:"index"` // in the rank's table
}

// less orders sockets: of two ends, the lower one accepts.
func (r Ref) less(o Ref) bool { return r.Rank < o.Rank || r.Rank == o.Rank && r.Index < o.Index }

// Option is a socket option with its value, as getsockopt gives it.
type Option struct {
	Level int    `json:"level"`
	Name  int    `json:"name"`
	Value []byte `json:"value"`
}

// Socket is one socket in an image.
type Socket struct {
	State  State          `json:"state"`
	Family int            `json:"family"` // AF_INET, AF_INET6, AF_UNIX
	Type   int            `json:"type"`   // SOCK_STREAM, ...
	Local  netip.AddrPort `json:"local"`  // as the program knows them
	Peer   netip.AddrPort `json:"peer"`
	// Other is the other end, of Connected.
	Other   *Ref `json:"other,omitempty"`
	Backlog int  `json:"backlog,omitempty"`
	// What the program has shut down.
	NoRead  bool `json:"noRead,omitempty"`
	NoWrite bool `json:"noWrite,omitempty"`
	// Reset: the other end has cut the connection, of Alone.
	Reset   bool     `json:"reset,omitempty"`
	Options []Option `json:"options,omitempty"`
	// Visits is the listening socket at which it waits to be accepted, if it does: behind those with lower numbers.
	Visits *int   `json:"visits,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"` // length of data
	data   []byte // received, and not read by the program
}

// Table is the sockets of a process.
type Table struct {
	Sockets []Socket `json:"sockets"`
}

// Bounds of what a decoder accepts.
const (
	maxSockets     = 768
	maxOptions     = 256
	maxValue       = 256
	maxData        = 1 << 30 // of one socket; buffers of the kernel are far smaller
	maxDescription = 16 << 20
	magic          = "CKPSOCKS"
	version        = 1 // without connections that wait to be accepted
	versionVisits  = 2
	headerBytes    = 16
)

// The encoded form: "CKPSOCKS", version and length of the description (4 bytes each, little-endian), the Table as JSON,
// then the bytes that each socket had received, in order.

// Encode returns the table as bytes for an image.
func (t *Table) Encode() ([]byte, error) {
	for i := range t.Sockets {
		t.Sockets[i].Bytes = int64(len(t.Sockets[i].data))
	}
	if err := t.validate(); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	description, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encode sockets: %w", err)
	}
	out := make([]byte, headerBytes, headerBytes+len(description))
	copy(out, magic)
	binary.LittleEndian.PutUint32(out[8:], t.version())
	binary.LittleEndian.PutUint32(out[12:], uint32(len(description)))
	out = append(out, description...)
	for i := range t.Sockets {
		out = append(out, t.Sockets[i].data...)
	}
	return out, nil
}

// version is the oldest that can say it.
func (t *Table) version() uint32 {
	for i := range t.Sockets {
		if t.Sockets[i].Visits != nil {
			return versionVisits
		}
	}
	return version
}

// Decode reads what Encode wrote. The sockets' bytes point into b.
func Decode(b []byte) (Table, error) {
	fail := func(format string, args ...any) (Table, error) {
		return Table{}, fmt.Errorf("sockets: %s", fmt.Sprintf(format, args...))
	}
	if len(b) < headerBytes || string(b[:8]) != magic {
		return fail("no header")
	}
	v := binary.LittleEndian.Uint32(b[8:])
	if v < version || v > versionVisits {
		return fail("version %d, this libckpt reads versions %d to %d", v, version, versionVisits)
	}
	n := int64(binary.LittleEndian.Uint32(b[12:]))
	if n > maxDescription || n > int64(len(b))-headerBytes {
		return fail("description of %d bytes, %d are there", n, len(b)-headerBytes)
	}
	var t Table
	d := json.NewDecoder(bytes.NewReader(b[headerBytes : headerBytes+n]))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return fail("description: %v", err)
	}
	if d.InputOffset() != n {
		return fail("bytes after the description")
	}
	if err := t.validate(); err != nil {
		return Table{}, err
	}
	if t.version() > v {
		return fail("version %d, with connections that wait to be accepted", v)
	}
	at := headerBytes + n
	for i := range t.Sockets {
		s := &t.Sockets[i]
		if s.Bytes > int64(len(b))-at {
			return fail("socket %d has %d bytes, %d are there", i, s.Bytes, int64(len(b))-at)
		}
		s.data = b[at : at+s.Bytes : at+s.Bytes]
		at += s.Bytes
	}
	if at != int64(len(b)) {
		return fail("%d bytes more than expected", int64(len(b))-at)
	}
	return t, nil
}

var errBadTable = errors.New("sockets")

func (t *Table) validate() error {
	if len(t.Sockets) > maxSockets {
		return fmt.Errorf("%w: %d of them", errBadTable, len(t.Sockets))
	}
	for i := range t.Sockets {
		if err := t.Sockets[i].validate(); err != nil {
			return fmt.Errorf("%w: socket %d: %w", errBadTable, i, err)
		}
		if v := t.Sockets[i].Visits; v != nil && (*v < 0 || *v >= len(t.Sockets) || t.Sockets[*v].State != Listening ||
			t.Sockets[*v].Family != t.Sockets[i].Family || t.Sockets[i].State != Connected && t.Sockets[i].State != Alone) {
			return fmt.Errorf("%w: socket %d waits to be accepted at %d", errBadTable, i, *v)
		}
	}
	return nil
}

func (s *Socket) validate() error {
	switch s.Family {
	case unix.AF_INET, unix.AF_INET6:
		if s.Type != unix.SOCK_STREAM {
			return fmt.Errorf("of type %d", s.Type)
		}
	case unix.AF_UNIX:
		if s.Type != unix.SOCK_STREAM && s.Type != unix.SOCK_DGRAM && s.Type != unix.SOCK_SEQPACKET ||
			s.State != Connected && s.State != Alone || s.Type != unix.SOCK_STREAM && s.Bytes > 0 {
			return fmt.Errorf("a Unix socket of type %d, %s", s.Type, s.State)
		}
	default:
		return fmt.Errorf("of family %d", s.Family)
	}
	switch s.State {
	case Fresh, Listening:
		if s.Bytes > 0 {
			return fmt.Errorf("%s, and has bytes", s.State)
		}
	case Connected:
		if s.Other == nil || s.Other.Rank < 0 || s.Other.Index < 0 || s.Other.Index >= maxSockets {
			return errors.New("connected to nothing")
		}
	case Alone:
	default:
		return fmt.Errorf("unknown state %q", s.State)
	}
	if s.Bytes < 0 || s.Bytes > maxData || s.Backlog < 0 || len(s.Options) > maxOptions {
		return errors.New("too much")
	}
	for _, o := range s.Options {
		if len(o.Value) > maxValue {
			return errors.New("an option with too long a value")
		}
	}
	return nil
}
