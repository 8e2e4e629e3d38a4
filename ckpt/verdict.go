// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/rails/signaling"
)

// How an attempt ends early, on all ranks. A rank gives the attempt up by itself: the deadline has come (rank 0
// keeps it), a rank cannot be reached, the network is lost. It lets its program go on and tells rank 0; rank 0
// tells all. What rank 0 says is final, also for an epoch that was committed.

// tryID names an attempt on all ranks: an epoch of the collective clock, or the n-th MPIX_Checkpoint.
type tryID uint64

func momentID(epoch uint32) tryID     { return tryID(epoch)<<1 | 1 }
func cooperativeID(call uint64) tryID { return tryID(call) << 1 }
func (id tryID) moment() bool         { return id&1 != 0 }

// errWithdrawn says that this rank has withdrawn from the epoch of the clock.
var errWithdrawn = errors.New("the request was withdrawn")

// errGaveUp says that a rank could not go on with the attempt.
var errGaveUp = errors.New("it could not be finished everywhere")

// decision is what rank 0 tells after the commit.
type decision struct {
	Error   string   `json:"error,omitempty"`   // there is no epoch
	Refused []string `json:"refused,omitempty"` // the reasons, when it was refused
	Bytes   uint64   `json:"bytes"`
	Stop    float64  `json:"stop"`
}

// verdict is how an attempt ended, in the words of rank 0.
type verdict struct {
	ID tryID `json:"id"`
	decision
}

// surrender is what a rank that has given an attempt up tells rank 0: its program goes on, or stays stopped until
// rank 0 has said what became of the epoch.
type surrender struct {
	ID     tryID  `json:"id"`
	Why    string `json:"why"`
	Stands bool   `json:"stands,omitempty"`
}

// tries are the attempts under way on a rank: one, and perhaps one before it whose image is being written.
type tries struct {
	mu       sync.Mutex
	open     map[tryID]*attempt
	verdicts map[tryID]decision // by rank 0, before this rank came to them
	past     tryID              // the last epoch of the clock with such a verdict
	calls    uint64             // of MPIX_Checkpoint
}

// begin makes the attempt known, and its context one that ends with it.
func (a *attempt) begin(ctx context.Context) {
	j := a.j
	ctx, cancel := context.WithCancelCause(ctx)
	a.ctx, a.cancel, a.told, a.gone = ctx, cancel, make(chan decision, 1), make(chan int, j.group.size())
	if j.net == nil {
		return
	}
	j.tries.mu.Lock()
	j.tries.open[a.id] = a
	d, over := j.tries.verdicts[a.id]
	delete(j.tries.verdicts, a.id)
	j.tries.mu.Unlock()
	if over {
		a.hear(d)
	}
	if missing := j.net.Unreachable(); len(missing) > 0 {
		cancel(unreachable(missing))
	}
	go func() {
		select {
		case <-ctx.Done():
		case <-j.net.Failed():
			cancel(j.net.Err())
		}
	}()
}

// forget: the attempt is over.
func (a *attempt) forget() {
	a.cancel(errors.New("the attempt is over"))
	a.j.tries.mu.Lock()
	defer a.j.tries.mu.Unlock()
	delete(a.j.tries.open, a.id)
}

// hear takes rank 0's word. One of failure ends what this rank does for the attempt.
func (a *attempt) hear(d decision) {
	select {
	case a.told <- d:
	default:
	}
	if d.Error != "" {
		a.cancel(&verdictError{d.err()})
	}
}

// verdictError is rank 0's word.
type verdictError struct{ error }

// noEpoch is the decision of an attempt that made no epoch.
func noEpoch(err error) decision {
	d := decision{Error: err.Error()}
	var refused *control.RefusedError
	if errors.As(err, &refused) {
		d.Refused = refused.Reasons
	}
	return d
}

// err is the error from which noEpoch made the decision, as far as callers can tell.
func (d decision) err() error {
	if len(d.Refused) > 0 {
		return &control.RefusedError{Reasons: d.Refused}
	}
	return errors.New(d.Error)
}

// failedAlone tells whether the attempt ended on this rank in a way of which the others may not know.
func (a *attempt) failedAlone() bool { return a.j.net != nil && a.ctx.Err() != nil }

// surrender tells rank 0 that the attempt has ended here and that the program goes on. Rank 0 tells all, and waits
// for a moment until all have said the same; it returns the ranks that have not.
func (a *attempt) surrender(err error) (silent []int) {
	j := a.j
	if !a.failedAlone() {
		return nil
	}
	if j.group.rank() != 0 {
		j.tell(0, kindSurrender, surrender{ID: a.id, Why: err.Error()})
		return nil
	}
	if !a.announced {
		a.announce(noEpoch(err))
	}
	heard := make([]bool, j.group.size())
	heard[0] = true
	limit := time.NewTimer(surrenderWait)
	defer limit.Stop()
	for left := len(heard) - 1; left > 0; {
		select {
		case r := <-a.gone:
			if !heard[r] {
				heard[r] = true
				left--
			}
			continue
		case <-limit.C:
		case <-j.net.Failed():
		}
		break
	}
	for r, h := range heard {
		if !h {
			silent = append(silent, r)
		}
	}
	return silent
}

// surrenderWait is how long rank 0 waits for the others to say that they go on, before it says that it does not
// know. It is less than what control adds to a timeout for such answers.
const surrenderWait = time.Second

// announce tells all ranks how the attempt ended. Rank 0 only.
func (a *attempt) announce(d decision) {
	a.announced = true
	for r := 1; r < a.j.group.size(); r++ {
		a.j.tell(r, kindVerdict, verdict{a.id, d})
	}
}

// learnAlone is for a rank that is alone before it heard what became of the epoch. Rank 0 may have committed it and ended
// before its word went out: then the directory says so, and this rank does as it would have been told.
func (a *attempt) learnAlone(lost error) error {
	select {
	case a.total = <-a.told:
		if a.total.Error != "" {
			return a.total.err()
		}
		return nil
	default:
	}
	j := a.j
	ctx, cancel := context.WithTimeoutCause(context.Background(), learnWait, control.ErrTimeout)
	defer cancel()
	m, err := patiently(ctx, &j.slow, fmt.Sprintf("what became of epoch %d", a.epoch),
		func() (*store.Manifest, error) { return j.store.Manifest(a.epoch) }, nil)
	if r := j.group.rank(); err != nil || r >= len(m.Images) || m.Images[r].Digest != a.image.Digest {
		return lost
	}
	a.total = decision{Stop: a.image.Stop}
	for _, one := range m.Images {
		a.total.Bytes += uint64(one.Bytes)
	}
	return nil
}

// learnWait is how long a rank that is alone looks into the directory.
const learnWait = 10 * time.Second

// tell sends v without waiting: a rank that cannot be reached gets it when it is back.
func (j *Job) tell(to int, kind uint16, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		j.log.Error("a message to another rank", zap.Error(err)) // cannot be: these are plain values
		return
	}
	go func() { _ = j.net.Send(context.Background(), to, kind, b) }() // fails with the network, as all
}

func (j *Job) heardVerdict(_ int, payload []byte) {
	var v verdict
	if json.Unmarshal(payload, &v) != nil {
		return
	}
	t := &j.tries
	t.mu.Lock()
	a := t.open[v.ID]
	if a == nil && v.Error != "" { // it was given up before this rank came to it, or is over here
		if v.ID.moment() {
			t.past = max(t.past, v.ID)
		}
		t.verdicts[v.ID] = v.decision
		for id := range t.verdicts { // the clock does not go back
			if id.moment() && id < t.past {
				delete(t.verdicts, id)
			}
		}
	}
	t.mu.Unlock()
	if a != nil {
		a.hear(v.decision)
	} else if v.Error != "" {
		j.tell(0, kindSurrender, surrender{ID: v.ID, Why: v.Error})
	}
}

func (j *Job) heardSurrender(from int, payload []byte) {
	var s surrender
	if json.Unmarshal(payload, &s) != nil {
		return
	}
	j.tries.mu.Lock()
	a := j.tries.open[s.ID]
	j.tries.mu.Unlock()
	if a == nil {
		return
	}
	if !s.Stands {
		select {
		case a.gone <- from:
		default: // it has said so before
		}
	}
	a.cancel(fmt.Errorf("%w: rank %d: %s", errGaveUp, from, s.Why))
}

// failure is the error of an attempt that made no epoch, once the program goes on.
func (a *attempt) failure(err error) error {
	if !a.failedAlone() && a.ctx.Err() == nil {
		return err
	}
	err = a.reason(err)
	var word *verdictError
	var refused *control.RefusedError
	var lost *signaling.LostError
	switch silent := a.surrender(err); {
	case errors.As(err, &word):
		return word.error
	case errors.As(err, &refused), errors.As(err, &lost):
	case len(silent) > 0:
		err = fmt.Errorf("%w; ranks %v have not said yet that their program goes on", err, silent)
	default:
		err = fmt.Errorf("%w; the job goes on", err)
	}
	return err
}

// reason is why the attempt has ended, in words for those who asked. A RefusedError says that another one
// may succeed.
func (a *attempt) reason(err error) error {
	cause := context.Cause(a.ctx)
	var lost *signaling.LostError
	var missing *unreachableError
	var late *signaling.WaitError
	var word *verdictError
	switch {
	case errors.As(cause, &word):
		return word
	case errors.As(cause, &lost):
		return fmt.Errorf("epoch given up: %w", lost)
	case errors.As(cause, &missing):
		return &control.RefusedError{Reasons: missing.reasons()}
	case errors.Is(cause, errGaveUp):
		return &control.RefusedError{Reasons: []string{cause.Error()}}
	case errors.As(err, &late):
		err = fmt.Errorf("%w: %s is not done", cause, late.Who())
	case !errors.Is(err, cause):
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return fmt.Errorf("the epoch was given up in stage %q: %w", a.stage, err)
}

// ---- ranks that cannot be reached ------------------------------------------------------------

// unreachableError says who cannot be reached. The same request may succeed when they can.
type unreachableError struct{ missing []signaling.Missing }

func unreachable(missing []signaling.Missing) error { return &unreachableError{missing} }

func (e *unreachableError) Error() string {
	m := e.missing[0]
	text := m.String()
	if n := len(e.missing) - 1; n > 0 {
		text += fmt.Sprintf(", nor can %d others", n)
	}
	return text
}

// reasons has a line for each of them, for people.
func (e *unreachableError) reasons() []string {
	var out []string
	for _, m := range e.missing {
		out = append(out, fmt.Sprintf("%v, since %v; it is paused, or the network to it is cut", m, m.Since.Format(time.TimeOnly)))
	}
	return out
}

// reach is called whenever ranks cannot be reached any more, or can be reached again. Whatever waits for missing
// ranks is withdrawn, so that the program goes on. Each of them is logged once: by rank 0, or by rank 1 if it is
// rank 0.
func (j *Job) reach(missing []signaling.Missing) {
	tells := func(r int) bool { return j.group.rank() == 0 && r != 0 || j.group.rank() == 1 && r == 0 }
	now := map[int]bool{}
	for _, m := range missing {
		now[m.Rank] = true
		if !j.missing[m.Rank] && tells(m.Rank) {
			j.log.Warn("a rank cannot be reached: no checkpoint can be made until it is back; the program goes on",
				zap.Int("rank", m.Rank), zap.Int("noticed by rank", m.By), zap.String("cause", m.Cause))
		}
	}
	for r := range j.missing {
		if !now[r] && tells(r) {
			j.log.Warn("a rank can be reached again", zap.Int("rank", r))
		}
	}
	j.missing = now
	if len(missing) == 0 {
		return
	}
	err := unreachable(missing)
	j.tries.mu.Lock()
	for _, a := range j.tries.open {
		a.cancel(err)
	}
	j.tries.mu.Unlock()
	if j.clock != nil {
		j.clock.Withdraw()
	}
}

// watchNetwork opens the gates when the network is lost for good: no checkpoint will need them. It closes ended
// when it no longer touches the clock or the clock's tables.
func (j *Job) watchNetwork(ended chan<- struct{}) {
	defer close(ended)
	select {
	case <-j.done:
	case <-j.net.Failed():
		if j.crowd != nil {
			j.crowdLost()
			return
		}
		j.clock.Lose()
		select {
		case <-j.done: // it was closed
		default:
			j.log.Warn("no checkpoint can be made any more; the program goes on", zap.Error(j.net.Err()))
		}
	}
}

// LostPeer tells whether err is that another rank is gone.
func LostPeer(err error) bool {
	var lost *signaling.LostError
	return errors.As(err, &lost)
}
