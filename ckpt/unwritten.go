// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/internal/written"
)

// notes has the kernel note which memory of the program is written, so that an epoch with what changed need not read
// the rest.
type notes struct {
	mu      sync.Mutex // a writer that is late may still ask while the next epoch begins
	tracker *written.Tracker
	tried   bool
	warned  bool
	ended   chan struct{} // closed when mending is to end; nil: nobody mends
}

// noted is what the kernel noted up to a capture.
type noted struct {
	unwritten []image.Extent
	upon      int          // epoch since which that is so
	mark      written.Mark // stands for this capture
}

// follow returns the tracker, nil where there is none. Under n.mu.
func (j *Job) follow() *written.Tracker {
	n := &j.notes
	if !n.tried {
		n.tried = true
		t, err := written.Open()
		if err != nil {
			j.sayNotFollowed(err)
			return nil
		}
		n.tracker = t
	}
	return n.tracker
}

// sayNotFollowed says once what is done instead, and what would help. A kernel that cannot is no surprise; one that
// may not is.
func (j *Job) sayNotFollowed(err error) {
	if j.meta.Rank != 0 {
		return
	}
	const what = "epochs with what changed read all memory and compare digests of its pages: the kernel does not note writes"
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		j.log.Warn(what+", userfaultfd is not allowed: a container must allow the system call; or choose --changes digest", zap.Error(err))
		return
	}
	j.log.Info(what, zap.Error(err))
}

// notesWrites says whether writes are to be noted.
//
// Not in whole mode: there mmap is the program's own, and its mremap would fail across a mapping that is followed and
// one that was made beside it.
func (j *Job) notesWrites() bool {
	return j.tracks() && j.options.Changes != "digest" && j.regional == nil && j.embedded == nil
}

// ownMemory is where only this process writes.
func ownMemory(regions []image.Region) (list []image.Extent) {
	for i := range regions {
		if r := &regions[i]; r.Flags&(image.FlagShared|image.FlagFile) == 0 {
			list = append(list, image.Extent{Start: r.Start, End: r.End})
		}
	}
	return list
}

// noteWrites takes what was noted since the last epoch, and has writes noted from now on. The program is stopped, and
// its memory is copied, or written, before it goes on.
func (a *attempt) noteWrites() {
	j := a.j
	if !j.notesWrites() || a.capture == nil || a.capture.memory != nil {
		return
	}
	j.lineage.mu.Lock()
	upon := j.lineage.ancestor
	j.lineage.mu.Unlock()
	a.capture.writes.upon = upon.epoch
	a.capture.writes.unwritten, a.capture.writes.mark = j.cut(ownMemory(a.capture.regions), upon)
}

// noteRestored has writes noted from a restart on: memory is as it was in the image that the next one is written upon.
func (j *Job) noteRestored(f *image.File) {
	if l := &j.lineage; j.notesWrites() && j.loader == nil && l.parent != nil {
		_, l.mark = j.cut(ownMemory(f.Regions()), l.ancestor)
		j.notes.mend()
	}
}

// cut protects list, and returns what of it was not written since upon. The mark is 0 where that cannot be told.
func (j *Job) cut(list []image.Extent, upon ancestor) (unwritten []image.Extent, mark written.Mark) {
	var calm []image.Extent
	if upon.parent != nil {
		calm = upon.parent.Calm()
	}
	n := &j.notes
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended != nil {
		close(n.ended)
		n.ended = nil
	}
	t := j.follow()
	if t == nil {
		return nil, 0
	}
	unwritten, mark, err := t.Cut(list, calm, upon.mark)
	if err != nil {
		if !n.warned {
			j.log.Info("epochs with what changed read all memory: what was written is not known", zap.Error(err))
		}
		n.warned = true
		return nil, 0
	}
	return unwritten, mark
}

// When huge pages are mended: so long after an epoch is committed, and while there are none to mend twice as long after each look,
// up to the last bound. Mending takes a hundredth of the time at most.
const (
	mendFirst = time.Second
	mendLast  = time.Minute
	mendPart  = 100
)

// mend makes huge pages of those that the program has written to since the last cut, until the next one. No copy of
// the memory is left that has them, too.
func (n *notes) mend() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tracker == nil || !n.tracker.Huge() {
		return
	}
	if n.ended != nil { // the last cut's: it goes on
		return
	}
	t, ended := n.tracker, make(chan struct{})
	n.ended = ended
	step := func() (more bool, took time.Duration, err error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.ended != ended {
			return false, 0, nil // the next look at the channel tells
		}
		began := time.Now()
		more, err = t.Mend()
		return more, time.Since(began), err
	}
	go func() {
		idle := mendFirst
		for wait := idle; ; {
			select {
			case <-ended:
				return
			case <-time.After(wait):
			}
			switch more, took, err := step(); {
			case err != nil:
				return
			case more:
				wait = mendPart * took
			default:
				wait, idle = idle, min(2*idle, mendLast)
			}
		}
	}()
}

// unwritten is memory that is as it was in the image that the next one is written upon.
func (j *Job) unwritten(c *capture, upon ancestor) []image.Extent {
	if upon.parent == nil || c.writes.upon != upon.epoch || len(c.writes.unwritten) == 0 {
		return nil
	}
	n := &j.notes
	n.mu.Lock()
	defer n.mu.Unlock()
	list, err := n.tracker.Fresh(c.writes.unwritten, c.writes.mark)
	if err != nil {
		j.log.Info("this epoch reads all memory: what was written is not known", zap.Error(err))
		return nil
	}
	return list
}
