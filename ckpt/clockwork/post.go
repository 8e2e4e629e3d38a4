// SPDX-License-Identifier: Apache-2.0

package clockwork

import (
	"context"
	"time"

	"github.com/libckpt/libckpt/rails/signaling"
)

// outgoing is a message of the signaling network.
type outgoing struct {
	to      int // process
	kind    uint16
	payload []byte
	ranks   [2]int32 // in the envelope
}

// maxBundle is when a message of the network has enough of clocks' messages, in bytes.
const maxBundle = 16 << 10

// post sends what the machine wants sent: a step never waits for the network.
func (w *Clock) post(net *signaling.Network) {
	for {
		select {
		case <-w.wake:
		case <-net.Failed():
			return
		}
		w.mu.Lock()
		list := w.outbox
		w.outbox = nil
		w.mu.Unlock()
		for _, s := range list {
			if err := net.Send(context.Background(), s.to, s.kind, s.payload); err != nil {
				return // the network is gone, and all that wait for messages know
			}
		}
	}
}

// linger is how long messages that nobody waits for are gathered. A program may make and free communicators in its inner
// loop; a message for each would wake threads of Go's on both sides, which take the processor from the ranks. What is sent at
// once takes these along, so that a checkpoint does not wait for them, and so does a bundle that is full.
const linger = time.Second

// sendLocked sends to a rank of another process, at once.
func (w *Clock) sendLocked(from *task, to int32, kind uint16, payload []byte) {
	w.putLocked(from, to, kind, payload)
	w.wakeLocked()
}

// sendLaterLocked sends within the time to linger, in order with all else.
func (w *Clock) sendLaterLocked(from *task, to int32, kind uint16, payload []byte) {
	if w.putLocked(from, to, kind, payload) {
		w.wakeLocked()
	}
	if w.lingers {
		return
	}
	w.lingers = true
	time.AfterFunc(linger, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lingers = false
		w.wakeLocked()
	})
}

// putLocked puts a message behind the others. Those of clocks from one rank to another share an envelope; full says that
// it takes no more.
func (w *Clock) putLocked(from *task, to int32, kind uint16, payload []byte) (full bool) {
	process, ranks := w.places.Process(int(to)), [2]int32{int32(from.rank), to}
	if i := w.last[process]; i < len(w.outbox) && kind == w.kinds.Clock { // else it was sent
		if o := &w.outbox[i]; o.kind == kind && o.ranks == ranks && len(o.payload) < w.bundle {
			o.payload = append(o.payload, payload...)
			return len(o.payload) >= w.bundle
		}
	}
	w.last[process] = len(w.outbox)
	w.outbox = append(w.outbox, outgoing{process, kind, appendEnvelope(from.rank, int(to), payload), ranks})
	return false
}

func (w *Clock) wakeLocked() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
