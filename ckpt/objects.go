// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/levels"
	"github.com/libckpt/libckpt/ckpt/objects"
	"github.com/libckpt/libckpt/ckpt/store"
)

// Level 4 in an object store. Each leader brings the files of its node there, rank 0 those that are kept in the
// directory, and last the manifest. Nobody waits for it but a program that is to end.
//
// A restart knows such an epoch by its manifest. Where the directory has none, rank 0 gets the manifests from the store
// and puts them into the directory, which it owns; the other ranks have read them from the store before, to know which
// MPI to start, and read them from the directory afterwards. Files are brought by settle, where no node has them.

// toObjects tells whether level 4 is in an object store.
func (j *Job) toObjects() bool { return j.options.Object.Bucket != "" }

// whileRunning is a context that ends with the job.
func (j *Job) whileRunning() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		select {
		case <-j.done:
			cancel(errors.New("the job is ending"))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// putHere is raiseHere for an order to an object store.
func (j *Job) putHere(t *levels.Task, sound func(path string) error) ([]levels.Stored, error) {
	place, err := objects.ParsePlace(t.Objects)
	if err != nil {
		return nil, err
	}
	to, err := objects.Open(place, j.options.Objects)
	if err != nil {
		return nil, err
	}
	ctx, cancel := j.whileRunning()
	defer cancel()
	return j.levels.place.DoObjects(t, sound, func(path string) (levels.Stored, error) {
		f, err := to.Put(ctx, t.Epoch, path)
		return store.AsStored(f), err
	})
}

// raiseObjects raises an epoch to level 4 in the object store. Rank 0.
func (r *raiser) raiseObjects(m *store.Manifest, t levels.Task) error {
	j := r.j
	to, err := objects.Open(j.options.Object, j.options.Objects)
	if err != nil {
		return err
	}
	ctx, cancel := j.whileRunning()
	defer cancel()
	if err := store.ObjectsFree(ctx, to, m); err != nil {
		return err
	}
	begun := time.Now()
	t.Objects = to.String()
	all, err := r.order(t)
	if err != nil {
		return err
	}
	list := store.Objects{Place: to.String()}
	for _, one := range all {
		list.Files = append(list.Files, one.Stored...)
	}
	beside, err := j.store.Beside(m)
	if err != nil {
		return err
	}
	for _, name := range beside {
		f, err := to.Put(ctx, m.Epoch, filepath.Join(j.store.EpochDir(m.Epoch), name))
		if err != nil {
			return err
		}
		list.Files = append(list.Files, store.AsStored(f))
	}
	took := time.Since(begun)
	raised := func(m *store.Manifest) error {
		rec := m.Levels.Clone()
		rec.Complete(levels.Shared)
		rec.Took = append(rec.Took, levels.Took{Level: levels.Shared, Seconds: took.Seconds()})
		m.Levels, m.Level, m.Objects = rec, rec.Level(), &list
		return nil
	}
	// The store first, which may be slow, and what it has may know less of lower levels; then here, where others wait.
	if m, err = j.store.Manifest(m.Epoch); err != nil {
		return err
	}
	if err = raised(m); err == nil {
		err = store.PutManifest(ctx, to, m)
	}
	if err == nil {
		err = r.change(m.Epoch, raised)
	}
	if err != nil {
		return err
	}
	j.log.Info("epoch raised", zap.Int("epoch", m.Epoch), zap.Int("level", levels.Shared), zap.String("objects", to.String()), zap.Duration("took", took))
	j.raisedIn(levels.Shared, took)
	removed, err := store.RetireObjects(ctx, to, j.options.Keep, m.Epoch)
	if err != nil && ctx.Err() == nil {
		j.log.Warn("old epochs in the object store could not be removed; that is tried again after the next one", zap.Error(err))
	}
	if len(removed) > 0 {
		j.log.Info("old epochs removed from the object store", zap.Ints("epochs", removed))
	}
	return nil
}

// lookWithin bounds how long the first checkpoint waits for a store that does not answer.
const lookWithin = 10 * time.Second

// lookAtObjects finds out which epochs the store has, so that new ones have greater numbers, and tells the user
// early if the store cannot be used. Rank 0.
func (j *Job) lookAtObjects() {
	l := j.levels
	l.looked = make(chan struct{})
	go func() {
		defer close(l.looked)
		ctx, cancel := j.whileRunning()
		defer cancel()
		ctx, stop := context.WithTimeoutCause(ctx, lookWithin, fmt.Errorf("no answer within %v", lookWithin))
		defer stop()
		from, err := objects.Open(j.options.Object, j.options.Objects)
		var list []int
		if err == nil {
			list, err = from.Epochs(ctx)
		}
		if err != nil {
			j.log.Warn("level 4 cannot be reached now; epochs stay at lower levels until it can, and the program runs on", zap.Error(err))
			return
		}
		if len(list) > 0 {
			l.highest = list[len(list)-1]
		}
	}()
}

// afterObjects is the number, or one that is greater than those of all epochs in the object store.
func (j *Job) afterObjects(n int) int {
	if j.levels == nil || j.levels.looked == nil {
		return n
	}
	<-j.levels.looked
	return max(n, j.levels.highest+1)
}

// ---- restart -------------------------------------------------------------------------------------

// distant is an object store that a restart takes epochs from.
type distant struct {
	list []store.Epoch
	said []string // what is to be told to the user
}

// findDistant finds an epoch in an object store; named is its number, 0: the newest.
func findDistant(o launch.Options, place objects.Place, named int) (*Restart, error) {
	from, err := objects.Open(place, o.Objects)
	if err != nil {
		return nil, err
	}
	ctx := context.Background() // each request ends by itself
	d := &distant{}
	if d.list, err = store.ObjectEpochs(ctx, from); err != nil {
		return nil, err
	}
	r := &Restart{spec: o.Restart, store: store.At(o.Dir), distant: d}
	for i := len(d.list) - 1; i >= 0; i-- {
		e := &d.list[i]
		switch {
		case named != 0 && e.Number != named:
		case e.Committed():
			r.manifest = e.Manifest
			return r, nil
		case e.Err != nil && (named != 0 || !o.Fallback):
			return nil, e.Err
		case e.Err != nil:
			d.said = append(d.said, fmt.Sprintf("epoch %d is lost: %v", e.Number, e.Err))
		}
	}
	if named != 0 {
		return nil, fmt.Errorf("%s: %w: epoch %d is not there, or has no manifest", place, store.ErrNone, named)
	}
	if len(d.said) > 0 {
		return nil, fmt.Errorf("%s: %w: %s", place, store.ErrNone, lostText(d.said))
	}
	return nil, fmt.Errorf("%s: %w (%d incomplete)", place, store.ErrNone, len(d.list))
}

// findRestart finds the epoch that --restart names: in the directory, or in the object store where it names that, or
// where the directory has none.
func findRestart(o launch.Options) (*Restart, error) {
	if objects.Is(o.Restart) {
		place, named, err := launch.SplitObject(o.Restart)
		if err != nil {
			return nil, err
		}
		return findDistant(o, place, named)
	}
	r, err := OpenRestart(o.Restart, o.Fallback)
	if err == nil || o.Object.Bucket == "" || !errors.Is(err, store.ErrNone) && !errors.Is(err, store.ErrLost) && !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	_, named, serr := store.SplitSpec(o.Restart)
	if serr != nil {
		return nil, serr
	}
	r, derr := findDistant(o, o.Object, named)
	if derr != nil {
		return nil, fmt.Errorf("%w; and %w", err, derr)
	}
	r.distant.said = append([]string{err.Error()}, r.distant.said...)
	return r, nil
}

// bring puts the manifests of a distant store into the directory, which this job owns. Rank 0.
func (r *Restart) bring(o launch.Options, logger *zap.Logger) error {
	s := r.store.Guard(r.owned.check)
	if r.distant == nil {
		r.bringOlder(s, o, logger)
		return nil
	}
	for i := range r.distant.list {
		m := r.distant.list[i].Manifest
		if m == nil || m.Epoch > r.manifest.Epoch || !r.alike(m) {
			continue
		}
		if err := s.Import(m); err != nil && m.Epoch == r.manifest.Epoch {
			return err
		} else if err != nil {
			logger.Warn("an older epoch of the object store is not looked at", zap.Int("epoch", m.Epoch), zap.Error(err))
		}
	}
	place := r.manifest.Objects.Place
	if len(r.distant.said) > 0 {
		logger.Warn(fmt.Sprintf("%s; taken instead: epoch %d of %s", lostText(r.distant.said), r.manifest.Epoch, place))
	}
	return nil
}

// bringOlder has older epochs that are in the object store alone stand by, should those of the directory be lost.
func (r *Restart) bringOlder(s *store.Store, o launch.Options, logger *zap.Logger) {
	if _, named, err := store.SplitSpec(r.spec); o.Object.Bucket == "" || err != nil || named != 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), lookWithin, fmt.Errorf("no answer within %v", lookWithin))
	defer cancel()
	from, err := objects.Open(o.Object, o.Objects)
	var list []store.Epoch
	if err == nil {
		list, err = store.ObjectEpochs(ctx, from)
	}
	var here []store.Epoch
	if err == nil {
		here, err = s.Epochs()
	}
	if err != nil {
		logger.Warn("the object store is not looked at for older epochs", zap.Error(err))
		return
	}
	for i := range list {
		m := list[i].Manifest
		is := func(e store.Epoch) bool { return e.Number == list[i].Number && e.Committed() }
		if m == nil || m.Epoch >= r.manifest.Epoch || !r.alike(m) || slices.ContainsFunc(here, is) {
			continue
		}
		if err := s.Import(m); err != nil {
			logger.Warn("an older epoch of the object store is not looked at", zap.Int("epoch", m.Epoch), zap.Error(err))
		}
	}
}

// withObjects has what no node has come from the object store.
func (b *rebuilding) withObjects(rebuild *levels.Rebuild, byEpoch map[int]*store.Manifest, o launch.Options) {
	file := func(epoch int, name string) (objects.File, bool) {
		if m := byEpoch[epoch]; m != nil {
			f, is := m.Objects.File(name)
			return store.AsObject(f), is
		}
		return objects.File{}, false
	}
	rebuild.InObjects = func(epoch int) bool { return byEpoch[epoch] != nil && byEpoch[epoch].Objects != nil }
	rebuild.Stored = func(w levels.Want) (levels.File, bool) {
		f, is := file(w.Epoch, w.File)
		return levels.File{Name: f.Name, Bytes: f.Bytes}, is
	}
	rebuild.Fetch = func(epoch int, name, dest string) error {
		f, is := file(epoch, name)
		if !is {
			return fmt.Errorf("epoch %d: %s is not in the object store", epoch, name)
		}
		place, err := objects.ParsePlace(byEpoch[epoch].Objects.Place)
		if err != nil {
			return err
		}
		from, err := objects.Open(place, o.Objects)
		if err != nil {
			return err
		}
		return from.Get(context.Background(), epoch, f, dest)
	}
	images := rebuild.Sound
	rebuild.Sound = func(epoch int, name, path string) error {
		m := byEpoch[epoch]
		if f, is := file(epoch, name); is && m.RankOf(name) < 0 { // kept beside the images; what is here is looked at when it is put back
			st, err := os.Stat(path)
			if err == nil && !st.Mode().IsRegular() {
				err = fmt.Errorf("%s: not a regular file", path)
			}
			return cmp.Or(err, f.Check())
		}
		return images(epoch, name, path)
	}
	if b.process != 0 {
		return
	}
	for e, m := range byEpoch { // one process brings what is kept beside the images to the directory
		if m.Objects == nil {
			continue
		}
		for _, f := range m.Objects.Files {
			if m.RankOf(f.Name) < 0 {
				rebuild.Wants = append(rebuild.Wants, levels.Want{Epoch: e, File: f.Name})
			}
		}
	}
}

// fetchKept puts a file that is kept beside images of the epoch into its place as the object store has it, and returns the
// object. "": no store has it.
func (r *Restart) fetchKept(path string, o launch.Options) (string, error) {
	f, is := r.manifest.Objects.File(filepath.Base(path))
	if !is {
		return "", nil
	}
	place, err := objects.ParsePlace(r.manifest.Objects.Place)
	if err != nil {
		return "", err
	}
	from, err := objects.Open(place, o.Objects)
	if err != nil {
		return "", err
	}
	return from.URL(r.manifest.Epoch, f.Name), from.Get(context.Background(), r.manifest.Epoch, store.AsObject(f), path)
}
