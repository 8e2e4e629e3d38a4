// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/after"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/ckpt/period"
	"github.com/libckpt/libckpt/ckpt/store"
)

// firstChosen is when the first checkpoint is asked for whose period is to be chosen: its costs are known then.
const firstChosen = 10 * time.Second

// when chooses periods, and how often epochs are raised, by what they cost. Rank 0's.
type when struct {
	mu      sync.Mutex
	chooser *period.Chooser
	chosen  bool          // the choice also says which epochs are raised
	begun   time.Time     // when the newest epoch was asked for, or the job began
	said    period.Choice // the choice that is in the log
	changed chan struct{} // an epoch was committed
}

// newWhen is nil when the options say when, or nobody does.
func (j *Job) newWhen() *when {
	o := &j.options
	if o.Interval > 0 || o.Overhead == 0 && !o.MTBF.Known() {
		return nil
	}
	s := period.Settings{Overhead: o.Overhead, Failures: o.MTBF}
	w := &when{begun: time.Now(), changed: make(chan struct{}, 1)}
	s.Levels[levels.Shared] = true
	if j.levels != nil {
		s.Local = true
		w.chosen = o.MTBF.Known() && !o.LevelsGiven
		if several := len(j.levels.layout.Names) > 1; w.chosen {
			s.Levels[levels.Partner], s.Levels[levels.Coded] = several, several
		} else {
			s.Fixed = period.Every(j.levels.policy)
		}
	}
	w.chooser = period.NewChooser(s)
	w.remember(j)
	return w
}

// remember takes what the epochs of earlier runs have cost, if they were made as those of this run will be.
func (w *when) remember(j *Job) {
	list, err := j.store.Epochs()
	if err != nil {
		return // it is said elsewhere
	}
	newer := 0
	seen := [period.Top + 1]bool{}
	for i := len(list) - 1; i >= 0; i-- {
		m := list[i].Manifest
		if !list[i].Committed() || list[i].Lost() || m.Ranks != j.rankCount() || (m.Levels != nil) != (j.levels != nil) {
			continue
		}
		for level := levels.Partner; level <= levels.Shared; level++ {
			if m.Levels != nil && m.Levels.Has(level) && !seen[level] {
				seen[level] = true
				w.chooser.At(level, newer)
			}
		}
		newer++
	}
	for i := range list { // the newest measurements last
		m := list[i].Manifest
		if !list[i].Committed() || m.Ranks != j.rankCount() || (m.Levels != nil) != (j.levels != nil) {
			continue
		}
		w.chooser.Saved(asTime(m.StopSeconds), asTime(m.TotalSeconds-waited(m)))
		if m.Levels != nil {
			for _, t := range m.Levels.Took {
				w.chooser.Raised(t.Level, asTime(t.Seconds))
			}
		}
	}
}

// waited is how long a checkpoint waited until the program could be stopped: the program ran, and lost nothing.
func waited(m *store.Manifest) float64 {
	for _, p := range m.Images[0].Phases {
		if p.Name == stageStop.String() {
			return min(max(p.At, 0), m.TotalSeconds)
		}
	}
	return 0
}

func asTime(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// choice is what holds now, and what it follows from; ok is false as long as no cost is known.
func (w *when) choice() (c period.Choice, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.chooser.Choice()
}

// next is when the next epoch is to be asked for.
func (w *when) next() time.Time {
	c, ok := w.choice()
	if !ok {
		c.Period = firstChosen
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun.Add(c.Period)
}

// watchChosen asks for checkpoints when the chooser says so. An epoch that somebody else has asked for counts.
func (j *Job) watchChosen() {
	for {
		wait := time.Until(j.when.next())
		if wait <= 0 {
			before := time.Now()
			j.ask(after.Continue, "the chosen period")
			j.when.asked(before) // also if it failed: the next one is a period later
			continue
		}
		select {
		case <-j.done:
			return
		case <-time.After(wait):
		case <-j.when.changed:
		}
	}
}

// asked says that an epoch was asked for at a time.
func (w *when) asked(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at.After(w.begun) {
		w.begun = at
	}
}

// savedIn takes what an epoch has cost that was committed just now. Rank 0.
func (j *Job) savedIn(a *attempt) {
	w := j.when
	if w == nil {
		return
	}
	w.mu.Lock()
	w.chooser.Saved(asTime(a.total.Stop), time.Since(a.stoppedAt))
	w.mu.Unlock()
	w.asked(a.asked)
	j.sayChoice()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// raisedIn takes how long raising took.
func (j *Job) raisedIn(level int, took time.Duration) {
	w := j.when
	if w == nil {
		return
	}
	w.mu.Lock()
	w.chooser.Raised(level, took)
	w.mu.Unlock()
	j.sayChoice()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// sayChoice logs a choice that is another one than the last in the log.
func (j *Job) sayChoice() {
	c, ok := j.when.choice()
	if !ok {
		return
	}
	w := j.when
	w.mu.Lock()
	same := w.said.Period > 0 && c.Every == w.said.Every && (c.Period-w.said.Period).Abs() <= w.said.Period/10
	if !same {
		w.said = c
	}
	w.mu.Unlock()
	if !same {
		fields := []zap.Field{zap.Duration("period", c.Period.Round(time.Millisecond)), zap.String("why", c.Why())}
		if l := c.Levels(); l != "" {
			fields = append(fields, zap.String("levels", l))
		}
		j.log.Info("period chosen", fields...)
	}
}

// due lists the levels to which an epoch is to be raised that was committed just now. wanted is the level that the program
// says, or levelByPolicy.
func (j *Job) due(epoch, wanted int, last bool) []int {
	if w := j.when; w != nil && w.chosen && wanted == levelByPolicy {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.chooser.Due(last)
	}
	return j.levels.dueFor(epoch, wanted, last)
}

// chosen is the choice for the status and for manifests; nil when there is none.
func (j *Job) chosen() *store.Chosen {
	if j.when == nil {
		return nil
	}
	c, ok := j.when.choice()
	if !ok {
		return nil
	}
	return &store.Chosen{PeriodSeconds: c.Period.Seconds(), Levels: c.Levels(), Why: c.Why()}
}

// chosenStatus is the same for the status.
func (j *Job) chosenStatus() *control.Chosen {
	if j.when == nil {
		return nil
	}
	s := &control.Chosen{Next: j.when.next().UTC(), Why: "what a checkpoint costs is not known yet"}
	if c := j.chosen(); c != nil {
		s.PeriodSeconds, s.Levels, s.Why = c.PeriodSeconds, c.Levels, c.Why
	}
	return s
}
