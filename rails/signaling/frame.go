// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"encoding/binary"
	"fmt"
)

// frameType is the purpose of a frame. Numbers are part of the protocol and never reused.
type frameType uint8

const (
	frameData   frameType = 1 // routed: a piece of a message
	frameAck    frameType = 2 // routed: frames of a stream before seq need no room any more
	framePing   frameType = 3 // link: I am here, and have seq of your frames; the smaller rank's first ping has the connection's number
	frameBye    frameType = 4 // link: nothing follows
	frameLost   frameType = 5 // flooded: a rank is lost; payload is a LostError
	frameLink   frameType = 6 // routed: please connect to me; in a call (dial.go): connection seq is broken
	frameNoLink frameType = 7 // routed: I cannot connect to you; payload says why
	frameReach  frameType = 8 // flooded: a rank misses another, or no longer does (reach.go)
)

const (
	flagLast     = 1 // data: the message is complete
	flagDrop     = 2 // data: the sender gave up; forget the pieces of this message
	flagQuiet    = 4 // bye: no news, as all agreed to end or the network had failed before
	allFlags     = flagLast | flagDrop | flagQuiet
	frameHeader  = 20
	maxLostCause = 1000
	numberSize   = 8
)

// frame is the unit of a link: one record.
//
//	0 type  1 flags  2 kind (2)  4 from (4)  8 to (4)  12 seq (8)  20 payload
type frame struct {
	typ      frameType
	flags    uint8
	kind     uint16
	from, to int
	seq      uint64
	payload  []byte
}

func (f *frame) encode() []byte {
	b := make([]byte, frameHeader, frameHeader+len(f.payload))
	b[0] = byte(f.typ)
	b[1] = f.flags
	binary.BigEndian.PutUint16(b[2:], f.kind)
	binary.BigEndian.PutUint32(b[4:], uint32(f.from))
	binary.BigEndian.PutUint32(b[8:], uint32(f.to))
	binary.BigEndian.PutUint64(b[12:], f.seq)
	return append(b, f.payload...)
}

// decodeFrame decodes a frame, and checks what does not depend on the state of the network. The payload is part of b.
func decodeFrame(b []byte, ranks int) (*frame, error) {
	if len(b) < frameHeader {
		return nil, fmt.Errorf("frame has %d bytes, want at least %d", len(b), frameHeader)
	}
	f := &frame{
		typ:     frameType(b[0]),
		flags:   b[1],
		kind:    binary.BigEndian.Uint16(b[2:]),
		seq:     binary.BigEndian.Uint64(b[12:]),
		payload: b[frameHeader:],
	}
	from, to := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	if uint64(from) >= uint64(ranks) || uint64(to) >= uint64(ranks) {
		return nil, fmt.Errorf("frame goes from rank %d to rank %d of %d ranks", from, to, ranks)
	}
	f.from, f.to = int(from), int(to)
	limit := 0
	switch f.typ {
	case frameData:
		limit = chunk
	case frameLost:
		limit = 8 + maxLostCause
	case frameNoLink:
		limit = maxLostCause
	case frameReach:
		limit = 9 + maxLostCause
	case framePing:
		limit = numberSize
	case frameAck, frameBye, frameLink:
	default:
		return nil, fmt.Errorf("frame has unknown type %d", f.typ)
	}
	if len(f.payload) > limit {
		return nil, fmt.Errorf("frame of type %d has %d bytes, want at most %d", f.typ, len(f.payload), limit)
	}
	if f.flags&^allFlags != 0 {
		return nil, fmt.Errorf("frame has unknown flags %#x", f.flags)
	}
	return f, nil
}

func encodeLost(e *LostError) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(e.Rank))
	b = binary.BigEndian.AppendUint32(b, uint32(e.By))
	return append(b, clip(e.Cause)...)
}

func decodeLost(b []byte, ranks int) (*LostError, error) {
	if len(b) < 8 {
		return nil, fmt.Errorf("report of a lost rank has %d bytes, want at least 8", len(b))
	}
	rank, by := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	if uint64(rank) >= uint64(ranks) || uint64(by) >= uint64(ranks) {
		return nil, fmt.Errorf("rank %d reports rank %d of %d ranks lost", by, rank, ranks)
	}
	return &LostError{Rank: int(rank), By: int(by), Cause: string(b[8:])}, nil
}

func clip(s string) string {
	if len(s) > maxLostCause {
		return s[:maxLostCause]
	}
	return s
}
