// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/libckpt/libckpt/ckpt/control"
)

const (
	// backOff is the pause after a try of an MPI job that was refused; it grows.
	backOff = 20 * time.Millisecond
	// retryAfter is the pause for a program without MPI, which is interrupted wherever it is.
	retryAfter = 5 * time.Millisecond
	// lastingAfter is how long a reason that only the program can remove, or a disk that does not answer, must have
	// been there, try after try, for the answer to be given before the time of the request is over.
	lastingAfter = 2 * time.Second
)

// persist tries until there is an epoch or cannot be one. A RefusedError says that another try may succeed, for
// example once a child has ended or a window is closed. Where a reason is one that stays, such as an open socket, the
// program has lastingAfter to remove it. So has a disk to answer, but where nobody waits for ours: a signal asks before
// the job is ended, and the disk may come back until then.
func (j *Job) persist(q *request, try func(*request) outcome, pause func(try int) time.Duration) (control.Result, error) {
	var last, before *control.RefusedError // the newest, and the newest with other reasons
	var stay staying
	for n := 0; ; n++ {
		o := try(q)
		if o.err == nil {
			return o.result, nil
		}
		var refused *control.RefusedError
		if !errors.As(o.err, &refused) {
			if last != nil && q.ctx.Err() != nil { // the time ended in the middle of one more try
				o.err = fmt.Errorf("%w; before that: %s", o.err, strings.Join(last.Reasons, "; "))
			}
			if !o.noted {
				j.recordFailure(o.err)
			}
			return control.Result{}, o.err
		}
		if last != nil && !slices.Equal(last.Reasons, refused.Reasons) {
			before = last
		}
		last = refused
		q.progress(control.Event{Phase: stageStop.String(), Detail: strings.Join(refused.Reasons, "; ")})
		if stay.tooLong(o.err, q.alone) {
			j.recordFailure(o.err)
			return control.Result{}, o.err
		}
		select {
		case <-q.waiting.Done():
			// The last try may only have waited: what has refused those before it says more.
			if before != nil {
				refused.Reasons = append(slices.Clone(refused.Reasons), "before that: "+strings.Join(before.Reasons, "; "))
			}
			j.recordFailure(o.err)
			return control.Result{}, o.err
		case <-j.done:
			return control.Result{}, control.ErrEnding
		case <-time.After(pause(n)):
		}
	}
}

// staying is since when reasons that last have been there in each try.
type staying map[string]time.Time

// tooLong takes the error of one more try, and says whether one of its reasons has been there for lastingAfter. alone:
// disks have more time.
func (s *staying) tooLong(err error, alone bool) bool {
	before := *s
	*s = staying{}
	var lasting *lastingError
	if !errors.As(err, &lasting) || lasting.disk && alone {
		return false
	}
	for _, why := range lasting.reasons {
		since, seen := before[why]
		if !seen {
			since = time.Now()
		}
		(*s)[why] = since
		if time.Since(since) > lastingAfter {
			return true
		}
	}
	return false
}
