// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/libckpt/libckpt/internal/fault"
)

var errNotMine = errors.New("the directory is another's")

// A store whose owner has changed makes no step that others see, and undoes none.
func TestGuard(t *testing.T) {
	s := newStore(t)
	for n := 1; n <= 3; n++ {
		mustCommit(t, s, n, 0)
	}
	mine := true
	g := s.Guard(func() error {
		if mine {
			return nil
		}
		return errNotMine
	})
	if err := g.Begin(4); err != nil {
		t.Fatal(err)
	}
	mine = false
	for what, err := range map[string]error{
		"begin": g.Begin(5), "abandon": g.Abandon(4), "remove": g.Remove(1), "commit": commitIn(g, 4),
	} {
		if !errors.Is(err, errNotMine) {
			t.Errorf("%s: %v", what, err)
		}
	}
	removed, err := g.Retire(1)
	if !errors.Is(err, errNotMine) || len(removed) > 0 {
		t.Errorf("retire: %v, removed %v", err, removed)
	}
	list, err := s.Epochs()
	if err != nil || len(list) != 4 || list[3].Committed() {
		t.Errorf("%d epochs, %v", len(list), err)
	}
	for n := 1; n <= 3; n++ {
		checkRestorable(t, s, n)
	}
	mine = true
	if err := commitIn(g, 4); err != nil {
		t.Error(err)
	}
	checkRestorable(t, s, 4)
}

// commitIn writes the images of an epoch that was begun, and commits it.
func commitIn(s *Store, epoch int) error {
	m, err := writeImages(s, epoch, 0)
	if err != nil {
		return err
	}
	return s.Commit(epoch, m, nil)
}

// The former owner stands still in the last step of its commit while the directory gets another owner: when
// it goes on, its commit fails, and what the new owner has is whole.
func TestFenceInTheMiddleOfACommit(t *testing.T) {
	s := newStore(t)
	mustCommit(t, s, 1, 0)
	former := s.Guard(func() error {
		// Asked just before the rename: it still owns the directory. Then it stands still.
		if _, err := os.Stat(filepath.Join(s.EpochDir(2), ImageName(0))); err == nil {
			if err := s.Fence(); err != nil {
				t.Error(err)
			}
			if n, err := s.Next(); err != nil || n != 3 {
				t.Errorf("next epoch %d, %v: ranks of the former owner may still write to epoch 2", n, err)
			}
			mustCommit(t, s, 3, 0)
		}
		return nil
	})
	if err := former.Begin(2); err != nil {
		t.Fatal(err)
	}
	if err := commitIn(former, 2); err == nil {
		t.Error("the former owner has committed")
	}
	if n, err := s.Newest(); n != 3 || err != nil {
		t.Errorf("newest %d, %v", n, err)
	}
	checkRestorable(t, s, 1)
	checkRestorable(t, s, 3)
	if _, err := s.Retire(1); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(s.Dir())
	if err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

// Fence leaves committed epochs alone; one that fails can be called again.
func TestFenceFails(t *testing.T) {
	for n := 1; ; n++ {
		s := newStore(t)
		mustCommit(t, s, 1, 0)
		for _, e := range []int{2, 3} {
			if err := s.Begin(e); err != nil {
				t.Fatal(err)
			}
		}
		disarm, err := fault.Arm("store.fence.rename=error:" + string(rune('0'+n)))
		if err != nil {
			t.Fatal(err)
		}
		err = s.Fence()
		disarm()
		if again := s.Fence(); again != nil {
			t.Error(again)
		}
		list, lerr := s.Epochs()
		if lerr != nil || len(list) != 1 || !list[0].Committed() {
			t.Errorf("%+v, %v", list, lerr)
		}
		if next, nerr := s.Next(); next != 4 || nerr != nil {
			t.Errorf("next epoch %d, %v", next, nerr)
		}
		if err == nil {
			if n != 3 {
				t.Errorf("%d steps", n-1)
			}
			return
		}
	}
}

// Every folder above a new directory is synced after what it holds was made.
func TestCreateSyncsAllAbove(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "a", "b", "ckpt")
	var missing []bool // at each sync: is the directory still to be made?
	defer fault.Trace(func(name string) {
		if name == "store.create.syncdir" {
			_, err := os.Stat(dir)
			missing = append(missing, err != nil)
		}
	})()
	if _, err := Create(dir); err != nil {
		t.Fatal(err)
	}
	if len(missing) != 3 || !missing[0] || !missing[1] || missing[2] {
		t.Errorf("syncs %v, expected one for each of three new folders", missing)
	}
	if _, err := Create(dir); err != nil || len(missing) != 3 {
		t.Errorf("%v, syncs %v", err, missing)
	}
	file := filepath.Join(top, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "ckpt")} {
		if _, err := Create(dir); err == nil {
			t.Errorf("%s is no directory", dir)
		}
	}
}

// TestSettle: an epoch whose former owner stopped in its last step, or left a child that holds the lock, counts for
// the new owner, and in a start after a supposed death (Fence) as well.
func TestSettle(t *testing.T) {
	for name, settle := range map[string]func(*Store) error{"settle": (*Store).Settle, "fence": (*Store).Fence} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			mustCommit(t, s, 1, 0)
			mustCommit(t, s, 2, 0)
			manifest := filepath.Join(s.EpochDir(2), manifestName)
			defer lockPending(manifest)()
			if n, err := s.Newest(); err != nil || n != 1 {
				t.Errorf("while it is locked the newest epoch is %d, %v", n, err)
			}
			if err := settle(s); err != nil {
				t.Fatal(err)
			}
			if n, err := s.Newest(); err != nil || n != 2 {
				t.Errorf("the newest epoch is %d, %v", n, err)
			}
			checkRestorable(t, s, 2)
		})
	}
}
