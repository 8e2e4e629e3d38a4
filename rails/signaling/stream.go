// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"bytes"
	"context"
	"fmt"
)

// A stream is all messages of one kind from one rank to another. Its frames are numbered from 0. The
// receiver acknowledges a frame when the frame needs no memory any more. For a piece of an unfinished
// message this is when the piece is in its place; for the last piece, when the message was taken from its
// queue.
type streamID struct {
	peer int
	kind uint16
}

// outStream is a stream at its sender. Under Network.mu, but for turn.
type outStream struct {
	turn  chan struct{} // one token: held while the pieces of one message are queued
	next  uint64        // number of the next frame
	acked uint64        // frames that were acknowledged
	room  chan struct{} // closed and replaced when acked grows
}

// inStream is a stream at its receiver. Under Network.mu.
type inStream struct {
	next    uint64            // frames before it have arrived
	early   map[uint64]*frame // frames that overtook others
	partial []byte            // message that is not complete
	waiting []uint64          // last frames of messages that wait in their queue, in order
	acked   uint64            // what the sender was told
}

// queue holds the messages of one kind that nobody has taken yet. Under Network.mu.
type queue struct {
	messages []arrival
	more     chan struct{} // closed and replaced when a message comes
}

type arrival struct {
	from    int
	kind    uint16
	seq     uint64 // number of the last frame
	payload []byte
}

// FirstReservedKind is the first of the kinds that callers may not use.
const FirstReservedKind = 0xff00

const kindCollective = 0xff01

// Send sends payload to a rank. Send returns when the message is on its way, not when the message has arrived.
// Send waits while the receiver does not take messages of this kind and too many are under way. After an error
// the message may or may not arrive. payload may be reused at once.
func (n *Network) Send(ctx context.Context, to int, kind uint16, payload []byte) error {
	if kind >= FirstReservedKind {
		return fmt.Errorf("send to rank %d: kind %#x is reserved", to, kind)
	}
	if err := n.send(ctx, to, kind, payload); err != nil {
		return fmt.Errorf("send to rank %d: %w", to, err)
	}
	return nil
}

func (n *Network) send(ctx context.Context, to int, kind uint16, parts ...[]byte) error {
	if to < 0 || to >= n.size {
		return fmt.Errorf("there are only ranks 0 to %d", n.size-1)
	}
	payload := bytes.Join(parts, nil)
	if len(payload) > n.cfg.MaxMessage {
		return fmt.Errorf("message has %d bytes, want at most %d", len(payload), n.cfg.MaxMessage)
	}
	if to == n.rank {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.err != nil {
			return n.err
		}
		n.queueOf(kind).put(arrival{from: to, kind: kind, payload: payload})
		return nil
	}
	s := n.outStreamOf(streamID{to, kind})
	select {
	case <-s.turn:
	case <-n.failed:
		return n.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { s.turn <- struct{}{} }()

	for first := true; ; first = false {
		piece := payload[:min(len(payload), chunk)]
		payload = payload[len(piece):]
		f := &frame{typ: frameData, kind: kind, from: n.rank, to: to, payload: piece}
		if len(payload) == 0 {
			f.flags = flagLast
		}
		if err := n.sendFrame(ctx, s, f); err != nil {
			if !first { // the receiver has pieces that will never be a message
				n.mu.Lock()
				n.push(s, &frame{typ: frameData, flags: flagDrop, kind: kind, from: n.rank, to: to})
				n.mu.Unlock()
			}
			return err
		}
		if len(payload) == 0 {
			return nil
		}
	}
}

// sendFrame waits until the window has room and sends f.
func (n *Network) sendFrame(ctx context.Context, s *outStream, f *frame) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n.mu.Lock()
		if n.err != nil {
			defer n.mu.Unlock()
			return n.err
		}
		if s.next-s.acked < window {
			n.push(s, f)
			n.mu.Unlock()
			return nil
		}
		room := s.room
		n.mu.Unlock()
		select {
		case <-room:
		case <-n.failed:
		case <-ctx.Done():
		}
	}
}

// push numbers f and routes it. When many frames have gone to a rank over others, push asks for a
// shortcut. n.mu is held.
func (n *Network) push(s *outStream, f *frame) {
	f.seq = s.next
	s.next++
	if s.next >= shortcutAt && n.links[f.to] == nil && !n.noLink[f.to] && n.wanted[f.to] == nil && n.asked < shortcuts {
		n.asked++
		n.want(f.to)
	}
	n.route(f)
}

// outStreamOf returns a stream, and makes it for its first message.
func (n *Network) outStreamOf(id streamID) *outStream {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.out[id]
	if s == nil {
		s = &outStream{turn: make(chan struct{}, 1), room: make(chan struct{})}
		s.turn <- struct{}{}
		n.out[id] = s
	}
	return s
}

// acknowledged makes room in the window. n.mu is held.
func (n *Network) acknowledged(f *frame) error {
	s := n.out[streamID{f.from, f.kind}]
	if s == nil || f.seq > s.next {
		return fmt.Errorf("rank %d acknowledges %d frames of kind %#x that were not sent", f.from, f.seq, f.kind)
	}
	if f.seq > s.acked { // else an older one that was overtaken
		s.acked = f.seq
		close(s.room)
		s.room = make(chan struct{})
	}
	return nil
}

// arrive takes in a frame for this rank. n.mu is held.
func (n *Network) arrive(f *frame) error {
	id := streamID{f.from, f.kind}
	s := n.in[id]
	if s == nil {
		s = &inStream{early: make(map[uint64]*frame)}
		n.in[id] = s
	}
	// One frame more than the window is allowed: a flagDrop frame needs no room.
	if f.seq < s.next || f.seq-s.next > window+1 || s.early[f.seq] != nil {
		return fmt.Errorf("rank %d sent frame %d of kind %#x, want %d or a few after it", f.from, f.seq, f.kind, s.next)
	}
	s.early[f.seq] = f
	for f := s.early[s.next]; f != nil; f = s.early[s.next] {
		delete(s.early, s.next)
		s.next++
		if f.flags&flagDrop != 0 {
			s.partial = nil
			continue
		}
		if len(s.partial)+len(f.payload) > n.cfg.MaxMessage {
			return fmt.Errorf("rank %d sends a message of more than %d bytes", f.from, n.cfg.MaxMessage)
		}
		if f.flags&flagLast == 0 {
			s.partial = append(s.partial, f.payload...)
			continue
		}
		message := f.payload
		if s.partial != nil {
			message = append(s.partial, f.payload...)
			s.partial = nil
		}
		s.waiting = append(s.waiting, f.seq)
		n.queueOf(f.kind).put(arrival{from: f.from, kind: f.kind, seq: f.seq, payload: message})
	}
	n.acknowledge(id, s)
	return nil
}

// acknowledge tells the sender of free room, when there is enough room to be worth a frame. n.mu is
// held.
func (n *Network) acknowledge(id streamID, s *inStream) {
	free := s.next
	if len(s.waiting) > 0 {
		free = s.waiting[0]
	}
	if free-s.acked >= window/4 {
		s.acked = free
		n.route(&frame{typ: frameAck, kind: id.kind, from: n.rank, to: id.peer, seq: free})
	}
}

func (n *Network) queueOf(kind uint16) *queue {
	if n.span.last != 0 && kind >= n.span.first && kind <= n.span.last {
		kind = n.span.first
	}
	q := n.queues[kind]
	if q == nil {
		q = &queue{more: make(chan struct{})}
		n.queues[kind] = q
	}
	return q
}

func (q *queue) put(a arrival) {
	q.messages = append(q.messages, a)
	close(q.more)
	q.more = make(chan struct{})
}

// Recv takes the next message of a kind, from any rank. Messages that had arrived before the network
// failed are still delivered. Several callers may wait for the same kind; each message goes to one of them.
func (n *Network) Recv(ctx context.Context, kind uint16) (from int, payload []byte, err error) {
	a, err := n.next(ctx, kind)
	return a.from, a.payload, err
}

func (n *Network) next(ctx context.Context, kind uint16) (arrival, error) {
	for {
		n.mu.Lock()
		q := n.queueOf(kind)
		if len(q.messages) > 0 && !n.closed {
			a := q.messages[0]
			q.messages[0] = arrival{}
			q.messages = q.messages[1:]
			if a.from != n.rank {
				id := streamID{a.from, a.kind}
				s := n.in[id]
				s.waiting = removeFirst(s.waiting, a.seq)
				n.acknowledge(id, s)
			}
			n.mu.Unlock()
			return a, nil
		}
		more, err := q.more, n.err
		n.mu.Unlock()
		if err != nil {
			return arrival{from: -1}, err
		}
		select {
		case <-more:
		case <-n.failed:
		case <-ctx.Done():
			return arrival{from: -1}, context.Cause(ctx)
		}
	}
}

// removeFirst takes seq out of waiting, where it is at the front, since messages are taken in order.
func removeFirst(waiting []uint64, seq uint64) []uint64 {
	if len(waiting) > 0 && waiting[0] == seq {
		return waiting[1:]
	}
	return waiting
}

// Handle arranges that f is called for each message of a kind, one after the other, on a goroutine of the
// network, until the network fails or is closed. f may send, and may take part in collectives. Use either
// Handle or Recv for a kind.
func (n *Network) Handle(kind uint16, f func(from int, payload []byte)) {
	go func() {
		for {
			from, payload, err := n.Recv(n.ctx, kind)
			if err != nil {
				return
			}
			f(from, payload)
		}
	}()
}

// span is the kinds that share one queue; last is 0 when there is none. Under Network.mu.
type span struct{ first, last uint16 }

// HandleSpan is Handle for all kinds from first to last, in one order: messages of one kind and sender stay in
// theirs. A network has at most one span; messages of these kinds that came earlier are handled, too.
func (n *Network) HandleSpan(first, last uint16, f func(from int, kind uint16, payload []byte)) {
	n.mu.Lock()
	early := make([]*queue, 0, 1)
	for kind, q := range n.queues {
		if kind >= first && kind <= last {
			early = append(early, q)
			delete(n.queues, kind)
		}
	}
	n.span = span{first, last}
	q := n.queueOf(first)
	for _, e := range early {
		q.messages = append(q.messages, e.messages...)
	}
	n.mu.Unlock()
	go func() {
		for {
			a, err := n.next(n.ctx, first)
			if err != nil {
				return
			}
			f(a.from, a.kind, a.payload)
		}
	}()
}
