// SPDX-License-Identifier: Apache-2.0

package meeting

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"log/slog"

	"github.com/libckpt/libckpt/ckpt/launch"
)

// come begins to find a meeting without a number, or with one, that no launcher has given.
func come(t *testing.T, dir string, rank, ranks int, job string, patience time.Duration, first func() error) <-chan found {
	t.Helper()
	ctx := within(t)
	out := make(chan found, 1)
	go func() {
		m, err := Find(ctx, Options{Getenv: env{}.get, Dir: dir, Patience: patience, First: first, Log: slog.New(listener(nil)),
			Numbers: &launch.Numbers{Rank: rank, Ranks: ranks, From: "test", Job: job}})
		if m != nil {
			t.Cleanup(func() { _ = m.Close() })
		}
		out <- found{m, err}
	}()
	return out
}

func noLock(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, lockName)); err == nil {
		t.Error("the lock is left behind")
	}
}

// Who comes gets a rank of its own, whoever is first, though all come at once.
func TestOrderOfArrival(t *testing.T) {
	for _, stale := range []bool{false, true} {
		dir := t.TempDir()
		if stale {
			n := note{Format: noteFormat, Host: "gone", PID: 7, Addresses: []string{"127.0.0.1:1"}, Key: newKey()}
			if err := n.write(dir); err != nil {
				t.Fatal(err)
			}
		}
		const n = 5
		var all []<-chan found
		for range n {
			all = append(all, come(t, dir, -1, n, "", soon, nil))
		}
		byRank := make([]Meeting, n)
		for _, m := range members(t, all) {
			if m.Ranks() != n || byRank[m.Rank()] != nil {
				t.Fatalf("rank %d of %d", m.Rank(), m.Ranks())
			}
			byRank[m.Rank()] = m
		}
		wantGather(t, byRank)
		noNote(t, dir)
		noLock(t, dir)
	}
}

// The first one asks whether it may open a meeting; nobody else does.
func TestFirst(t *testing.T) {
	dir, why := t.TempDir(), errors.New("the directory is another job's")
	one := <-come(t, dir, -1, 2, "", soon, func() error { return why })
	if !errors.Is(one.err, why) {
		t.Errorf("%v", one.err)
	}
	noNote(t, dir)
	asked := make(chan struct{}, 2)
	first := func() error { asked <- struct{}{}; return nil }
	wantGather(t, members(t, inOrder(come(t, dir, -1, 2, "", soon, first), come(t, dir, -1, 2, "", soon, first))))
	if len(asked) != 1 {
		t.Errorf("%d were asked", len(asked))
	}
}

// inOrder is the two, rank 0 first.
func inOrder(a, b <-chan found) []<-chan found {
	x, y := <-a, <-b
	if x.m != nil && x.m.Rank() == 1 {
		x, y = y, x
	}
	one, two := make(chan found, 1), make(chan found, 1)
	one <- x
	two <- y
	return []<-chan found{one, two}
}

func TestNumberAndNone(t *testing.T) {
	t.Run("a number among none", func(t *testing.T) {
		dir := t.TempDir()
		zero := come(t, dir, -1, 2, "", soon, nil)
		awaitNote(t, dir, anyNote)
		wantError(t, "numbered", (<-come(t, dir, 1, 2, "", soon, nil)).err, "says that it is rank 1", "all of them one, or none")
		wantGather(t, members(t, inOrder(zero, come(t, dir, -1, 2, "", soon, nil))))
	})
	t.Run("none among numbers", func(t *testing.T) {
		dir := t.TempDir()
		zero := come(t, dir, 0, 2, "", soon, nil)
		awaitNote(t, dir, anyNote)
		wantError(t, "without", (<-come(t, dir, -1, 2, "", soon, nil)).err, "without the number of a rank", "all of them one, or none")
		wantGather(t, members(t, inOrder(zero, come(t, dir, 1, 2, "", soon, nil))))
	})
}

func TestArrivalAbsent(t *testing.T) {
	dir := t.TempDir()
	one := <-come(t, dir, -1, 3, "", time.Millisecond, nil)
	wantError(t, "the first", one.err, "ranks 1 and 2 have not come within 0.001 s")
	noNote(t, dir)
	noLock(t, dir)
	zero := come(t, dir, -1, 2, "", soon, nil)
	awaitNote(t, dir, anyNote)
	other := <-come(t, dir, -1, 3, "", soon, nil)
	wantError(t, "another number", other.err, "was told of 3 ranks")
	wantError(t, "the first", (<-zero).err, "was told of 3 ranks")
}

// One too many is told so, as long as the meeting lasts; jobs with names wait for each other.
func TestArrivalsOfTwoJobs(t *testing.T) {
	dir := t.TempDir()
	h := &host{arrivals: true, me: hello{Rank: 0, Ranks: 2}, came: []*visitor{nil, {}}, missing: 0}
	answer, err := h.admit(&visitor{hello: hello{Rank: -1, Ranks: 2, PID: 5, Host: "h"}})
	if err != nil || answer.kind != frameFault || !strings.Contains(string(answer.data), "one too many") {
		t.Errorf("%q %s, %v", answer.kind, answer.data, err)
	}
	zero := come(t, dir, -1, 2, "a", soon, nil)
	awaitNote(t, dir, anyNote)
	b := []<-chan found{come(t, dir, -1, 2, "b", soon, nil), come(t, dir, -1, 2, "b", soon, nil)}
	wantGather(t, members(t, inOrder(zero, come(t, dir, -1, 2, "a", soon, nil))))
	wantGather(t, members(t, inOrder(b[0], b[1])))
}
