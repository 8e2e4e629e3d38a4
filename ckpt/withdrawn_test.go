// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/clockwork"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/rails/signaling"
	"github.com/libckpt/libckpt/vid"
)

// TestDeadlineInDrain: messages do not arrive. At the deadline all ranks let their programs go on, and those
// who asked are told; the next request is served.
func TestDeadlineInDrain(t *testing.T) {
	all := ranks(t, 3)
	all[1].rt.left.Store(1)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, control.ErrTimeout)
	defer cancel()
	_, err := ask(all[0].Job, ctx, after.Exit, func(control.Event) {})
	if !errors.Is(err, control.ErrTimeout) {
		t.Fatalf("got %v, want that the time is over", err)
	}
	names(t, err.Error(), "drain", "the job goes on")
	for _, r := range all {
		r.host.wantRunning()
	}
	wantEpochs(t, all[0].store)
	all[1].rt.left.Store(0)
	if res, err := ask(all[0].Job, t.Context(), after.Continue, func(control.Event) {}); err != nil || res.Epoch != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	wantEpochs(t, all[0].store, 1)
}

// TestWithdrawnBeforeOneComes: rank 2 cannot be reached while the others wait for it in MPIX_Checkpoint. They
// go on; when it comes to the call it does so too, and the next call saves the job.
func TestWithdrawnBeforeOneComes(t *testing.T) {
	all := ranks(t, 3)
	done := make(chan struct{})
	go func() {
		defer close(done)
		together(all[:2], func(r *rank) { r.out.state, r.out.err = r.Cooperative() })
	}()
	for _, r := range all[:2] { // both are in the call
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			r.tries.mu.Lock()
			open := len(r.tries.open)
			r.tries.mu.Unlock()
			if open > 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatal("not in the call")
			}
		}
	}
	all[0].reach([]signaling.Missing{{Rank: 2, By: 0, Since: time.Now(), Cause: "nothing was heard of it"}})
	<-done
	all[0].reach(nil)
	all[2].out.state, all[2].out.err = all[2].Cooperative()
	for i, r := range all {
		var refused *control.RefusedError
		if r.out.state != StateIgnore || !errors.As(r.out.err, &refused) {
			t.Errorf("rank %d: state %d, %v", i, r.out.state, r.out.err)
			continue
		}
		names(t, r.out.err.Error(), "rank 2 cannot be reached")
		r.host.wantRunning()
	}
	try(t, all)
	wantEpochs(t, all[0].store, 1)
}

// TestLossOpensGates: a rank is lost while a request waits for a safe state. All gates open for good.
func TestLossOpensGates(t *testing.T) {
	all := ranks(t, 3)
	world := vid.MakeID(vid.Comm, 1)
	for _, r := range all {
		r.Clock().CommMade(world, 1, []int32{0, 1, 2})
	}
	// Ranks 0 and 1 are in a call that meets all members before it starts; rank 2 never comes.
	for _, r := range all[:2] {
		if got := r.Clock().Call(world, 1, clockwork.Gated); got != clockwork.Wait {
			t.Fatalf("the call is answered %d before all have made it", got)
		}
	}
	asked := make(chan error, 1)
	go func() {
		_, err := ask(all[0].Job, t.Context(), after.Continue, func(control.Event) {})
		asked <- err
	}()
	all[2].net.Close()
	for _, r := range all[:2] {
		for end := time.Now().Add(patience); r.Clock().Permitted(world, 1) != clockwork.Enter; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the gate does not open")
			}
		}
	}
	if err := <-asked; err == nil {
		t.Error("an epoch without rank 2")
	}
	_, err := ask(all[0].Job, t.Context(), after.Continue, func(control.Event) {})
	if err == nil {
		t.Fatal("an epoch without rank 2")
	}
	names(t, err.Error(), "rank 2")
}
