// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/internal/fault"
)

// commitUpon makes an epoch with one rank upon another; page number epoch of its memory is new.
func commitUpon(t *testing.T, s *Store, epoch, parent int) {
	t.Helper()
	if err := s.Begin(epoch); err != nil {
		t.Fatal(err)
	}
	in := image.Input{Meta: []byte("{}"), Regions: []image.Region{{Start: testBase, End: testBase + 8*image.PageSize,
		Prot: 3, Flags: image.FlagAnonymous, Copied: image.CopiedAt(testBase, bytes.Repeat([]byte{1}, 8*image.PageSize))}}}
	data := in.Regions[0].Copied[0].Data
	if parent != 0 {
		f, err := image.Open(s.ImagePath(parent, 0))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if in.Parent, err = f.AsParent(); err != nil {
			t.Fatal(err)
		}
		if err := f.ReadRegion(t.Context(), 0, data, 1); err != nil {
			t.Fatal(err)
		}
	}
	data[epoch%8*image.PageSize] = byte(epoch)
	sum, err := image.Write(t.Context(), s.ImagePath(epoch, 0), in, image.Options{Chunk: image.PageSize, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	m := &Manifest{Ranks: 1, Parent: parent, Images: []Image{{File: ImageName(0), Bytes: sum.Bytes, Digest: sum.Digest.String(),
		Payload: sum.PayloadBytes, Shared: sum.SharedBytes}}}
	for _, source := range sum.Sources {
		n, rank, err := EpochOf(source)
		if err != nil {
			t.Fatal(err)
		}
		if rank != 0 {
			t.Fatalf("%s is of rank %d", source.Name, rank)
		}
		m.Needs = append(m.Needs, n)
	}
	slices.Sort(m.Needs)
	if err := s.Commit(epoch, m, nil); err != nil {
		t.Fatal(err)
	}
}

// TestNeededStay: whatever is kept can be restored after old epochs are removed, and what nobody needs goes.
func TestNeededStay(t *testing.T) {
	s := newStore(t)
	for n, parent := range []int{0, 0, 1, 2, 3, 0, 5} {
		if n > 0 {
			commitUpon(t, s, n, parent)
		}
	}
	plan, err := s.PlanRetire(3)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Remove) != 0 || plan.NeededBy[3] != 4 || plan.NeededBy[2] == 0 || plan.NeededBy[1] == 0 || plan.NeededBy[5] != 0 {
		t.Errorf("keeping 3 of %+v", plan)
	}
	for _, n := range []int{1, 2, 3, 5} {
		if err := s.Remove(n); err == nil || !strings.Contains(err.Error(), "built upon it") {
			t.Errorf("epoch %d: %v", n, err)
		}
	}
	for _, n := range []int{1, 2, 3, 4, 5, 6} {
		if err := s.Verify(t.Context(), n, nil); err != nil {
			t.Error(err)
		}
	}
	removed, err := s.Retire(2)
	if err != nil || fmt.Sprint(removed) != "[1 2 3 4]" {
		t.Errorf("removed %v, %v", removed, err)
	}
	if err := s.Verify(t.Context(), 6, nil); err != nil {
		t.Error(err)
	}
}

// TestRetireStops: when an epoch cannot be removed, those that it was built upon stay too. After a removal that stopped
// in the middle, every epoch that is left is whole.
func TestRetireStops(t *testing.T) {
	s := newStore(t)
	for n, parent := range []int{0, 0, 1, 2, 0} {
		if n > 0 {
			commitUpon(t, s, n, parent)
		}
	}
	disarm, err := fault.Arm("store.retire.manifest=error:1")
	if err != nil {
		t.Fatal(err)
	}
	defer disarm()
	removed, err := s.Retire(1)
	if err == nil || len(removed) != 0 {
		t.Errorf("removed %v, %v", removed, err)
	}
	for _, n := range []int{1, 2, 3, 4} {
		if err := s.Verify(t.Context(), n, nil); err != nil {
			t.Error(err)
		}
	}
	if removed, err = s.Retire(1); err != nil || fmt.Sprint(removed) != "[1 2 3]" {
		t.Errorf("removed %v, %v", removed, err)
	}
}

// TestWhole: an epoch of whose files one is lost, its own or one that it needs, is not whole, and the newest that is
// whole is found behind it.
func TestWhole(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(s *Store) error
		want int // the newest whole one before 9
	}{
		"nothing":         {func(*Store) error { return nil }, 5},
		"its own image":   {func(s *Store) error { return os.Remove(s.ImagePath(5, 0)) }, 4},
		"a parent":        {func(s *Store) error { return os.RemoveAll(s.EpochDir(4)) }, 3},
		"a parent's end":  {func(s *Store) error { return os.Truncate(s.ImagePath(3, 0), 100) }, 2},
		"what all need":   {func(s *Store) error { return os.Remove(s.ImagePath(2, 0)) }, 1},
		"a parent's list": {func(s *Store) error { return os.Truncate(s.EpochDir(3)+"/"+manifestName, 20) }, 2},
	} {
		s := newStore(t)
		for n, parent := range []int{0, 0, 0, 2, 3, 4} {
			if n > 0 {
				commitUpon(t, s, n, parent)
			}
		}
		if err := c.lose(s); err != nil {
			t.Fatal(err)
		}
		m, err := s.NewestWhole(9, 0)
		if err != nil || m.Epoch != c.want {
			t.Errorf("%s: %v, %v", name, m, err)
			continue
		}
		if err := s.Verify(t.Context(), m.Epoch, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for n := c.want + 1; n <= 5; n++ {
			if m, err := s.Manifest(n); err == nil && s.Whole(m) == nil {
				t.Errorf("%s: epoch %d counts as whole", name, n)
			}
		}
	}
	s := newStore(t)
	for n, parent := range []int{0, 0, 0, 2, 0, 3} {
		if n > 0 {
			commitUpon(t, s, n, parent)
		}
	}
	if m, err := s.NewestWhole(6, s.EpochAt(s.ImagePath(2, 0))); err != nil || m.Epoch != 4 {
		t.Errorf("epochs 2, 3 and 5 have a damaged page: %v, %v", m, err)
	}
	if _, err := newStore(t).NewestWhole(9, 0); !errors.Is(err, ErrNone) {
		t.Errorf("an empty directory: %v", err)
	}
}

// TestNewestSound: damaged manifests and epochs that were found lost are passed over and named; what another libckpt has
// written, or another user, is not passed over. Lost epochs stay beside those that are kept, and no longer.
func TestNewestSound(t *testing.T) {
	s := newStore(t)
	for n := 1; n <= 5; n++ {
		mustCommit(t, s, n, 0)
	}
	want := func(epoch int, passed ...int) {
		t.Helper()
		n, list, err := s.NewestSound()
		var got []int
		for _, e := range list {
			got = append(got, e.Number)
		}
		if n != epoch || fmt.Sprint(got) != fmt.Sprint(passed) || (err == nil) != (epoch != 0) {
			t.Errorf("epoch %d past %v, want %d past %v (%v)", n, got, epoch, passed, err)
		}
	}
	lose := func(n int, why string) {
		t.Helper()
		if err := s.Change(n, func(m *Manifest) error { m.SetLost(why); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	want(5)
	lose(4, "rank 0 has rotted")
	want(5)
	if r, err := s.PlanRetire(2); err != nil || fmt.Sprint(r.Keep) != "[3 4 5]" {
		t.Errorf("kept of the newest two and a lost one between: %+v, %v", r, err)
	}
	if r, err := s.PlanRetire(1); err != nil || fmt.Sprint(r.Keep) != "[5]" {
		t.Errorf("kept of the newest: %+v, %v", r, err)
	}
	if err := os.Truncate(filepath.Join(s.EpochDir(5), manifestName), 40); err != nil {
		t.Fatal(err)
	}
	want(3, 5, 4)
	if r, err := s.PlanRetire(1); err != nil || fmt.Sprint(r.Keep) != "[3 4 5]" {
		t.Errorf("kept of the newest good one: %+v, %v", r, err)
	}
	lose(4, "")
	want(4, 5)
	if n, err := s.Newest(); n != 0 || err == nil || !strings.Contains(err.Error(), "@4") {
		t.Errorf("newest: %d, %v", n, err)
	}
	for n := 1; n <= 4; n++ {
		lose(n, fmt.Sprintf("%d is gone", n))
	}
	want(0, 5, 4, 3, 2, 1)
	if err := os.RemoveAll(s.EpochDir(5)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.NewestSound(); !errors.Is(err, ErrLost) || errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "4 is gone") {
		t.Errorf("all are lost: %v", err)
	}
	lose(1, "")
	raw, err := os.ReadFile(filepath.Join(s.EpochDir(1), manifestName))
	if err != nil {
		t.Fatal(err)
	}
	mustCommit(t, s, 6, 0)
	later := strings.Replace(string(raw), `"format": 1`, `"format": 2`, 1)
	at := len(later) - 64 - len(digestTail)
	d := blake3.Sum256([]byte(later[:at]))
	later = later[:at] + hex.EncodeToString(d[:]) + digestTail
	if err := os.WriteFile(filepath.Join(s.EpochDir(6), manifestName), []byte(later), 0o600); err != nil {
		t.Fatal(err)
	}
	var version *image.VersionError
	if _, _, err := s.NewestSound(); !errors.As(err, &version) {
		t.Errorf("an epoch of a later format: %v", err)
	}
}
