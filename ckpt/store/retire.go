// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
)

// Plan of garbage collection: which epochs go, and why the others stay.
type Retirement struct {
	Remove []int
	Keep   []int
}

// PlanRetire says what Retire would do.
//
// The newest keep committed epochs stay (at least one), and every epoch that one of them was built
// upon (Manifest.Parent). Of the others go: committed epochs, and incomplete ones that are older
// than the newest committed. A newer incomplete epoch may be under way, and one whose manifest is
// damaged may be worth a look: they stay.
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
	newest := 0
	for i := len(list) - 1; i >= 0 && keep > 0; i-- {
		if !list[i].Committed() {
			continue
		}
		newest = max(newest, list[i].Number)
		keep--
		// A parent is always older, so the chain ends.
		for e := &list[i]; e != nil && e.Committed(); e = byNumber[e.Manifest.Parent] {
			stays[e.Number] = true
		}
	}
	var r Retirement
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

// Retire removes the epochs that PlanRetire names, oldest first, and returns those removed. It goes
// on after an epoch that cannot be removed, and may be called again at any time.
func (s *Store) Retire(keep int) (removed []int, err error) {
	r, err := s.PlanRetire(keep)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, n := range r.Remove {
		if err := s.remove(n, "store.retire"); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, n)
	}
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
	if err != nil {
		return err
	}
	refuse := func(why string) error { return fmt.Errorf("epoch %d in %s is kept: %s", epoch, s.dir, why) }
	found, newest := false, 0
	for i := range list {
		e := &list[i]
		found = found || e.Number == epoch
		if e.Committed() {
			newest = e.Number
			if e.Manifest.Parent == epoch {
				return refuse(fmt.Sprintf("epoch %d was built upon it", e.Number))
			}
		}
	}
	switch {
	case !found:
		return fmt.Errorf("%s: %w: epoch %d is not there", s.dir, ErrNone, epoch)
	case epoch == newest:
		return refuse("it is the newest committed one")
	}
	for i := range list {
		if e := &list[i]; e.Number == epoch && !e.Committed() && e.Err == nil && epoch > newest {
			return refuse("it may be under way (newer than every committed epoch)")
		}
	}
	return s.remove(epoch, "store.retire")
}
