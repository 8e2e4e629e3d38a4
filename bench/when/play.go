// SPDX-License-Identifier: Apache-2.0

package when

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/libckpt/libckpt/ckpt/period"
)

// Job is what is played.
type Job struct {
	Work  float64 // seconds, were there no checkpoints and no failures
	Local bool    // there are local directories, so levels
	Costs period.Costs
	Slow  float64 // share of its speed that the job loses while something is written; again while something is raised
	Vary  float64 // the standard deviation of each cost, as a share of it
}

// Policy decides. Times are in seconds.
type Policy interface {
	Period() float64
	Due() []int // of an epoch that was committed just now
	Saved(stop, total float64)
	Raised(level int, took float64)
	// Restarted says how many epochs ago an epoch got to each level; -1: none has.
	Restarted(ago [period.Top + 1]int)
}

// saved is a committed epoch.
type saved struct {
	work  float64
	level [period.Top + 1]bool
}

// never is a time that does not come.
var never = math.Inf(1)

// play is the state.
type play struct {
	Job
	policy Policy
	r      *rand.Rand
	now    float64
	work   float64 // done
	next   float64 // when the next epoch is asked for; never while one is saved
	asked  float64
	stop   float64 // until when the program stands still; 0: it does not
	commit float64 // of the epoch that is being written; never: none is
	at     float64 // its work
	epochs []saved
	queue  []raising
	raised float64 // when the first of the queue has been; never: it is empty
}

type raising struct {
	epoch, level int
	took         float64
}

// errShort says that the failures of a trace do not last until the end of the job.
var errShort = errors.New("the trace ends before the job")

// Play is how long the job takes.
func Play(j Job, p Policy, t Trace, seed uint64) (float64, error) {
	s := &play{Job: j, policy: p, r: rand.New(rand.NewPCG(seed, 77))}
	s.run()
	for i := 0; ; i++ {
		if i == len(t) {
			return 0, errShort
		}
		if t[i].At < s.now {
			continue
		}
		if s.until(t[i].At) {
			return s.now, nil
		}
		for i < len(t) { // a failure in a restart begins it again
			back := s.fail(t[i].Class)
			if i+1 < len(t) && t[i+1].At < s.now+back {
				i++
				s.now = t[i].At
				continue
			}
			s.now += back
			break
		}
		s.run()
	}
}

// cost is a cost this time.
func (s *play) cost(d time.Duration) float64 {
	if s.Vary == 0 || d == 0 {
		return d.Seconds()
	}
	return d.Seconds() * (1 + s.Vary*math.Sqrt(3)*(2*s.r.Float64()-1))
}

// run begins, or begins again.
func (s *play) run() {
	s.next, s.stop, s.commit, s.raised = s.now+s.policy.Period(), 0, never, never
	s.queue = s.queue[:0]
}

// until plays to a time. done: the work was done before.
func (s *play) until(end float64) (done bool) {
	for s.now < end {
		speed := 1.0
		to := min(end, s.commit, s.raised, s.next)
		if s.commit < never {
			speed -= s.Slow
		}
		if s.raised < never {
			speed -= s.Slow
		}
		if s.now < s.stop {
			speed, to = 0, min(to, s.stop)
		}
		speed = max(speed, 0)
		if s.work+speed*(to-s.now) >= s.Work {
			s.now += (s.Work - s.work) / speed
			return true
		}
		s.work += speed * (to - s.now)
		s.now = to
		if to < end {
			s.happen()
		}
	}
	return false
}

// happen is what comes at this time.
func (s *play) happen() {
	switch s.now {
	case s.next:
		stop := s.cost(s.Costs.Stop)
		s.asked, s.at, s.stop = s.now, s.work, s.now+stop
		s.commit, s.next = s.stop+s.cost(s.Costs.Write), never
	case s.commit:
		e := saved{work: s.at}
		if s.Local {
			e.level[1] = true
		} else {
			e.level[period.Top] = true
		}
		s.epochs = append(s.epochs, e)
		s.policy.Saved(s.stop-s.asked, s.now-s.asked)
		for _, level := range s.policy.Due() {
			s.queue = append(s.queue, raising{len(s.epochs) - 1, level, s.cost(s.Costs.Raise[level])})
		}
		if s.raised == never && len(s.queue) > 0 {
			s.raised = s.now + s.queue[0].took
		}
		s.commit, s.next = never, max(math.Nextafter(s.now, never), s.asked+s.policy.Period())
	case s.raised:
		s.epochs[s.queue[0].epoch].level[s.queue[0].level] = true
		s.policy.Raised(s.queue[0].level, s.queue[0].took)
		s.queue, s.raised = s.queue[1:], never
		if len(s.queue) > 0 {
			s.raised = s.now + s.queue[0].took
		}
	}
}

// fail goes back to the newest epoch that is left. It says how long the restart takes.
func (s *play) fail(class int) float64 {
	n := len(s.epochs)
	for ; n > 0; n-- {
		e := &s.epochs[n-1]
		for level := class; level <= period.Top; level++ {
			if !e.level[level] {
				continue
			}
			s.epochs, s.work = s.epochs[:n], e.work
			s.tell()
			return s.cost(s.Costs.Restart[level])
		}
	}
	s.epochs, s.work = s.epochs[:0], 0
	s.tell()
	return 0
}

// longAgo is how many epochs are looked at: none is raised so rarely.
const longAgo = 1024

// tell says how old the levels are.
func (s *play) tell() {
	var ago [period.Top + 1]int
	for level := range ago {
		ago[level] = -1
		for i := len(s.epochs) - 1; i >= max(0, len(s.epochs)-longAgo); i-- {
			if s.epochs[i].level[level] {
				ago[level] = len(s.epochs) - 1 - i
				break
			}
		}
	}
	s.policy.Restarted(ago)
}

// Fixed is a period and a policy that stay.
type Fixed struct {
	T     float64
	Every period.Every
	since period.Every
}

// NewFixed begins as the chooser does: the first epoch gets to all levels.
func NewFixed(t float64, e period.Every) *Fixed { return &Fixed{t, e, e} }

func (f *Fixed) Period() float64         { return f.T }
func (f *Fixed) Saved(_, _ float64)      {}
func (f *Fixed) Raised(_ int, _ float64) {}
func (f *Fixed) Restarted(ago [period.Top + 1]int) {
	for k, n := range ago {
		if f.since[k] = n; n < 0 {
			f.since[k] = f.Every[k]
		}
	}
}

func (f *Fixed) Due() (due []int) {
	for k := 2; k <= period.Top && f.Every[1] > 0; k++ {
		if f.since[k]++; f.Every[k] > 0 && f.since[k] >= f.Every[k] {
			due, f.since[k] = append(due, k), 0
		}
	}
	return due
}

// Chosen is the chooser, which begins without a cost.
type Chosen struct{ *period.Chooser }

// first is when the first epoch is asked for.
const first = 10

func (c Chosen) Period() float64 {
	if choice, ok := c.Choice(); ok {
		return choice.Period.Seconds()
	}
	return first
}

func (c Chosen) Due() []int                     { return c.Chooser.Due(false) }
func (c Chosen) Saved(stop, total float64)      { c.Chooser.Saved(seconds(stop), seconds(total)) }
func (c Chosen) Raised(level int, took float64) { c.Chooser.Raised(level, seconds(took)) }
func (c Chosen) Restarted(ago [period.Top + 1]int) {
	for k, n := range ago {
		if n >= 0 {
			c.At(k, n)
		} else {
			c.At(k, 1<<20)
		}
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * 1e9) }
