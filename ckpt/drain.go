// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/drain"
	"github.com/libckpt/libckpt/internal/fault"
)

// drainTimeout bounds one try to receive all messages that are under way. All senders are stopped and drive their
// communication, so this takes as long as the network does.
const drainTimeout = 30 * time.Second

// claimWait is how long an attempt that is over may still find out which synchronous sends wait. The messages of these
// sends are received here, so the MPI below completes the sends, and only the receivers know whether their programs
// have taken them. All senders are stopped and drive their communication: moments are enough.
const claimWait = 5 * time.Second

// tellEvery is how often a rank tells what it has still to do in a stage.
const tellEvery = 200 * time.Millisecond

// marks are this rank's counters of messages.
func (j *Job) marks() []drain.Mark {
	j.clock.Hear() // where all ranks call MPIX_Checkpoint, no snapshot of the clock has heard it
	all := j.tables.Bookmarks()
	out := make([]drain.Mark, len(all))
	for i, m := range all {
		out[i] = drain.Mark{Owner: int(j.places.Of(j.group.rank())[m.Task]), Comm: m.Comm, Name: m.Name, Peer: int(m.Peer), Sent: m.Sent, Received: m.Received}
	}
	return out
}

// owed learns from the ranks that have ever sent to this one how many messages. Collective.
func (a *attempt) owed(ctx context.Context) (*drain.Ledger, error) {
	at := a.j.places
	several := at.Several()
	var out map[int][]byte
	if several {
		out = drain.TaskNotices(a.j.marks(), at.Process)
	} else {
		out = drain.Notices(a.j.marks())
	}
	in, err := await(a.poll, func() (map[int][]byte, error) { return a.j.group.exchange(ctx, a.tag(stepOwed), out) })
	switch {
	case err != nil:
		return nil, err
	case several:
		return drain.NewTaskLedger(in, a.j.group.rank(), at.Process)
	}
	return drain.NewLedger(in)
}

// drainHere has the program's thread drain; it returns when nobody writes to this rank's memory any more.
func (a *attempt) drainHere() {
	err := a.onProgram(func() {
		ctx := a.ctx
		if a.synced {
			var done func()
			ctx, done = a.overtime()
			defer done()
		}
		err := a.drain(ctx)
		if a.synced { // whatever became of it: the messages that it did receive are held
			err = errors.Join(err, a.claim(ctx))
		}
		if a.touched { // what another one drains may go to memory that both share
			_, e := step(a, stepDrained, a.poll, struct{}{})
			err = errors.Join(err, e)
		}
		if err != nil {
			a.state.Obstacles = []string{err.Error()}
		}
	})
	if err != nil {
		a.state.Failure = err.Error()
	}
}

// overtime is a context that outlives the attempt's by claimWait: all ranks use it from the first message that is
// received to the last claim, or none does. It ends with the attempt if that has lost a rank: then the claims, which
// are collective, cannot be made.
func (a *attempt) overtime() (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(a.ctx))
	stop := context.AfterFunc(a.ctx, func() {
		a.j.tellUndrained(a.id) // the others come to the claims as soon as they have their messages
		cause := context.Cause(a.ctx)
		var missing *unreachableError
		if !errors.As(cause, &missing) && !LostPeer(cause) {
			select {
			case <-ctx.Done():
			case <-time.After(claimWait):
			}
		}
		cancel(cause)
	})
	return ctx, func() { _ = stop(); cancel(context.Canceled) }
}

// drain receives what other ranks have sent to this one, until nothing is under way between them.
// Collective as far as the ranks' counters go; an error is this rank's alone.
func (a *attempt) drain(ctx context.Context) error {
	err := a.drainAll(ctx)
	var elsewhere *undrainedError
	if err != nil && !errors.As(err, &elsewhere) {
		a.j.tellUndrained(a.id)
	}
	return err
}

func (a *attempt) drainAll(ctx context.Context) error {
	j := a.j
	ledger, err := a.owed(ctx)
	if err != nil {
		return err
	}
	var unsettled error // the messages are received all the same: others wait for that
	if a.touched {
		unsettled = j.runtime.Settle()
	}
	never := fault.Point("ckpt.drain.end") != nil // an operation that does not end
	end, told := time.Now().Add(drainTimeout), time.Now()
	for {
		left, err := j.runtime.Drain()
		if err != nil {
			return err
		}
		gaps := ledger.Missing(j.marks())
		if never {
			left++
		}
		if left == 0 && len(gaps) == 0 {
			break
		}
		// All that was sent to this rank is received: so it can say of each message whether its program has it.
		if u := j.undrained.Load(); u != nil && u.id == a.id && len(gaps) == 0 {
			return &undrainedError{u.rank}
		}
		if wrong := wrongGaps(gaps); wrong != "" {
			return errors.New("the counts of messages cannot be right, so no image can be made: " + wrong)
		}
		if time.Since(told) > tellEvery {
			told = time.Now()
			// What the others send to this rank may have no room here, and what this one sends none there.
			if why := j.runtime.Holds(); why != "" && len(gaps) == 0 {
				return errors.New(why)
			}
			a.progress(control.RankStatus{Phase: stageDrain.String(), Detail: fmt.Sprintf("receives %d messages, completes %d operations", drain.UnderWay(gaps), left)})
		}
		if ctx.Err() != nil || a.ctx.Err() != nil && len(gaps) == 0 {
			return fmt.Errorf("%w: messages under way have not arrived: %s", context.Cause(a.ctx), stillMissing(gaps, left))
		}
		if time.Now().After(end) {
			return fmt.Errorf("messages under way did not arrive in %v: %s", drainTimeout, stillMissing(gaps, left))
		}
		goruntime.Gosched()
	}
	if unsettled != nil {
		return unsettled
	}
	if why := j.runtime.Holds(); why != "" {
		return errors.New(why)
	}
	return nil
}

// undrained names a rank that has given up receiving what is under way, and the attempt.
type undrained struct {
	id   tryID
	rank int
}

// undrainedError is the error of the other ranks then: they would wait for that rank in vain.
type undrainedError struct{ rank int }

func (e *undrainedError) Error() string {
	return fmt.Sprintf("rank %d cannot receive what is under way", e.rank)
}

// tellUndrained tells the other ranks that this one has given up, so that their programs go on soon.
func (j *Job) tellUndrained(id tryID) {
	for r := range j.group.size() {
		if r != j.group.rank() { // a lost network is found by the exchange that follows
			_ = j.net.Send(context.Background(), r, kindUndrained, binary.LittleEndian.AppendUint64(nil, uint64(id)))
		}
	}
}

func (j *Job) heardUndrained(from int, payload []byte) {
	if len(payload) == 8 {
		j.undrained.Store(&undrained{tryID(binary.LittleEndian.Uint64(payload)), from})
	}
}

// claim finds out which synchronous sends wait for receivers whose programs have not taken the messages,
// now that these are received. Collective.
func (a *attempt) claim(ctx context.Context) error {
	claims, err := a.passClaims(ctx, stepClaims, a.j.runtime.Claims())
	if err != nil {
		return err
	}
	a.j.runtime.Judge(claims)
	answers, err := a.passClaims(ctx, stepAnswers, claims)
	if err != nil {
		return err
	}
	a.j.runtime.Answered(answers)
	return nil
}

// passClaims gives each rank the claims that are for it, and returns those for this one.
func (a *attempt) passClaims(ctx context.Context, step int, claims []drain.Claim) ([]drain.Claim, error) {
	out := drain.ClaimNotices(claims)
	in, err := await(a.poll, func() (map[int][]byte, error) { return a.j.group.exchange(ctx, a.tag(step), out) })
	if err != nil {
		return nil, err
	}
	return drain.ReadClaims(in)
}

func wrongGaps(gaps []drain.Gap) string {
	var out []string
	for _, g := range gaps {
		if g.Wrong() {
			out = append(out, g.String())
		}
	}
	return strings.Join(out, "; ")
}

func stillMissing(gaps []drain.Gap, left int) string {
	var out []string
	for _, g := range gaps {
		out = append(out, g.String())
	}
	if left > 0 {
		out = append(out, fmt.Sprintf("%d operations do not end", left))
	}
	return strings.Join(out, "; ")
}
