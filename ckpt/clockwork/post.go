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
}

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
// once takes these along, so that a checkpoint does not wait for them.
const linger = 100 * time.Millisecond

// sendLocked sends to a rank of another process, at once.
func (w *Clock) sendLocked(from *task, to int32, kind uint16, payload []byte) {
	w.putLocked(from, to, kind, payload)
	w.wakeLocked()
}

// sendLaterLocked sends within the time to linger, in order with all else.
func (w *Clock) sendLaterLocked(from *task, to int32, kind uint16, payload []byte) {
	w.putLocked(from, to, kind, payload)
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

func (w *Clock) putLocked(from *task, to int32, kind uint16, payload []byte) {
	w.outbox = append(w.outbox, outgoing{w.places.Process(int(to)), kind, appendEnvelope(from.rank, int(to), payload)})
}

func (w *Clock) wakeLocked() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
