// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A step on a disk cannot be interrupted: a call of the kernel waits for as long as the disk, or the server
// behind it, does. So another goroutine does the step, and is left to itself when the time is over. Until its call
// returns, nothing else is begun on that disk.

// slow are the steps that were left to themselves on this rank.
type slow struct {
	mu    sync.Mutex
	steps []*slowStep
}

type slowStep struct {
	what  string
	since time.Time
}

// obstacle says for which step the disk keeps us waiting, "" for none.
func (s *slow) obstacle() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.steps) == 0 {
		return ""
	}
	one := s.steps[0]
	return fmt.Sprintf("the disk has not answered since %s: %s", one.since.Format(time.TimeOnly), one.what)
}

// headway is how long a step may take to end after its context has ended.
const headway = 200 * time.Millisecond

// patiently runs f, and waits for it until ctx ends. Then f is left to itself; when f returns, late is called with
// the result.
func patiently[T any](ctx context.Context, s *slow, what string, f func() (T, error), late func(T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done, began := make(chan result, 1), time.Now()
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		return r.v, r.err
	case <-time.After(headway):
	}
	one := &slowStep{what, began}
	s.mu.Lock()
	s.steps = append(s.steps, one)
	s.mu.Unlock()
	go func() {
		r := <-done
		if late != nil {
			late(r.v, r.err)
		}
		s.mu.Lock()
		s.steps = slices.DeleteFunc(s.steps, func(x *slowStep) bool { return x == one })
		s.mu.Unlock()
	}()
	var none T
	return none, fmt.Errorf("%s: the disk does not answer: %w", what, context.Cause(ctx))
}
