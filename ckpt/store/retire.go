// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"slices"

	"github.com/libckpt/libckpt/ckpt/levels"
)

// Plan of garbage collection: which epochs go, and why the others stay.
type Retirement struct {
	Remove []int
	Keep   []int
	// NeededBy says of an epoch that stays only because others are built upon it, which is the newest of those.
	NeededBy map[int]int
}

// PlanRetire says what Retire would do.
//
// The newest keep committed epochs stay (at least one), the newest epoch of each level (ckpt/levels), and every epoch that one of them was built
// upon (Manifest.Depends), and those that these were. Of the others go: committed epochs, and incomplete ones that are older
// than the newest committed. A newer incomplete epoch may be under way, and one whose manifest is
// damaged may be worth a look: they stay. One that was found lost counts for none of the above, and stays as long as it is
// newer than one of the newest keep: most of it may still be there.
func (s *Store) PlanRetire(keep int) (Retirement, error) {
	list, err := s.Epochs()
	if err != nil {
		return Retirement{}, err
	}
	return planRetire(list, max(keep, 1)), nil
}

func planRetire(list []Epoch, keep int) Retirement {
	byNumber := map[int]*Epoch{}
	for i := range list {
		byNumber[list[i].Number] = &list[i]
	}
	stays := map[int]bool{}
	r := Retirement{NeededBy: map[int]int{}}
	var hold func(n int)
	hold = func(n int) { // what is needed is always older, so this ends
		for _, d := range byNumber[n].Manifest.Depends() {
			if e := byNumber[d]; e != nil && e.Committed() && !stays[d] {
				stays[d], r.NeededBy[d] = true, n
				hold(d)
			}
		}
	}
	newest, oldest := 0, 0 // of those that are kept by number
	for i := len(list) - 1; i >= 0 && keep > 0; i-- {
		if !list[i].Committed() || list[i].Lost() {
			continue
		}
		newest = max(newest, list[i].Number)
		keep--
		oldest = list[i].Number
		stays[list[i].Number] = true
		delete(r.NeededBy, list[i].Number)
		hold(list[i].Number)
	}
	keepLevels(list, stays, hold)
	for i := range list {
		e := &list[i]
		if e.Lost() && e.Number > oldest && !stays[e.Number] {
			stays[e.Number] = true
			hold(e.Number)
		}
	}
	for i := range list {
		e := &list[i]
		old := e.Committed() || e.Err == nil && e.Number < newest
		if old && !stays[e.Number] {
			r.Remove = append(r.Remove, e.Number)
		} else {
			r.Keep = append(r.Keep, e.Number)
		}
	}
	return r
}

// keepLevels has the newest epoch of each level stay: without it, the loss that the level is for would be the loss of
// all that was saved.
func keepLevels(list []Epoch, stays map[int]bool, hold func(epoch int)) {
	for level := levels.Partner; level <= levels.Shared; level++ {
		for i := len(list) - 1; i >= 0; i-- {
			e := &list[i]
			if !e.Committed() || e.Lost() || e.Manifest.Levels == nil && e.Manifest.Objects == nil || e.Manifest.Level < level {
				continue
			}
			stays[e.Number] = true
			hold(e.Number)
			break
		}
	}
}

// Retire removes the epochs that PlanRetire names, newest first, and returns those removed: an epoch goes before those
// it was built upon. It goes on after an epoch that cannot be removed, whose parents then stay too, and may be called
// again at any time. busy epochs are in use, and stay.
func (s *Store) Retire(keep int, busy ...int) (removed []int, err error) {
	r, err := s.PlanRetire(keep)
	if err != nil {
		return nil, err
	}
	var errs []error
	held := map[int]bool{}
	for _, n := range busy {
		held[n] = true
	}
	for i := len(r.Remove) - 1; i >= 0; i-- {
		n := r.Remove[i]
		var needs []int
		if m, err := s.Manifest(n); err == nil {
			needs = m.Depends()
		}
		if !held[n] {
			err := s.remove(n, "store.retire")
			if err == nil {
				removed = append(removed, n)
				continue
			}
			errs = append(errs, err)
		}
		for _, d := range needs {
			held[d] = true
		}
	}
	slices.Sort(removed)
	if len(r.Keep) > 0 {
		if newest, err := s.Newest(); err == nil {
			s.retireFenced(newest)
		}
	}
	return removed, errors.Join(errs...)
}

// Remove removes one epoch. It refuses the newest committed epoch, epochs that a newer one was built
// upon, and incomplete epochs newer than the newest committed one, which may be under way. A damaged
// epoch can be removed.
func (s *Store) Remove(epoch int) error {
	list, err := s.Epochs()
	if err == nil {
		err = mayRemove(list, epoch, s.dir)
	}
	if err != nil {
		return err
	}
	return s.remove(epoch, "store.retire")
}

// mayRemove says why an epoch cannot go; dir is where it is, for people.
func mayRemove(list []Epoch, epoch int, dir string) error {
	refuse := func(why string) error { return fmt.Errorf("epoch %d in %s is kept: %s", epoch, dir, why) }
	found, newest := false, 0
	for i := range list {
		e := &list[i]
		found = found || e.Number == epoch
		if e.Committed() && !e.Lost() {
			newest = e.Number
			if slices.Contains(e.Manifest.Depends(), epoch) {
				return refuse(fmt.Sprintf("epoch %d was built upon it", e.Number))
			}
		}
	}
	switch {
	case !found:
		return fmt.Errorf("%s: %w: epoch %d is not there", dir, ErrNone, epoch)
	case epoch == newest:
		return refuse("it is the newest committed one")
	}
	for i := range list {
		if e := &list[i]; e.Number == epoch && !e.Committed() && e.Err == nil && epoch > newest {
			return refuse("it may be under way (newer than every committed epoch)")
		}
	}
	return nil
}
