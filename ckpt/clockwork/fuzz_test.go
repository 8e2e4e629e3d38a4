// SPDX-License-Identifier: Apache-2.0

package clockwork

import (
	"encoding/json"
	"testing"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/vid"
)

// FuzzMeet takes a message as what a rank says of a meeting: whatever it says, this one goes on.
func FuzzMeet(f *testing.F) {
	good, err := json.Marshal(word{Told: true, Comm: 2, Tag: 3, N: 4})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(appendEnvelope(1, 2, good))
	f.Add(good)
	f.Add(appendEnvelope(3, 0, []byte("{}")))
	f.Add(appendEnvelope(1, 0, []byte(`{"members":[-1,99],"clock":"AAAA"}`)))
	f.Fuzz(func(t *testing.T, payload []byte) {
		w := deaf(t)
		w.heardMeet(1, payload)
		from, to, rest, err := w.opened(1, payload)
		var said word
		want := err == nil && json.Unmarshal(rest, &said) == nil
		kept := len(w.tasks[0].meet.words) + len(w.tasks[1].meet.words)
		if want != (kept == 1) || want && (from%2 != 1 || len(to.meet.words) != 1) {
			t.Errorf("%q is kept: %d", payload, kept)
		}
	})
}

// deaf is process 0 of two, with ranks 0 and 2; 1 and 3 live in the other one.
func deaf(t *testing.T) *Clock {
	places, err := NewPlaces([][]int32{{0, 2}, {1, 3}})
	if err != nil {
		t.Fatal(err)
	}
	tables, err := vid.Open(0, 1<<24)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tables.Close() })
	silent := Events{Safe: func(uint32) {}, Resumed: func() {}, Deferred: func() {}}
	w, err := New(Config{Process: 0, Places: places, Tables: tables, Log: zap.NewNop(), Kinds: Kinds{Clock: 1, Meet: 2}, Events: silent})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// FuzzClock takes messages as those of another process's clocks.
func FuzzClock(f *testing.F) {
	f.Add(appendEnvelope(1, 2, collclock.AppendMessage(nil, collclock.Message{Kind: collclock.MsgReq, Epoch: 1})))
	f.Add(appendEnvelope(1, 0, collclock.AppendMessage(nil, collclock.Message{Kind: collclock.MsgReady, Epoch: 1})))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, payload []byte) {
		w := deaf(t)
		w.heardClock(1, payload)
		from, to, _, err := w.opened(1, payload)
		if err == nil && (from%2 != 1 || to.rank%2 != 0) {
			t.Errorf("%q is of rank %d, for rank %d", payload, from, to.rank)
		}
		for _, o := range w.outbox {
			if o.to != 1 {
				t.Errorf("%q: a message for process %d", payload, o.to)
			}
		}
	})
}
