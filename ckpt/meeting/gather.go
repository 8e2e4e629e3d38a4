// SPDX-License-Identifier: Apache-2.0

package meeting

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// dismissTime is how long rank 0 takes at most to tell a rank that the meeting is over.
const dismissTime = 2 * time.Second

func (h *host) Rank() int  { return 0 }
func (h *host) Ranks() int { return h.me.Ranks }

// visitors are those who have come, by rank.
func (h *host) visitors() []*visitor {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.came)
}

// tell sends a frame to all who have come, and returns the error of the lowest rank.
func (h *host) tell(f func(*visitor) frame) error {
	came := h.visitors()
	defer context.AfterFunc(h.ctx, func() {
		for _, v := range came {
			if v != nil {
				_ = v.conn.SetDeadline(time.Unix(1, 0))
			}
		}
	})()
	errs := make([]error, len(came))
	eachRank(came, func(v *visitor) {
		if err := f(v).send(v.conn); err != nil {
			errs[v.Rank] = fmt.Errorf("rank %d (%s) has left: %w", v.Rank, v.who(), err)
		}
	})
	for _, err := range errs {
		if err != nil {
			return cause(h.ctx, err)
		}
	}
	return nil
}

// eachRank calls f for all visitors at once.
func eachRank(came []*visitor, f func(*visitor)) {
	var wg sync.WaitGroup
	for _, v := range came {
		if v != nil {
			wg.Go(func() { f(v) })
		}
	}
	wg.Wait()
}

// dismiss ends the meeting and tells all who have come why.
func (h *host) dismiss(why error) {
	came := h.visitors()
	eachRank(came, func(v *visitor) {
		_ = v.conn.SetWriteDeadline(time.Now().Add(dismissTime))
		_ = fault(why).send(v.conn)
	})
	h.close()
}

// close ends the connections.
func (h *host) close() {
	h.once.Do(func() { close(h.done) })
	for _, v := range h.visitors() {
		if v != nil {
			_ = v.conn.Close()
		}
	}
}

func (h *host) Close() error {
	if h.ended == nil {
		h.ended = errClosed
		h.close()
	}
	return nil
}

func (h *host) Allgather(mine []byte) ([][]byte, error) {
	if h.ended != nil {
		return nil, h.ended
	}
	all, err := h.collect(mine)
	if err == nil {
		err = h.tell(func(*visitor) frame { return frame{frameAll, all} })
	}
	if err != nil {
		h.ended = fmt.Errorf("all-gather of %d ranks: %w", h.me.Ranks, err)
		h.dismiss(err)
		return nil, h.ended
	}
	return parts(all, h.me.Ranks), nil
}

// collect waits for what all give, and returns it one after the other. It does not wait for others once one has
// failed.
func (h *host) collect(mine []byte) ([]byte, error) {
	if h.ctx.Err() != nil {
		return nil, context.Cause(h.ctx)
	}
	if err := checkGive(mine); err != nil {
		return nil, err
	}
	size := len(mine)
	all := make([]byte, h.me.Ranks*size)
	copy(all, mine)
	enough := make(chan struct{})
	failed := make(chan error, 1)
	eachRank(h.visitors(), func(v *visitor) {
		if err := h.take(v, all[v.Rank*size:(v.Rank+1)*size], enough); err != nil {
			select {
			case failed <- err:
				close(enough)
			default:
			}
		}
	})
	select {
	case err := <-failed:
		return nil, err
	default:
		return all, nil
	}
}

// take waits for what a visitor gives.
func (h *host) take(v *visitor, to []byte, enough <-chan struct{}) error {
	select {
	case g := <-v.gives:
		switch {
		case g.err != nil:
			return fmt.Errorf("rank %d (%s) has left: %w", v.Rank, v.who(), g.err)
		case g.frame.kind != frameGive:
			return fmt.Errorf("rank %d (%s) sent frame %q", v.Rank, v.who(), g.frame.kind)
		case len(g.frame.data) != len(to):
			return fmt.Errorf("rank %d gives %d bytes, and rank 0 %d: all must give the same number", v.Rank, len(g.frame.data), len(to))
		}
		copy(to, g.frame.data)
		return nil
	case <-enough:
		return nil
	case <-h.ctx.Done():
		return context.Cause(h.ctx)
	}
}
