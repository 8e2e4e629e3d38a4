// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/ckpt/store"
	"github.com/libckpt/libckpt/rails/signaling"
)

// Levels. Images are written to the local directories of the nodes, and the epoch is committed with that (level 1).
// After the commit rank 0 has the epoch raised, one level after the other:
//
//	rank 0                          leader of each node
//	order(level, record) ─────────► copies, codes or shares  ◄──── other leaders' files (connections of their own)
//	all have: manifest   ◄───────── raised, or why not
//
// Nobody waits for this but a program that is to end after the checkpoint.

// leveled is what a job with local directories knows; it does not change once the job serves.
type leveled struct {
	policy levels.Policy
	layout levels.Layout
	place  levels.Place // of this node
	local  string       // as rank 0 was told
	node   int
	raiser *raiser // rank 0

	looked  chan struct{} // closed when highest is known; nil: level 4 is in the directory
	highest int           // of the epochs in the object store when the job began
}

// placeWord is what a rank says of its node.
type placeWord struct {
	Node  string `json:"node"`
	Local string `json:"local,omitempty"`
	Set   string `json:"set,omitempty"` // of rank 0
	Error string `json:"error,omitempty"`
}

// ownPlace finds the node of this process, and its local directory.
func ownPlace(o launch.Options, host string, process int) (node string, place levels.Place) {
	node, dir := levels.NodeName(o.Local, host, process, o.NodeSize)
	return node, levels.Place{Dir: dir}
}

// meetPlaces has all processes tell of their nodes, and make their local directories. gather is an all-gather.
// set is the name that rank 0 gives. The result is nil when no process has a local directory; an error is the same
// on all.
func meetPlaces(o launch.Options, host string, process int, set string, gather func(step int, w placeWord) ([]placeWord, error)) (*leveled, error) {
	node, place := ownPlace(o, host, process)
	words, err := gather(0, placeWord{Node: node, Local: o.Local, Set: set})
	if err != nil {
		return nil, err
	}
	with := slices.IndexFunc(words, func(w placeWord) bool { return w.Local != "" })
	if with < 0 {
		return nil, nil
	}
	for r, w := range words {
		if w.Local == "" {
			return nil, fmt.Errorf("node %s (rank %d) has no local directory, but node %s has %s: set CKPT_LOCAL or --local on all nodes or on none; what was saved is as it was",
				w.Node, r, words[with].Node, words[with].Local)
		}
	}
	var names []string
	for _, w := range words {
		names = append(names, w.Node)
	}
	l := &leveled{layout: levels.NewLayout(names, o.Group), local: words[0].Local}
	place.Set = words[0].Set
	l.place, l.node = place, l.layout.Of[process]
	l.policy, _ = o.Levels.For(len(l.layout.Names))
	mine := placeWord{Node: node}
	if err := place.Make(); err != nil {
		mine.Error = err.Error()
	} else if l.layout.Leader(l.node) == process { // an earlier job's: this one writes when all have met here
		place.Tidy()
	}
	if words, err = gather(1, mine); err != nil {
		return nil, err
	}
	for r, w := range words {
		if w.Error != "" {
			return nil, fmt.Errorf("node %s (rank %d): %s; what was saved is as it was", w.Node, r, w.Error)
		}
	}
	return l, nil
}

// openLevels finds the nodes of the job. Collective.
func (j *Job) openLevels() error {
	set := ""
	if j.options.Local != "" && j.group.rank() == 0 {
		var err error
		if set, err = levels.SetName(j.options.Dir); err != nil {
			return err
		}
	}
	var poll func()
	if j.runtime != nil {
		poll = j.runtime.Progress
	}
	l, err := meetPlaces(j.options, j.meta.Host, j.group.rank(), set, func(step int, w placeWord) ([]placeWord, error) {
		return allgatherJSON(context.Background(), j.group, uint64(stepNodes+step), poll, w)
	})
	if err != nil {
		if j.group.rank() == 0 {
			return say(j.host, err)
		}
		return &SaidError{err}
	}
	j.levels = l
	return nil
}

// serveLevels begins to serve other nodes, and on rank 0 to raise epochs.
func (j *Job) serveLevels() {
	l := j.levels
	if l == nil {
		return
	}
	j.store = j.store.WithLocal(l.place.Dir)
	if j.net != nil {
		j.listenLevels()
	}
	if j.group.rank() == 0 {
		if p, dropped := j.options.Levels.For(len(l.layout.Names)); len(dropped) > 0 && j.options.LevelsGiven {
			j.log.Warn(fmt.Sprintf("levels %v need two nodes, and all ranks are on node %s: left out; what holds is %v", dropped, l.layout.Names[0], p))
		}
		if j.toObjects() {
			j.lookAtObjects()
		}
		l.raiser = newRaiser(j)
		l.raiser.run()
	}
}

// imagePath is where this rank's image of an epoch is written.
func (j *Job) imagePath(epoch int) string {
	if j.levels != nil {
		return j.levels.place.Path(epoch, store.ImageName(j.group.rank()))
	}
	return j.store.ImagePath(epoch, j.group.rank())
}

// beginLocal makes the local directory of an epoch.
func (j *Job) beginLocal(epoch int) error {
	if j.levels == nil {
		return nil
	}
	return j.levels.place.Begin(epoch)
}

// dropLocal removes this rank's image of an epoch that there is not. err is why: a rank that does not know what became
// of the epoch leaves it.
func (a *attempt) dropLocal(err error) {
	j := a.j
	var word *verdictError
	if j.levels == nil || a.epoch == 0 || a.doubt || j.group.rank() != 0 && a.stage >= stageWrite && !errors.As(context.Cause(a.ctx), &word) && !errors.As(err, &word) {
		return
	}
	j.levels.place.Drop(a.epoch, store.ImageName(j.group.rank()))
}

// recordLevels notes in a manifest where the images are.
func (j *Job) recordLevels(m *store.Manifest) {
	if j.levels == nil {
		return
	}
	files := make([]levels.File, len(m.Images))
	for i, im := range m.Images {
		files[i] = levels.File{Name: im.File, Bytes: im.Bytes}
	}
	m.Level, m.Levels = levels.Local, levels.NewRecord(&j.levels.layout, j.levels.place.Set, j.levels.local, files)
}

// retire removes old epochs, here and on the nodes. Rank 0.
func (j *Job) retire() error {
	lost := j.lostEpochs()
	var busy []int
	if j.levels != nil {
		busy = j.levels.raiser.busy()
	}
	removed, err := j.store.Retire(j.options.Keep, busy...)
	for _, n := range removed {
		if why, is := lost[n]; is {
			j.log.Warn("an epoch that was lost is removed: all that are kept are newer", zap.Int("epoch", n), zap.String("why", why))
		}
	}
	if j.levels == nil {
		return err
	}
	return cmp.Or(j.keepLocal(), err)
}

// lostEpochs says why restarts have passed over epochs that are still there.
func (j *Job) lostEpochs() map[int]string {
	list, err := j.store.Epochs()
	if err != nil {
		return nil // Retire says so
	}
	lost := map[int]string{}
	for i := range list {
		if list[i].Lost() {
			lost[list[i].Number] = list[i].Manifest.Lost()
		}
	}
	return lost
}

// keepWord tells leaders which epochs there are.
type keepWord struct {
	Stay  []int `json:"stay"`
	Bound int   `json:"bound"`
}

// keepLocal has the nodes remove the local files of epochs that are not there any more.
func (j *Job) keepLocal() error {
	list, err := j.store.Epochs()
	if err != nil {
		return err
	}
	var w keepWord
	for i := range list {
		w.Stay = append(w.Stay, list[i].Number)
		if list[i].Committed() {
			w.Bound = list[i].Number
		}
	}
	if j.net == nil {
		return j.levels.place.Keep(w.Stay, w.Bound)
	}
	for n := range j.levels.layout.Names {
		j.tell(j.levels.layout.Leader(n), kindKeep, w)
	}
	return nil
}

// raiseOrder is rank 0's order to a leader, and the answer.
type raiseOrder struct {
	Seq    uint64         `json:"seq"`
	Task   *levels.Task   `json:"task,omitempty"`
	Raised *levels.Raised `json:"raised,omitempty"`
}

// listenLevels serves other nodes, and takes rank 0's orders.
func (j *Job) listenLevels() {
	j.net.OnConnect(func(_ int, conn *signaling.Bulk) {
		err := levels.Politely(func() error { return j.levels.place.Serve(conn, soundAlone) })
		if err != nil && !j.ending() {
			j.log.Debug("giving local files to another node", zap.Error(err))
		}
	})
	j.net.Handle(kindKeep, func(_ int, payload []byte) {
		var w keepWord
		if json.Unmarshal(payload, &w) != nil {
			return
		}
		if err := j.levels.place.Keep(w.Stay, w.Bound); err != nil {
			j.log.Warn("old local files could not be removed", zap.Error(err))
		}
	})
	j.net.Handle(kindRaise, func(from int, payload []byte) {
		var o raiseOrder
		if json.Unmarshal(payload, &o) == nil && o.Task != nil && o.Task.Check() == nil {
			go func() { j.tell(from, kindRaised, raiseOrder{Seq: o.Seq, Raised: j.raiseHere(o.Task)}) }()
		}
	})
	if j.group.rank() == 0 {
		j.net.Handle(kindRaised, func(_ int, payload []byte) {
			var o raiseOrder
			if json.Unmarshal(payload, &o) == nil && o.Raised != nil {
				j.levels.raiser.heard(o)
			}
		})
	}
}

// raiseHere does this node's part in raising an epoch.
func (j *Job) raiseHere(t *levels.Task) *levels.Raised {
	r := &levels.Raised{Node: t.Node}
	dial := func(process int) (levels.Conn, error) { return j.net.Connect(context.Background(), process) }
	sound := func(path string) error { return soundImage(path, nil, -1) }
	err := levels.Politely(func() (err error) {
		if t.Objects != "" {
			r.Stored, err = j.putHere(t, sound)
			return err
		}
		r.Parity, err = j.levels.place.Do(t, dial, sound, j.store.EpochDir(t.Epoch))
		return err
	})
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// soundAlone checks a whole image by itself.
func soundAlone(_ int, _, path string) error { return soundImage(path, nil, -1) }

// soundImage checks a whole image, but not those that it refers to. m is the manifest that lists it, nil for an image by itself.
func soundImage(path string, m *store.Manifest, process int) error {
	f, err := openSound(path, m, process)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.VerifyOwn(context.Background())
}

// openSound is soundImage without the content of pages.
func openSound(path string, m *store.Manifest, process int) (*image.File, error) {
	f, err := image.Open(path)
	if err != nil {
		return nil, err
	}
	if m != nil && f.Digest().String() != m.Images[process].Digest {
		f.Close()
		return nil, &image.CorruptError{File: path, Section: "file", What: "digest", Expected: m.Images[process].Digest + " (manifest)", Found: f.Digest().String()}
	}
	return f, nil
}

// raiseCommitted has an epoch raised that was just committed. If the program is to end it waits for that: nobody
// may reach the local files afterwards.
func (a *attempt) raiseCommitted() {
	l := a.j.levels
	if l == nil || l.raiser == nil {
		return
	}
	wanted := levelByPolicy
	if j := a.j; j.regional != nil && j.regional.named != nil {
		wanted = a.state.Level
	}
	done := l.raiser.raise(a.epoch, a.j.due(a.epoch, wanted, a.held))
	if !a.held {
		return
	}
	select {
	case <-done:
	case <-a.ctx.Done():
		a.j.log.Warn("the program ends before its last epoch is raised to all levels", zap.Int("epoch", a.epoch), zap.Error(context.Cause(a.ctx)))
	case <-a.j.networkFailed():
	}
}

func (j *Job) noteNotRaised(epoch, level int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.status.NotRaised = fmt.Sprintf("epoch %d to level %d: %v", epoch, level, err)
}
