// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/control"
)

// openSocket gives the program a socket as its only descriptor.
func openSocket(t *testing.T, h *testHost) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	h.fd = fd
	t.Cleanup(func() { unix.Close(fd) })
}

// TestLastingReason: what only the program can remove stays where it is. The answer does not wait for the time of
// the request, which is longer than this test may take, and has the same words.
func TestLastingReason(t *testing.T) {
	h := newTestHost(t)
	j := start(t, h, testOptions(filepath.Join(t.TempDir(), "ckpt")))
	openSocket(t, h)
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, control.ErrTimeout)
	defer cancel()
	_, err := ask(j, ctx, after.Continue, func(control.Event) {})
	var refused *control.RefusedError
	if !errors.As(err, &refused) || ctx.Err() != nil {
		t.Fatalf("got %v, and the time of the request: %v", err, ctx.Err())
	}
	names(t, err.Error(), "Unix socket", "--ignore-fd")
	if o := last(t, j); o.Error != err.Error() {
		t.Errorf("the outcome is %q, the answer %q", o.Error, err)
	}
	h.wantRunning()
}

// TestReasonGoes: a program that opens and closes sockets all the time is asked until it has none; so is one that has
// one for a moment.
func TestReasonGoes(t *testing.T) {
	h := newTestHost(t)
	j := start(t, h, testOptions(filepath.Join(t.TempDir(), "ckpt")))
	file, until := h.fd, time.Now().Add(lastingAfter+lastingAfter/2)
	openSocket(t, h)
	h.onRelease = func() {
		if time.Now().After(until) {
			h.fd = file
		} else {
			unix.Close(h.fd)
			openSocket(t, h)
		}
	}
	if _, err := ask(j, t.Context(), after.Continue, func(control.Event) {}); err != nil {
		t.Fatal(err)
	}
	wantEpochs(t, j.store, 1)
}

// TestStalledDisk: who waits for the answer hears soon that a disk does not answer, with the words that are in the
// outcome; a request that nobody waits for is served once it does.
func TestStalledDisk(t *testing.T) {
	h := newTestHost(t)
	j := start(t, h, testOptions(filepath.Join(t.TempDir(), "ckpt")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	answers := make(chan struct{})
	_, err := patiently(ctx, &j.slow, "writing an image", func() (struct{}, error) { <-answers; return struct{}{}, nil }, nil)
	if err == nil || j.slow.obstacle() == "" {
		t.Fatalf("the disk is not stalled: %v", err)
	}
	ctx, cancel = context.WithTimeoutCause(t.Context(), patience, control.ErrTimeout)
	defer cancel()
	_, err = ask(j, ctx, after.Continue, func(control.Event) {})
	var refused *control.RefusedError
	if !errors.As(err, &refused) || ctx.Err() != nil {
		t.Fatalf("got %v, and the time of the request: %v", err, ctx.Err())
	}
	names(t, err.Error(), "the disk has not answered since", "writing an image")
	if o := last(t, j); o.Error != err.Error() {
		t.Errorf("the outcome is %q, the answer %q", o.Error, err)
	}
	h.wantRunning()
	go func() {
		time.Sleep(lastingAfter + lastingAfter/2)
		close(answers)
	}()
	if _, err := (*controlled)(j).Checkpoint(ctx, control.Request{Then: after.Continue, Unattended: true}, func(control.Event) {}); err != nil {
		t.Error(err)
	}
	wantEpochs(t, j.store, 1)
}

// TestReasonBefore: a last try that only waits until the time is over does not hide why those before it were refused.
func TestReasonBefore(t *testing.T) {
	h := newTestHost(t)
	j := start(t, h, testOptions(filepath.Join(t.TempDir(), "ckpt")))
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	try := func(*request) outcome {
		if n++; n < 3 {
			return outcome{err: &control.RefusedError{Reasons: []string{"no memory"}}}
		}
		cancel()
		return outcome{err: &control.RefusedError{Reasons: []string{"no safe state"}}}
	}
	q := &request{ctx: t.Context(), waiting: ctx, progress: func(control.Event) {}}
	_, err := j.persist(q, try, func(int) time.Duration { return 0 })
	if err == nil {
		t.Fatalf("no error after %d tries", n)
	}
	names(t, err.Error(), "no safe state", "before that: no memory")
}
