// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/libckpt/libckpt/ckpt/image"
)

const testBase = 0x100000000000

// pattern is the memory of rank in epoch, in tests: every page tells which it is.
func pattern(epoch, rank int) []byte {
	p := make([]byte, 4*image.PageSize)
	for i := range p {
		p[i] = byte(epoch*31 + rank*7 + i/image.PageSize + i)
	}
	return p
}

// commitEpoch makes an epoch with two ranks, as the orchestrator does.
func commitEpoch(s *Store, epoch, parent int) error {
	if err := s.Begin(epoch); err != nil {
		return err
	}
	m, err := writeImages(s, epoch, parent)
	if err != nil {
		return err
	}
	return s.Commit(epoch, m, nil)
}

func writeImages(s *Store, epoch, parent int) (*Manifest, error) {
	m := &Manifest{Libckpt: "test", Ranks: 2, Parent: parent, Program: "./heat", Args: []string{"a b", "<&>"},
		MPI: MPI{Name: "none", ABI: "none"}, Hosts: []string{"h"}}
	for rank := range 2 {
		data := pattern(epoch, rank)
		sum, err := image.Write(testContext, s.ImagePath(epoch, rank), image.Input{
			Meta: []byte("{}"),
			Regions: []image.Region{{Start: testBase, End: testBase + uint64(len(data)), Prot: 3,
				Flags: image.FlagAnonymous, Copied: image.CopiedAt(testBase, data)}},
		}, image.Options{})
		if err != nil {
			return nil, err
		}
		m.Images = append(m.Images, Image{Rank: rank, File: ImageName(rank), Bytes: sum.Bytes,
			Digest: sum.Digest.String(), Payload: sum.PayloadBytes})
	}
	return m, nil
}

// checkRestorable does what a restart does: opens every image and compares the memory.
func checkRestorable(t *testing.T, s *Store, epoch int) {
	t.Helper()
	if err := s.Verify(t.Context(), epoch, nil); err != nil {
		t.Fatalf("epoch %d: %v", epoch, err)
	}
	m, err := s.Manifest(epoch)
	if err != nil {
		t.Fatal(err)
	}
	for rank := range m.Images {
		f, err := s.OpenImage(m, rank)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4*image.PageSize)
		if err := f.ReadRegion(t.Context(), 0, got, 1); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, pattern(epoch, rank)) {
			t.Fatalf("epoch %d rank %d: other memory than was saved", epoch, rank)
		}
		_ = f.Close()
	}
}

func newStore(t testing.TB) *Store {
	t.Helper()
	s, err := Create(filepath.Join(t.TempDir(), "ckpt"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustCommit(t testing.TB, s *Store, epoch, parent int) {
	t.Helper()
	if err := commitEpoch(s, epoch, parent); err != nil {
		t.Fatal(err)
	}
}

func TestCommitAndList(t *testing.T) {
	s := newStore(t)
	if _, err := s.Newest(); !errors.Is(err, ErrNone) {
		t.Errorf("an empty directory: %v", err)
	}
	mustCommit(t, s, 1, 0)
	if err := s.Begin(2); err != nil {
		t.Fatal(err)
	}
	// Names that are none of ours.
	for _, name := range []string{"epoch-7", "epoch-0000008", "epoch-00000x", "notes"} {
		if err := os.Mkdir(filepath.Join(s.Dir(), name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.Epochs()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, filepath.Base(e.Dir)+map[bool]string{true: " committed", false: " incomplete"}[e.Committed()])
	}
	if diff := cmp.Diff([]string{"epoch-000001 committed", "epoch-000002 incomplete"}, got); diff != "" {
		t.Error(diff)
	}
	if n, err := s.Newest(); n != 1 || err != nil {
		t.Errorf("newest: %d, %v", n, err)
	}
	if n, err := s.Next(); n != 3 || err != nil {
		t.Errorf("next: %d, %v", n, err)
	}
	checkRestorable(t, s, 1)
	m, err := s.Manifest(1)
	if err != nil {
		t.Fatal(err)
	}
	if m.Epoch != 1 || m.Format != 1 || time.Since(m.Time) > time.Hour || m.Args[1] != "<&>" {
		t.Errorf("manifest: %+v", m)
	}
	if err := s.Begin(1); !errors.Is(err, ErrExists) {
		t.Errorf("second Begin: %v", err)
	}
	if err := s.Commit(1, m, nil); !errors.Is(err, ErrExists) {
		t.Errorf("second Commit: %v", err)
	}
	if err := s.Abandon(1); err == nil {
		t.Error("a committed epoch was abandoned")
	}
	if err := s.Abandon(2); err != nil {
		t.Error(err)
	}
	// Nobody else can read what was in the memory.
	_ = filepath.WalkDir(s.EpochDir(1), func(path string, d fs.DirEntry, err error) error {
		if st, err := d.Info(); err != nil || st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: mode %v, error %v", path, st.Mode(), err)
		}
		return err
	})
}

func TestCommitWantsItsImages(t *testing.T) {
	s := newStore(t)
	mustCommit(t, s, 1, 0)
	good, err := s.Manifest(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Begin(2); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(m *Manifest){
		"no image there": func(*Manifest) {},
		"ranks":          func(m *Manifest) { m.Ranks = 3 },
		"path":           func(m *Manifest) { m.Images[0].File = "../epoch-000001/rank-00000.ckpt" },
		"order":          func(m *Manifest) { m.Images[0], m.Images[1] = m.Images[1], m.Images[0] },
		"parent":         func(m *Manifest) { m.Parent = 2 },
		"needs itself":   func(m *Manifest) { m.Needs = []int{1, 2} },
		"needs twice":    func(m *Manifest) { m.Needs = []int{1, 1} },
		"needs nothing":  func(m *Manifest) { m.Needs = []int{0} },
		"digest":         func(m *Manifest) { m.Images[0].Digest = "" },
	} {
		m := *good
		m.Images = append([]Image(nil), good.Images...)
		spoil(&m)
		if err := s.Commit(2, &m, nil); err == nil {
			t.Errorf("%s: committed", name)
		}
	}
	if n, err := s.Newest(); n != 1 || err != nil {
		t.Errorf("newest: %d, %v", n, err)
	}
}

// TestManifestBytes flips every bit of a manifest and cuts it everywhere: nothing passes.
func TestManifestBytes(t *testing.T) {
	m := &Manifest{Format: ManifestFormat, Epoch: 3, Ranks: 1, Time: time.Unix(1, 0).UTC(),
		Images: []Image{{File: "rank-00000.ckpt", Bytes: 1, Digest: "blake3:00"}}}
	p, err := encodeManifest(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeManifest("m", p)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, got); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	var corrupt *image.CorruptError
	for i := range p {
		for bit := range 8 {
			p[i] ^= 1 << bit
			if _, err := decodeManifest("m", p); !errors.As(err, &corrupt) {
				t.Fatalf("bit %d of byte %d flipped: %v", bit, i, err)
			}
			p[i] ^= 1 << bit
		}
		if _, err := decodeManifest("m", p[:i]); !errors.As(err, &corrupt) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	p, err := encodeManifest(&Manifest{Format: 1, Epoch: 1, Ranks: 1,
		Images: []Image{{File: "a", Bytes: 1, Digest: "blake3:00"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p)
	f.Fuzz(func(t *testing.T, p []byte) {
		m, err := decodeManifest("m", p)
		if (m == nil) == (err == nil) {
			t.Fatal("neither manifest nor error, or both")
		}
		if m != nil && m.check() != nil {
			t.Fatal("an unsound manifest was accepted")
		}
	})
}

// TestDamage damages one file of the newest epoch after the other: the message names the file, and
// the epoch before still restores.
func TestDamage(t *testing.T) {
	flip := func(at int) func(p []byte) []byte {
		return func(p []byte) []byte { p[(at+len(p))%len(p)] ^= 4; return p }
	}
	for name, c := range map[string]struct {
		file  string
		spoil func(p []byte) []byte
		quick bool // Check sees it
	}{
		"image header":   {"rank-00001.ckpt", flip(20), true},
		"image page":     {"rank-00001.ckpt", flip(9000), false},
		"image footer":   {"rank-00001.ckpt", flip(-40), true},
		"image cut":      {"rank-00000.ckpt", func(p []byte) []byte { return p[:len(p)/2] }, true},
		"image empty":    {"rank-00000.ckpt", func([]byte) []byte { return nil }, true},
		"image of other": {"rank-00000.ckpt", nil, true},
		"manifest":       {"manifest.json", flip(50), true},
		"manifest cut":   {"manifest.json", func(p []byte) []byte { return p[:90] }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			mustCommit(t, s, 1, 0)
			mustCommit(t, s, 2, 0)
			path := filepath.Join(s.EpochDir(2), c.file)
			p, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if c.spoil == nil {
				if p, err = os.ReadFile(s.ImagePath(2, 1)); err != nil {
					t.Fatal(err)
				}
			} else {
				p = c.spoil(p)
			}
			if err := os.WriteFile(path, p, 0o600); err != nil {
				t.Fatal(err)
			}
			var corrupt *image.CorruptError
			if err := s.Check(t.Context(), 2); (err != nil) != c.quick {
				t.Errorf("Check: %v", err)
			}
			err = s.Verify(t.Context(), 2, nil)
			if !errors.As(err, &corrupt) || corrupt.File != path || !strings.Contains(err.Error(), path) {
				t.Errorf("Verify: %v", err)
			}
			checkRestorable(t, s, 1)
			n, err := s.Newest()
			if strings.HasPrefix(name, "manifest") {
				// Not taken in silence, but told which other epoch there is.
				if err == nil || !strings.Contains(err.Error(), "@1") {
					t.Errorf("newest: %d, %v", n, err)
				}
			} else if n != 2 || err != nil {
				t.Errorf("newest: %d, %v", n, err)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	s := newStore(t)
	mustCommit(t, s, 1, 0)
	mustCommit(t, s, 2, 0)
	if err := s.Begin(3); err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(t.TempDir(), "a@b")
	if err := os.Mkdir(odd, 0o700); err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[string]int{s.Dir(): 2, s.Dir() + "@1": 1, s.Dir() + "@2": 2, s.Dir() + "/": 2} {
		if _, n, err := Resolve(spec); n != want || err != nil {
			t.Errorf("%s: epoch %d, %v", spec, n, err)
		}
	}
	for _, spec := range []string{s.Dir() + "@3", s.Dir() + "@9", odd} {
		if _, _, err := Resolve(spec); !errors.Is(err, ErrNone) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	for _, spec := range []string{s.Dir() + "@0", s.Dir() + "@x", "@1", s.Dir() + "@99999999999"} {
		if _, _, err := Resolve(spec); !errors.Is(err, ErrSpec) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	if _, _, err := Resolve("/nowhere@1"); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNone) {
		t.Errorf("a directory that is not there: %v", err)
	}
}

func TestJob(t *testing.T) {
	s := newStore(t)
	if _, err := s.ReadJob(); !errors.Is(err, ErrNoJob) {
		t.Errorf("no job: %v", err)
	}
	for _, addr := range []string{"10.0.0.1:4000", "10.0.0.2:5000"} {
		want := Job{Format: JobFormat, Program: "./heat", Ranks: 4, PID: 77, Control: addr, Key: "secret",
			Started: time.Unix(5, 0).UTC()}
		if err := s.WriteJob(want); err != nil {
			t.Fatal(err)
		}
		got, err := s.ReadJob()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	path := filepath.Join(s.Dir(), "job.json")
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	for _, text := range []string{"", "{", `{"format":9}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ReadJob(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("job.json %q: %v", text, err)
		}
	}
	if err := s.RemoveJob(); err != nil {
		t.Error(err)
	}
	if err := s.RemoveJob(); err != nil {
		t.Error(err)
	}
}

// TestManifestOfTasks: processes with several ranks say which, and each rank is in one of them.
func TestManifestOfTasks(t *testing.T) {
	good := func() *Manifest {
		return &Manifest{Format: ManifestFormat, Epoch: 1, Ranks: 3, Processes: 2, Images: []Image{
			{Rank: 0, Tasks: []int{0, 2}, File: "a", Bytes: 1, Digest: "blake3:00"},
			{Rank: 1, Tasks: []int{1}, File: "b", Bytes: 1, Digest: "blake3:00"}}}
	}
	again := func(m *Manifest) (*Manifest, error) {
		b, err := encodeManifest(m)
		if err != nil {
			t.Fatal(err)
		}
		return decodeManifest("m", b)
	}
	m, err := again(good())
	if err != nil || m.ProcessCount() != 2 {
		t.Fatalf("%v, %+v", err, m)
	}
	if diff := cmp.Diff(good(), m); diff != "" {
		t.Error(diff)
	}
	if one := (&Manifest{Ranks: 7}).ProcessCount(); one != 7 {
		t.Errorf("a manifest of before is of %d processes", one)
	}
	for what, spoil := range map[string]func(m *Manifest){
		"twice":     func(m *Manifest) { m.Images[1].Tasks = []int{2} },
		"too many":  func(m *Manifest) { m.Images[1].Tasks = []int{3} },
		"negative":  func(m *Manifest) { m.Images[1].Tasks = []int{-1} },
		"missing":   func(m *Manifest) { m.Images[0].Tasks = []int{0} },
		"processes": func(m *Manifest) { m.Processes = 3 },
		"ranks":     func(m *Manifest) { m.Processes = 0 },
	} {
		m := good()
		spoil(m)
		if _, err := again(m); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
