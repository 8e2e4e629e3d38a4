// SPDX-License-Identifier: Apache-2.0

package clockwork

import (
	"runtime"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/internal/clockrace"
	"github.com/libckpt/libckpt/vid"
)

// race is a thread that makes collective calls, and this rank's clock, which reads its counters.
type race struct {
	clock  *Clock
	tables *vid.Tables
	thread clockrace.Thread
}

func startRace(t *testing.T) *race {
	t.Helper()
	tables, err := vid.Open(0, 1<<24)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tables.Close() })
	world := vid.MakeID(vid.Comm, 1)
	if err := tables.Bind(world, 1); err != nil {
		t.Fatal(err)
	}
	if err := tables.SetComm(world, vid.CommInfo{Rank: 0, Size: 2, World: []int32{0, 1}, Identity: 1}); err != nil {
		t.Fatal(err)
	}
	clock, err := New(Config{Process: 0, Places: OneEach(2), Tables: tables, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	if err := clock.CommMade(world, 1, []int32{0, 1}); err != nil {
		t.Fatal(err)
	}
	r := &race{tables: tables, clock: clock}
	if r.thread, err = clockrace.Start(tables.Address(), uint32(world)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.thread.End)
	return r
}

// missed reads the counters while the thread makes calls. It tells whether there was a call that was
// neither in what was read nor saw that a checkpoint is pending.
func (r *race) missed(fence func() error) bool {
	for from := r.tables.Calls()[0].Made; r.tables.Calls()[0].Made == from; {
		runtime.Gosched()
	}
	r.clock.fence, r.clock.fenced = fence, false
	counts := r.clock.counts(r.clock.tasks[0])
	fast := r.thread.Gate()
	r.tables.SetPending(0)
	r.thread.GoOn()
	return fast > counts[0].Call
}

// TestFence: with membarrier no call is missed. Without it some are, which shows that the test can
// see it.
func TestFence(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Fatal("one processor cannot see stores of another late: run this on two")
	}
	fence, err := newFence()
	if err != nil {
		t.Fatal(err)
	}
	r := startRace(t)
	// Both threads must run at the same time for it, which others may keep them from for long.
	const enough, most = 3, 5 * time.Minute
	rounds, without := 0, 0
	for began := time.Now(); without < enough; rounds++ {
		if r.missed(func() error { return nil }) {
			without++
		}
		if time.Since(began) > most {
			t.Fatalf("%d of %d reads without a fence missed a call: the test sees nothing", without, rounds)
		}
	}
	with := 0
	for range rounds {
		if r.missed(fence) {
			with++
		}
	}
	t.Logf("of %d reads, %d missed a call without a fence, %d with membarrier", rounds, without, with)
	if with != 0 {
		t.Errorf("%d of %d reads missed a call in spite of membarrier", with, rounds)
	}
}

// TestFenceOrder: the word is set before the fence, and the counters are read after it. What the fence
// makes visible here is a call that nobody has seen before.
func TestFenceOrder(t *testing.T) {
	r := startRace(t)
	var fast uint64
	r.clock.fence = func() error {
		fast = r.thread.Gate() // comes only when the word is set
		return nil
	}
	counts := r.clock.counts(r.clock.tasks[0])
	if want := fast + 1; counts[0].Call != want {
		t.Errorf("read %d calls, want %d: the thread waits with that one since before the fence", counts[0].Call, want)
	}
	r.tables.SetPending(0)
	r.thread.GoOn()
}
