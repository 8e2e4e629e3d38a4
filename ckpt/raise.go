// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/ckpt/store"
)

// raiser raises epochs on rank 0. What goes from node to node and what goes to the shared file system or the object store wait
// for themselves alone: a slow place at level 4 leaves no newer epoch at level 1.
type raiser struct {
	j     *Job
	lanes [2]*lane // by far

	mu      sync.Mutex
	seq     uint64
	answers map[uint64]chan *levels.Raised // to the order with that number

	// changing is held while a manifest is changed, which both lanes do.
	changing sync.Mutex
}

// lane raises epochs one after the other. What is in it belongs to the mutex of the raiser.
type lane struct {
	wake    chan struct{}
	queue   []raiseJob
	now     []int         // epochs that are being read from
	current chan struct{} // done of the one that is being raised; nil: none is
	doing   string        // for the status
}

// raiseJob is an epoch to be raised.
type raiseJob struct {
	epoch int
	due   []int         // levels, lowest first
	done  chan struct{} // closed when it was raised, or could not be
}

func newRaiser(j *Job) *raiser {
	r := &raiser{j: j, answers: map[uint64]chan *levels.Raised{}}
	for i := range r.lanes {
		r.lanes[i] = &lane{wake: make(chan struct{}, 1)}
	}
	return r
}

// run raises until the job ends.
func (r *raiser) run() {
	for _, l := range r.lanes {
		go r.runLane(l)
	}
}

// far is the lane of a level.
func far(level int) int {
	if level == levels.Shared {
		return 1
	}
	return 0
}

// raise queues an epoch that was committed.
func (r *raiser) raise(epoch int, due []int) (done <-chan struct{}) {
	var waits []chan struct{}
	for i, l := range r.lanes {
		job := raiseJob{epoch: epoch, done: make(chan struct{})}
		for _, level := range due {
			if far(level) == i {
				job.due = append(job.due, level)
			}
		}
		if job.due == nil {
			continue
		}
		waits = append(waits, job.done)
		r.mu.Lock()
		l.queue = append(l.queue, job)
		r.mu.Unlock()
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	return closedAfter(waits)
}

// closedAfter is closed when all are.
func closedAfter(all []chan struct{}) <-chan struct{} {
	if len(all) == 1 {
		return all[0]
	}
	done := make(chan struct{})
	if len(all) == 0 {
		close(done)
		return done
	}
	go func() {
		for _, one := range all {
			<-one
		}
		close(done)
	}()
	return done
}

// idle is closed when all epochs that are queued now were raised, or could not be.
func (r *raiser) idle() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	var waits []chan struct{}
	for _, l := range r.lanes {
		if n := len(l.queue); n > 0 {
			waits = append(waits, l.queue[n-1].done)
		} else if l.current != nil {
			waits = append(waits, l.current)
		}
	}
	return closedAfter(waits)
}

// busy are epochs that must stay: those being raised, and of those that wait the newest of each level.
func (r *raiser) busy() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []int
	var seen [levels.Shared + 1]bool
	for _, l := range r.lanes {
		list = append(list, l.now...)
		for i := len(l.queue) - 1; i >= 0; i-- {
			for _, level := range l.queue[i].due {
				if !seen[level] {
					seen[level] = true
					list = append(list, l.queue[i].epoch)
				}
			}
		}
	}
	return list
}

func (r *raiser) runLane(l *lane) {
	for {
		r.mu.Lock()
		var job raiseJob
		if len(l.queue) > 0 {
			job, l.queue = l.queue[0], l.queue[1:]
			l.now, l.current = []int{job.epoch}, job.done
		}
		r.mu.Unlock()
		if job.epoch == 0 {
			select {
			case <-l.wake:
				continue
			case <-r.j.done:
				return
			case <-r.j.networkFailed():
				return
			}
		}
		r.raiseEpoch(l, job)
		close(job.done)
		r.mu.Lock()
		l.now, l.current = nil, nil
		r.mu.Unlock()
		r.doing(l, "")
	}
}

// doing says in the status what a lane does.
func (r *raiser) doing(l *lane, what string) {
	r.mu.Lock()
	l.doing = what
	var all []string
	for _, l := range r.lanes {
		if l.doing != "" {
			all = append(all, l.doing)
		}
	}
	r.mu.Unlock()
	j := r.j
	j.mu.Lock()
	defer j.mu.Unlock()
	j.status.Raising = strings.Join(all, "; ")
}

// change changes a manifest. Both lanes may be at one epoch.
func (r *raiser) change(epoch int, how func(m *store.Manifest) error) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	return r.j.store.Change(epoch, how)
}

// raiseEpoch raises an epoch, and those that it needs before it, to all levels that are due.
func (r *raiser) raiseEpoch(l *lane, job raiseJob) {
	j := r.j
	m, err := j.store.Manifest(job.epoch)
	if errors.Is(err, store.ErrNone) {
		return // removed before its turn
	}
	if err != nil {
		j.log.Warn("an epoch cannot be raised", zap.Int("epoch", job.epoch), zap.Error(err))
		return
	}
	chain := append(slices.Clone(m.Needs), job.epoch)
	r.mu.Lock()
	l.now = chain
	r.mu.Unlock()
	for _, level := range job.due {
		for _, e := range chain {
			err := r.raiseTo(l, e, level)
			if err == nil {
				continue
			}
			if j.ending() || j.networkFailed() != nil && j.net.Err() != nil {
				return
			}
			j.log.Warn(fmt.Sprintf("epoch %d could not be raised to level %d; it stays as it was", e, level), zap.Error(err))
			j.noteNotRaised(e, level, err)
			r.recordFailed(e, level, err)
			if e != job.epoch {
				r.recordFailed(job.epoch, level, fmt.Errorf("epoch %d, which it needs: %w", e, err))
			}
			break
		}
	}
}

// recordFailed notes in a manifest why a level was not reached.
func (r *raiser) recordFailed(epoch, level int, why error) {
	_ = r.change(epoch, func(m *store.Manifest) error { // the log has it, at least
		if m.Levels != nil {
			m.Levels.Fail(level, why.Error())
		}
		return nil
	})
}

// raiseTo raises one epoch to one level.
func (r *raiser) raiseTo(in *lane, epoch, level int) error {
	j := r.j
	m, err := j.store.Manifest(epoch)
	if err != nil {
		return err
	}
	if m.Levels == nil || m.Levels.Has(level) {
		return nil
	}
	l := &j.levels.layout
	names := make([]string, len(m.Levels.Nodes))
	for n := range m.Levels.Nodes {
		names[n] = m.Levels.Nodes[n].Name
	}
	if !slices.Equal(names, l.Names) || m.Levels.Set != j.levels.place.Set {
		return errors.New("it was written by an earlier run, on other nodes")
	}
	r.doing(in, fmt.Sprintf("epoch %d to level %d", epoch, level))
	peers := make([]levels.Peer, len(names))
	for n := range names {
		peers[n] = levels.Peer{Name: names[n], Leader: l.Leader(n)}
	}
	begun := time.Now()
	t := levels.Task{Level: level, Epoch: epoch, Record: m.Levels, Peers: peers}
	if level == levels.Shared && j.toObjects() {
		return r.raiseObjects(m, t)
	}
	all, err := r.order(t)
	if err != nil {
		return err
	}
	took := time.Since(begun)
	err = r.change(epoch, func(m *store.Manifest) error {
		rec := m.Levels.Clone()
		for n, one := range all {
			switch level {
			case levels.Partner:
				if b := l.Before(n); b >= 0 {
					rec.Nodes[b].Copies = names[n]
				}
			case levels.Coded:
				rec.Nodes[n].Parity = one.Parity
			}
		}
		rec.Complete(level)
		rec.Took = append(rec.Took, levels.Took{Level: level, Seconds: took.Seconds()})
		m.Levels, m.Level = rec, rec.Level()
		return nil
	})
	if err == nil {
		j.log.Info("epoch raised", zap.Int("epoch", epoch), zap.Int("level", level), zap.Duration("took", took))
		j.raisedIn(level, took)
	}
	return err
}

// order has all leaders do their part, and collects what they say.
func (r *raiser) order(t levels.Task) ([]*levels.Raised, error) {
	j := r.j
	nodes := len(t.Peers)
	if j.net == nil {
		one := j.raiseHere(&t)
		if one.Error != "" {
			return nil, fmt.Errorf("node %s: %s", t.Peers[0].Name, one.Error)
		}
		return []*levels.Raised{one}, nil
	}
	answers := make(chan *levels.Raised, nodes)
	r.mu.Lock()
	r.seq++
	seq := r.seq
	r.answers[seq] = answers
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.answers, seq)
		r.mu.Unlock()
	}()
	for n := range nodes {
		task := t
		task.Node = n
		j.tell(t.Peers[n].Leader, kindRaise, raiseOrder{Seq: seq, Task: &task})
	}
	all := make([]*levels.Raised, nodes)
	var errs []error
	for range nodes {
		select {
		case one := <-answers:
			if one.Node < 0 || one.Node >= nodes || all[one.Node] != nil {
				return nil, fmt.Errorf("an answer of node %d of %d", one.Node, nodes)
			}
			all[one.Node] = one
			if one.Error != "" {
				errs = append(errs, fmt.Errorf("node %s: %s", t.Peers[one.Node].Name, one.Error))
			}
		case <-j.net.Failed():
			return nil, j.net.Err()
		case <-j.done:
			return nil, errors.New("the job is ending")
		}
	}
	return all, errors.Join(errs...)
}

func (r *raiser) heard(o raiseOrder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.answers[o.Seq] <- o.Raised: // of an order that was given up there is none
	default: // nobody has been asked so often
	}
}
