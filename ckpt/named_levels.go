// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/ckpt/store"
)

// Levels of programs that name their state: the program may say how far an epoch is raised, and what is loaded is
// brought to where it is needed when it looks.

// LevelShared is the highest level: the directory, which all nodes see.
const LevelShared = levels.Shared

// levelByPolicy stands for what --levels says of the number of the epoch.
const levelByPolicy = 0

// CheckLevel says why a level cannot be had with these options.
func CheckLevel(level int, o launch.Options) error {
	switch {
	case level < levels.Local || level > LevelShared:
		return fmt.Errorf("there is no level %d: levels are 1 to %d", level, LevelShared)
	case level < LevelShared && o.Local == "":
		return fmt.Errorf("level %d is not there without a local directory of each node: set CKPT_LOCAL (or local in ckpt.toml) for that; checkpoints are kept in their directory only, which is level %d",
			level, LevelShared)
	}
	return nil
}

// DefaultLevel is that of CKPT_LEVEL; else, with local directories, what CKPT_LEVELS says of each epoch (0), and the
// highest without.
func DefaultLevel(o launch.Options, getenv func(string) string) (int, error) {
	text := getenv("CKPT_LEVEL")
	switch {
	case text != "":
	case o.Local != "":
		return levelByPolicy, nil
	default:
		return LevelShared, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("CKPT_LEVEL is %q: want 1 to %d", text, LevelShared)
	}
	if err := CheckLevel(n, o); err != nil {
		return 0, fmt.Errorf("CKPT_LEVEL: %w", err)
	}
	return n, nil
}

// CheckLevel says why a level cannot be had in this job.
func (j *Job) CheckLevel(level int) error { return CheckLevel(level, j.options) }

// dueFor lists the levels to which a committed epoch is raised. The program has the word, if it names its state; where
// one node is all there is, nothing but the highest level survives what it wants to survive.
func (l *leveled) dueFor(epoch, wanted int, last bool) []int {
	switch {
	case wanted == levelByPolicy:
		return l.policy.Due(epoch, last)
	case wanted == levels.Local:
		return nil
	case len(l.layout.Names) < 2:
		return []int{levels.Shared}
	}
	return []int{wanted}
}

// RaiseNamed brings the last checkpoint of this start to a level too, and returns when it is there. Collective.
func (j *Job) RaiseNamed(level int) error {
	if level < levels.Local || level > LevelShared {
		return fmt.Errorf("there is no level %d: levels are 1 to %d", level, LevelShared)
	}
	j.mu.Lock()
	last := j.last
	j.mu.Unlock()
	if last == nil || last.outcome().err != nil {
		return errors.New("there is no checkpoint of this start that could be raised")
	}
	if j.levels == nil {
		return nil // it is in the directory, which is the highest level
	}
	var err error
	if r := j.levels.raiser; r != nil {
		due := j.levels.dueFor(last.epoch, level, false)
		_, err = await(j.runtime.Progress, func() (struct{}, error) {
			select {
			case <-r.raise(last.epoch, due):
				return struct{}{}, j.raisedTo(last.epoch, due)
			case <-j.networkFailed():
				return struct{}{}, errors.New("the network of the ranks has failed")
			}
		})
	}
	return j.together(err)
}

// raisedTo says why an epoch is not at these levels. Rank 0.
func (j *Job) raisedTo(epoch int, due []int) error {
	m, err := j.store.Manifest(epoch)
	if err != nil {
		return err
	}
	for _, level := range due {
		if m.Levels == nil || m.Levels.Has(level) {
			continue
		}
		why := "it was not tried"
		for _, f := range m.Levels.Failed {
			if f.Level == level {
				why = f.Why
			}
		}
		return fmt.Errorf("epoch %d could not be raised to level %d, and stays at level %d: %s", epoch, level, m.Levels.Level(), why)
	}
	return nil
}

// ---- what is loaded ------------------------------------------------------------------------------

// spreadOf are the epochs with files on nodes. One whose manifest cannot be read is none: who opens it says why.
func spreadOf(dir string, epochs []int) (list []int) {
	s, err := store.Open(dir)
	if err != nil {
		return nil
	}
	for _, e := range epochs {
		if m, err := s.Manifest(e); err == nil && (m.Levels != nil || m.Objects != nil) {
			list = append(list, e)
		}
	}
	return list
}

// bringing is this process's part in having the images of an epoch where they are loaded. nil: nothing was on nodes.
type bringing struct {
	j    *Job
	r    *Restart
	b    *rebuilding
	done levels.Outcome
}

func (j *Job) newBringing(dir string) (*bringing, error) {
	s, err := store.Open(dir)
	if err = j.together(err); err != nil {
		return nil, err
	}
	l := j.levels
	if l == nil {
		l = &leveled{}
	}
	r := &Restart{store: s, owned: j.owned}
	b := &rebuilding{r: r, rt: j.runtime, l: l, options: j.options, process: j.group.rank(), processes: j.group.size(), log: j.log}
	b.node, _ = ownPlace(j.options, j.meta.Host, b.process)
	return &bringing{j: j, r: r, b: b}, nil
}

// bring has each node get the images that its ranks load, each checked as a whole. Collective; *levels.LostError on all
// ranks when that cannot be done.
func (n *bringing) bring(epoch int) error {
	chain, err := n.b.manifests(epoch, true)
	if err == nil {
		n.done, err = n.b.bring(epoch, chain)
	}
	if _, is := lostOf(err); is {
		err = fmt.Errorf("%w%s", err, damagedText(n.done))
	}
	return err
}

// local is the local directory of this node.
func (n *bringing) local() string {
	if n == nil {
		return ""
	}
	return n.b.l.place.Dir
}

func (n *bringing) close() {
	if n != nil {
		n.b.close()
	}
}

// ---- the end -------------------------------------------------------------------------------------

// awaitRaised has a program that names its state end when its epochs are raised: nobody may come to the local disks
// afterwards. Collective.
func (j *Job) awaitRaised() {
	if j.levels == nil || j.regional == nil || j.regional.named == nil || j.net != nil && j.net.Err() != nil {
		return
	}
	if r := j.levels.raiser; r != nil {
		_, _ = await(j.runtime.Progress, func() (struct{}, error) {
			j.settle()
			select {
			case <-r.idle():
			case <-j.networkFailed():
			}
			return struct{}{}, nil
		})
	}
	if _, err := allgatherJSON(context.Background(), j.group, stepRaised, j.runtime.Progress, true); err != nil {
		j.log.Debug("the end of raising", zap.Error(err))
	}
}

// wants tells whether this process looks after an image of an epoch in a restart, and its node needs it.
func (b *rebuilding) wants(m *store.Manifest, i int) bool {
	switch {
	case m.Mode != modeRegions, named0(m) && m.Ranks == b.processes:
		return i == b.process
	case b.l.node >= len(b.l.layout.Names):
		return true
	}
	mates := b.l.layout.Processes(b.l.node) // any process may load any rank, and what is on the node all have
	return mates[i%len(mates)] == b.process && slices.Contains(mates, b.process)
}
