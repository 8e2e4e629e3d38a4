// SPDX-License-Identifier: Apache-2.0

package collclock

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MessageKind is what a message says. The numbers go over the wire and are never reused.
type MessageKind uint8

// Messages. "Down" and "up" are directions in the tree over the world or over the clock's members.
const (
	MsgReq    MessageKind = 1  // down, world: epoch begins
	MsgReady  MessageKind = 2  // up, world: every clock known at the snapshot is ripe in this subtree
	MsgFreeze MessageKind = 3  // down, world: the gates' limits are final
	MsgClean  MessageKind = 4  // up, world: everything permitted has completed in this subtree
	MsgStop   MessageKind = 5  // down, world: the state is safe
	MsgResume MessageKind = 6  // down, world: epoch is over, done or given up
	MsgInit   MessageKind = 7  // up, clock: A largest and B smallest snapshot, C smallest call count
	MsgAnn    MessageKind = 8  // up, clock: every member of this subtree has made call A
	MsgLim    MessageKind = 9  // down, clock: calls up to A may start
	MsgRipe   MessageKind = 10 // down, clock: all members have made the calls that are owed
	MsgFin    MessageKind = 11 // down, clock: A is the last call that may start in this epoch
	MsgFree   MessageKind = 12 // to home: this member has freed the clock; belongs to no epoch
	MsgDrop   MessageKind = 13 // from home: all have freed it, forget it; belongs to no epoch
	MsgAsk    MessageKind = 14 // up, clock: FREEZE came before INIT could be sent; what is the limit?
	msgEnd    MessageKind = 15

	// MsgPrivate and above are free for other protocols that use this encoding (the baselines); all
	// of them carry a clock and A, B, C.
	MsgPrivate MessageKind = 64
)

var messageNames = [...]string{
	MsgReq: "REQ", MsgReady: "READY", MsgFreeze: "FREEZE", MsgClean: "CLEAN", MsgStop: "STOP",
	MsgResume: "RESUME", MsgInit: "INIT", MsgAnn: "ANN", MsgLim: "LIM", MsgRipe: "RIPE",
	MsgFin: "FIN", MsgFree: "FREE", MsgDrop: "DROP", MsgAsk: "ASK",
}

func (k MessageKind) String() string {
	if int(k) < len(messageNames) && messageNames[k] != "" {
		return messageNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// values is how many of A, B, C a message carries.
func (k MessageKind) values() int {
	switch {
	case k == MsgInit || k >= MsgPrivate:
		return 3
	case k == MsgAnn || k == MsgLim || k == MsgFin:
		return 1
	}
	return 0
}

// clocked tells whether a message is about one clock.
func (k MessageKind) clocked() bool { return k >= MsgInit }

func (k MessageKind) valid() bool { return k >= MsgReq && k < msgEnd || k >= MsgPrivate }

// Message is one control message. The sender's rank belongs to the envelope.
type Message struct {
	Kind    MessageKind
	Epoch   uint32 // 0 for FREE, DROP and announcements of always-gated calls
	Clock   ID     // zero for messages about the world
	A, B, C uint64
}

// String is the message for logs and scenario files.
func (m Message) String() string {
	switch {
	case !m.Kind.clocked():
		return fmt.Sprintf("%v e%d", m.Kind, m.Epoch)
	case m.Kind.values() == 3:
		return fmt.Sprintf("%v e%d %v max=%d min=%d ann=%d", m.Kind, m.Epoch, m.Clock, m.A, m.B, m.C)
	case m.Kind.values() == 1:
		return fmt.Sprintf("%v e%d %v %d", m.Kind, m.Epoch, m.Clock, m.A)
	}
	return fmt.Sprintf("%v e%d %v", m.Kind, m.Epoch, m.Clock)
}

// wireVersion is the first byte of every message.
const wireVersion = 1

// MaxMessage is the largest encoded size; receivers refuse more without looking.
const MaxMessage = 2 + binary.MaxVarintLen32 + len(ID{}) + 3*binary.MaxVarintLen64

// ErrMessage marks every error of DecodeMessage.
var ErrMessage = errors.New("not a control message")

// AppendMessage appends the encoding of m:
//
//	version(1) kind(1) epoch(uvarint) [clock(16) [A [B C]](uvarints)]
//
// Equal messages have equal encodings.
func AppendMessage(dst []byte, m Message) []byte {
	dst = append(dst, wireVersion, byte(m.Kind))
	dst = binary.AppendUvarint(dst, uint64(m.Epoch))
	if !m.Kind.clocked() {
		return dst
	}
	dst = append(dst, m.Clock[:]...)
	for i, v := range [3]uint64{m.A, m.B, m.C} {
		if i < m.Kind.values() {
			dst = binary.AppendUvarint(dst, v)
		}
	}
	return dst
}

// DecodeMessage is the inverse of AppendMessage. It accepts exactly what AppendMessage writes: one message
// without further bytes, and every number in its shortest form.
func DecodeMessage(b []byte) (Message, error) {
	m, n, err := decode(b)
	if err == nil && n != len(b) {
		return Message{}, fmt.Errorf("%w: %v: %d bytes too many at byte %d", ErrMessage, m.Kind, len(b)-n, n)
	}
	return m, err
}

// DecodeMessages is the inverse of AppendMessage, called for several messages one after the other. When not all are
// messages, none is.
func DecodeMessages(b []byte) ([]Message, error) {
	var all []Message
	for {
		m, n, err := decode(b)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
		if b = b[n:]; len(b) == 0 {
			return all, nil
		}
	}
}

// decode reads one message, and tells its bytes.
func decode(b []byte) (m Message, at int, err error) {
	if len(b) < 2 {
		return m, 0, fmt.Errorf("%w: %d bytes are too few", ErrMessage, len(b))
	}
	if b[0] != wireVersion {
		return m, 0, fmt.Errorf("%w: version %d, this build speaks %d", ErrMessage, b[0], wireVersion)
	}
	m.Kind = MessageKind(b[1])
	if !m.Kind.valid() {
		return Message{}, 0, fmt.Errorf("%w: unknown %v", ErrMessage, m.Kind)
	}
	at = 2
	number := func(limit uint64) (uint64, error) {
		v, n := binary.Uvarint(b[at:])
		if n <= 0 || n > 1 && b[at+n-1] == 0 || v > limit {
			return 0, fmt.Errorf("%w: %v: bad number at byte %d", ErrMessage, m.Kind, at)
		}
		at += n
		return v, nil
	}
	epoch, err := number(1<<32 - 1)
	if err != nil {
		return Message{}, 0, err
	}
	m.Epoch = uint32(epoch)
	if m.Kind.clocked() {
		if len(b)-at < len(m.Clock) {
			return Message{}, 0, fmt.Errorf("%w: %v: clock cut short at byte %d", ErrMessage, m.Kind, at)
		}
		at += copy(m.Clock[:], b[at:])
		for i, v := range [3]*uint64{&m.A, &m.B, &m.C} {
			if i >= m.Kind.values() {
				break
			}
			if *v, err = number(1<<64 - 1); err != nil {
				return Message{}, 0, err
			}
		}
	}
	return m, at, nil
}
