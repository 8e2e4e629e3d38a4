// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// Hydra's jobs are named after a port, which is used again: what an older job of the same name left says nothing.
func TestAwaitForgetsAnOlderJob(t *testing.T) { synctest.Test(t, testAwaitForgetsAnOlderJob) }

func testAwaitForgetsAnOlderJob(t *testing.T) {
	m := newMachine("n1")
	aged := func(pid int) Claim {
		c := m.process(pid)
		c.Job, c.Age = "hydra n1:34579 0", time.Second
		return c
	}
	age := func(dir, pattern string) {
		t.Helper()
		names, _ := filepath.Glob(filepath.Join(dir, folderName, pattern))
		if len(names) != 1 {
			t.Fatalf("%s: %v", pattern, names)
		}
		st, err := os.Stat(names[0]) // the time here is not that of files
		if err != nil {
			t.Fatal(err)
		}
		before := st.ModTime().Add(-time.Hour)
		if err := os.Chtimes(names[0], before, before); err != nil {
			t.Fatal(err)
		}
	}
	const limit = 50 * time.Millisecond
	var told *ToldError

	refused := t.TempDir()
	if err := mustTake(t, refused, m.process(1)).Release(); err != nil {
		t.Fatal(err)
	}
	Refuse(refused, aged(2), errors.New("because"))
	if err := Await([]string{refused}, aged(3), limit); !errors.As(err, &told) {
		t.Errorf("our own rank 0's word: %v", err)
	}
	age(refused, "refused-*")
	if err := Await([]string{refused}, aged(4), limit); !errors.Is(err, ErrNotTaken) {
		t.Errorf("an older job's word: %v", err)
	}

	taken := t.TempDir()
	if err := mustTake(t, taken, aged(1)).Release(); err != nil {
		t.Fatal(err)
	}
	if err := Await([]string{taken}, aged(2), limit); err != nil {
		t.Errorf("our own rank 0's record: %v", err)
	}
	age(taken, "0*")
	if err := Await([]string{taken}, aged(3), limit); !errors.Is(err, ErrNotTaken) {
		t.Errorf("an older job's record: %v", err)
	}
	if names, _ := filepath.Glob(filepath.Join(taken, folderName, "*")); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
}

// Other ranks wait until rank 0 has the directory, and get its error when it cannot have it.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "ckpt")
		m := newMachine("n1")
		c := m.process(1)
		c.Job = "job 5"
		rank1 := newMachine("n2").process(1)
		rank1.Job = "job 5"
		done := make(chan error)
		go func() { done <- Await([]string{dir}, rank1, 30*time.Second) }()
		time.Sleep(10 * time.Second)
		l := mustTake(t, dir, c)
		if err := <-done; err != nil {
			t.Error(err)
		}
		ended := newMachine("n3").process(1)
		ended.Job = "job 4"
		other := t.TempDir()
		if err := mustTake(t, other, ended).Release(); err != nil {
			t.Fatal(err)
		}
		if err := Await([]string{other}, ended, time.Second); err != nil {
			t.Errorf("of rank 0 that had it and has ended: %v", err)
		}
		stranger := m.process(2)
		stranger.Job = "job 6"
		var held *HeldError
		if err := Await([]string{dir}, stranger, time.Second); !errors.As(err, &held) {
			t.Errorf("%v", err)
		}
		// Of two directories, the one that is refused decides.
		if err := Await([]string{dir, t.TempDir()}, stranger, time.Second); !errors.As(err, &held) {
			t.Errorf("%v", err)
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		if err := Await([]string{dir}, stranger, time.Second); !errors.Is(err, ErrNotTaken) {
			t.Errorf("%v", err)
		}
		// Rank 0 was refused before this rank looked, or says so a little later than this rank sees it.
		var told *ToldError
		Refuse(dir, stranger, errors.New("because"))
		if err := Await([]string{dir}, stranger, time.Hour); !errors.As(err, &told) || err.Error() != "because" {
			t.Errorf("%v", err)
		}
		l = mustTake(t, dir, c)
		go func() {
			time.Sleep(2 * time.Second)
			Refuse(dir, stranger, errors.New("rank 0 was slow"))
		}()
		if err := Await([]string{dir}, stranger, time.Second); !errors.As(err, &told) || err.Error() != "rank 0 was slow" {
			t.Errorf("%v", err)
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		mustTake(t, dir, stranger)
		if err := Await([]string{dir}, stranger, time.Second); err != nil {
			t.Error(err)
		}
	})
}

// A wrapper and the program that it starts are one job: the program takes the directory, and the wrapper has
// lost nothing. Strangers get it from neither.
func TestKin(t *testing.T) {
	dir := t.TempDir()
	m := newMachine("n1")
	wrapper, program, stranger := m.process(1), m.process(2), m.process(3)
	wrapper.Job, program.Job, stranger.Job = "job", "job", "other"
	for _, c := range []*Claim{&program, &stranger} {
		c.Kin = func(r Record) bool { return r.Job == c.Job }
	}
	l := mustTake(t, dir, wrapper)
	if _, err := Take(dir, program); !errors.Is(err, ErrKin) {
		t.Errorf("%v", err)
	}
	program.Heir, stranger.Heir = true, true
	wantHeld(t, dir, stranger, "p1", Alive)
	h := mustTake(t, dir, program)
	if err := h.Check(); err != nil || h.Token() != 2 || h.Supposed() {
		t.Errorf("token %d, %v", h.Token(), err)
	}
	if err := l.Check(); !errors.Is(err, ErrKin) {
		t.Errorf("the wrapper: %v", err)
	}
	wantHeld(t, dir, stranger, "p2", Alive)
}
