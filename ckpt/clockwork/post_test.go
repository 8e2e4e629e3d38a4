// SPDX-License-Identifier: Apache-2.0

package clockwork

import (
	"encoding/binary"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/vid"
)

// lone is the clock of process 1 of two: it tells process 0, where the homes of some clocks are.
func lone(t *testing.T) *Clock {
	t.Helper()
	tables, err := vid.Open(0, 1<<24)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tables.Close() })
	clock, err := New(Config{Process: 1, Places: OneEach(2), Tables: tables, Log: zap.NewNop(), Kinds: Kinds{Clock: 7, Meet: 8}})
	if err != nil {
		t.Fatal(err)
	}
	return clock
}

func (w *Clock) woken() bool {
	select {
	case <-w.wake:
		return true
	default:
		return false
	}
}

// sent takes what is to be sent, and tells how many messages of clocks that are.
func (w *Clock) sent(t *testing.T) int {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, o := range w.outbox {
		_, at := binary.Uvarint(o.payload)
		_, to := binary.Uvarint(o.payload[at:])
		all, err := collclock.DecodeMessages(o.payload[at+to:])
		if err != nil {
			t.Fatal(err)
		}
		n += len(all)
	}
	w.outbox = nil
	return n
}

// TestLinger: that communicators were freed is told together, within the time to linger, or with what is told at once.
func TestLinger(t *testing.T) {
	w := lone(t)
	freed := collclock.Send{To: 0, Message: collclock.Message{Kind: collclock.MsgFree, Clock: collclock.World()}}
	urgent := collclock.Send{To: 0, Message: collclock.Message{Kind: collclock.MsgReady, Epoch: 1}}
	act := func(a collclock.Action) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.act(w.tasks[0], a)
	}
	// Until one wakes nobody within a moment: a slow machine may need several.
	for began := time.Now(); ; {
		act(freed)
		act(freed)
		early := w.woken()
		if n := w.sent(t); n != 2 {
			t.Fatalf("%d messages of 2", n)
		}
		for !early && !w.woken() { // the timer
			time.Sleep(time.Millisecond)
			if time.Since(began) > time.Minute {
				t.Fatal("nobody is woken for what lingers")
			}
		}
		if !early {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("each message that may linger wakes who sends at once")
		}
	}
	// More than a bundle takes is not gathered.
	many := 0
	for ; !w.woken(); many++ {
		if many > maxBundle {
			t.Fatalf("%d messages linger", many)
		}
		act(freed)
	}
	if n := w.sent(t); n != many {
		t.Errorf("%d messages of %d", n, many)
	}
	act(freed)
	act(urgent)
	if !w.woken() {
		t.Error("nobody is woken for what is told at once")
	}
	if n := w.sent(t); n != 2 {
		t.Errorf("%d messages of 2", n)
	}
}
