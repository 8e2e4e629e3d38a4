// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/fault"
)

// machine plays a node: its processes live as the test says.
type machine struct {
	boot, space string
	mu          sync.Mutex
	lives       map[int]Life
}

func newMachine(boot string) *machine {
	return &machine{boot: boot, space: "pid:[1]", lives: map[int]Life{}}
}

func (m *machine) set(pid int, l Life) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lives[pid] = l
}

// process is one that runs there. A claim by it is its own.
func (m *machine) process(pid int) Claim {
	m.set(pid, Alive)
	return Claim{Program: fmt.Sprint("p", pid), Lease: time.Minute, node: &node{host: m.boot, boot: m.boot, space: m.space, pid: pid, start: 7,
		lock: flock, life: func(pid int, start uint64) Life {
			m.mu.Lock()
			defer m.mu.Unlock()
			if start != 7 {
				return Dead // the number is another process's
			}
			return m.lives[pid]
		}}}
}

func mustTake(t *testing.T, dir string, c Claim) *Lease {
	t.Helper()
	l, err := Take(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release() }) // its file is closed, whoever owns the directory then
	return l
}

func wantHeld(t *testing.T, dir string, c Claim, by string, life Life) {
	t.Helper()
	l, err := Take(dir, c)
	var held *HeldError
	if !errors.As(err, &held) {
		t.Fatalf("took it (%v), or %v; expected that %s holds it", l, err, by)
	}
	if held.Owner.Program != by || held.Life != life || !strings.Contains(err.Error(), by) || !strings.Contains(err.Error(), dir) {
		t.Errorf("%v (%+v), expected %s with life %d", err, held.Owner, by, life)
	}
}

func TestOneNode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "ckpt")
	m := newMachine("n1")
	a := mustTake(t, dir, m.process(1))
	if a.Token() != 1 || a.Supposed() || a.Check() != nil {
		t.Fatalf("token %d, %v", a.Token(), a.Check())
	}
	b := m.process(2)
	wantHeld(t, dir, b, "p1", Alive)
	m.set(1, Stopped)
	wantHeld(t, dir, b, "p1", Stopped)

	// A process that is gone has the directory no more, at once; its number may be another's.
	m.set(1, Dead)
	l := mustTake(t, dir, b)
	if l.Token() != 2 || l.Supposed() {
		t.Errorf("token %d, supposed %v", l.Token(), l.Supposed())
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	c := m.process(1)
	reused := mustTake(t, dir, c)
	reused.node.start = 8
	reused.record.Start = 8
	if err := reused.renew(); err != nil {
		t.Fatal(err)
	}
	if l = mustTake(t, dir, m.process(3)); l.Token() != 4 {
		t.Errorf("token %d", l.Token())
	}
	// The same process after an exec.
	if l = mustTake(t, dir, m.process(3)); l.Token() != 5 {
		t.Errorf("token %d", l.Token())
	}
}

// A killed process that is not gone yet, and one that needs the directory for moments, are waited for.
func TestWaitsForTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		m := newMachine("n1")
		mustTake(t, dir, m.process(1))
		m.set(1, Dying)
		go func() {
			time.Sleep(3 * time.Second)
			m.set(1, Dead)
		}()
		begun := time.Now()
		l := mustTake(t, dir, m.process(2))
		if took := time.Since(begun); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("took it after %v", took)
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		tool := m.process(3)
		tool.Brief = true
		brief := mustTake(t, dir, tool)
		go func() {
			time.Sleep(time.Second)
			if err := brief.Release(); err != nil {
				t.Error(err)
			}
		}()
		l = mustTake(t, dir, m.process(4))
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		stuck := mustTake(t, dir, m.process(5))
		m.set(5, Dying)
		begun = time.Now()
		wantHeld(t, dir, m.process(6), "p5", Dying)
		if took := time.Since(begun); took < patience {
			t.Errorf("gave up after %v", took)
		}
		if err := stuck.Release(); err != nil {
			t.Fatal(err)
		}
	})
}

// In another container of the same machine, process numbers mean nothing and the lock tells.
func TestContainers(t *testing.T) {
	dir := t.TempDir()
	one, two := newMachine("n1"), newMachine("n1")
	two.space = "pid:[2]"
	a := mustTake(t, dir, one.process(1))
	if !a.record.Locked {
		t.Skip("the file system of the temporary folder has no locks")
	}
	wantHeld(t, dir, two.process(1), "p1", Alive)
	_ = a.file.Close() // the process ends
	if l := mustTake(t, dir, two.process(1)); l.Token() != 2 || l.Supposed() {
		t.Errorf("token %d, supposed %v", l.Token(), l.Supposed())
	}
}

// Between nodes only the beat counts: an owner that renews, however slowly, keeps the directory; one that
// does not loses it after its lease, not before, and never owns it again.
func TestTwoNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		c := newMachine("n1").process(1)
		c.Lease = 40 * time.Second
		a := mustTake(t, dir, c)
		stop := make(chan struct{})
		go func() { // renewals that take nearly as long as the lease
			for {
				select {
				case <-stop:
					return
				case <-time.After(39 * time.Second):
				}
				if err := a.Mark(Running); err != nil {
					t.Error(err)
				}
			}
		}()
		other := newMachine("n2")
		for pid := range 3 {
			wantHeld(t, dir, other.process(10+pid), "p1", Unknown)
		}
		close(stop)
		synctest.Wait()

		var told []time.Duration
		b := other.process(2)
		b.Waiting = func(r Record, d time.Duration) { told = append(told, d) }
		begun := time.Now()
		l := mustTake(t, dir, b)
		if took := time.Since(begun); took < 40*time.Second || took > 45*time.Second {
			t.Errorf("took it after %v, the lease is 40 s", took)
		}
		if len(told) != 1 || told[0] != 40*time.Second || !l.Supposed() || l.Before().Program != "p1" {
			t.Errorf("told %v, supposed %v, before %+v", told, l.Supposed(), l.Before())
		}
		// The former owner wakes up.
		lost := make(chan error, 2)
		a.Keep(Keeper{Lost: func(err error) { lost <- err }})
		time.Sleep(time.Minute)
		if len(lost) != 1 {
			t.Fatalf("said %d times that it is lost", len(lost))
		}
		var e *LostError
		if err := <-lost; !errors.As(err, &e) || !strings.Contains(err.Error(), "p2") || !strings.Contains(err.Error(), "40s") {
			t.Errorf("%v", err)
		}
		for range 2 {
			if err := a.Check(); !errors.As(err, &e) {
				t.Errorf("the former owner: %v", err)
			}
			if err := a.Release(); err != nil {
				t.Error(err)
			}
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		if err := a.Check(); !errors.As(err, &e) {
			t.Errorf("the former owner, after the new one gave it back: %v", err)
		}
	})
}

// An operator who knows better, and an owner that answers otherwise.
func TestSilentOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		mustTake(t, dir, newMachine("n1").process(1))
		c := newMachine("n2").process(2)
		asked := 0
		c.Answers = func(r Record) bool { asked++; return r.Program == "p1" }
		wantHeld(t, dir, c, "p1", Unknown)
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		c.Stop = func() error { return errors.New("enough") }
		if _, err := Take(dir, c); err == nil || !strings.Contains(err.Error(), "enough") {
			t.Errorf("%v", err)
		}
		begun := time.Now()
		c.Stop, c.Now = nil, true
		if l := mustTake(t, dir, c); l.Token() != 2 || !l.Supposed() || time.Since(begun) != 0 {
			t.Errorf("token %d after %v", l.Token(), time.Since(begun))
		}
	})
}

// Who looked, stood still for longer than the lease, and looks again, must see the beat stand still first.
func TestWatcherThatWasStopped(t *testing.T) {
	now := time.Now()
	var w watch
	s := func(beat string) *seen { return &seen{Record: Record{Token: 1}, raw: []byte(beat)} }
	w.idle(s("a"), now, now.Add(time.Second))
	// Stopped between reading the clock and the record: the time before the reading does not count.
	if still, changed := w.idle(s("a"), now.Add(2*time.Second), now.Add(time.Hour)); still != time.Second || changed {
		t.Errorf("%v, %v", still, changed)
	}
	if still, changed := w.idle(s("b"), now.Add(time.Hour), now.Add(2*time.Hour)); still != 0 || !changed {
		t.Errorf("%v, %v", still, changed)
	}
	if still, _ := w.idle(s("b"), now.Add(3*time.Hour), now.Add(4*time.Hour)); still != time.Hour {
		t.Errorf("%v", still)
	}
}

// Of all who want it at once one gets it, whatever was there before, also when owners come and go.
func TestRace(t *testing.T) {
	m := newMachine("n1")
	for round := range 20 {
		dir := filepath.Join(t.TempDir(), "ckpt")
		if round%2 == 1 {
			mustTake(t, dir, m.process(99))
			m.set(99, Dead)
		}
		var got atomic.Int32
		var wg sync.WaitGroup
		for pid := 1; pid <= 12; pid++ {
			c := m.process(pid)
			wg.Go(func() {
				l, err := Take(dir, c)
				var held *HeldError
				switch {
				case err == nil:
					got.Add(1)
					if err := l.Check(); err != nil {
						t.Error(err)
					}
				case !errors.As(err, &held):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got.Load() != 1 {
			t.Fatalf("round %d: %d of 12 own it", round, got.Load())
		}
	}
	// Never two at a time.
	dir := filepath.Join(t.TempDir(), "ckpt")
	var inside, times atomic.Int32
	var wg sync.WaitGroup
	for pid := 1; pid <= 8; pid++ {
		c := m.process(pid)
		wg.Go(func() {
			for range 40 {
				l, err := Take(dir, c)
				if err != nil {
					continue
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d own it at a time", n)
				}
				times.Add(1)
				inside.Add(-1)
				if times.Load()%3 == 0 {
					err = l.Vanish()
				} else {
					err = l.Release()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if times.Load() == 0 {
		t.Error("nobody ever owned it")
	}
}

// Records that somebody deletes are made again, with a greater token, as long as nobody else has one.
func TestDeleted(t *testing.T) {
	dir := t.TempDir()
	m := newMachine("n1")
	l := mustTake(t, dir, m.process(1))
	for i, path := range []string{l.path, l.folder} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := l.Check(); err != nil || l.Token() != uint64(i+2) {
			t.Fatalf("token %d, %v", l.Token(), err)
		}
		wantHeld(t, dir, m.process(2), "p1", Alive)
	}
	// All is gone: no directory is made behind the operator's back, and nothing is lost.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	var lost *LostError
	if err := l.Check(); err == nil || errors.As(err, &lost) {
		t.Errorf("%v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	// Deleted and taken by another.
	if err := os.RemoveAll(l.folder); err != nil {
		t.Fatal(err)
	}
	mustTake(t, dir, m.process(3))
	if err := l.Check(); err == nil {
		t.Error("two owners")
	}
}

// A damaged record is watched like that of an unknown node; something else in its place is named.
func TestDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		m := newMachine("n1")
		l := mustTake(t, dir, m.process(1))
		if err := os.WriteFile(l.path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if l := mustTake(t, dir, m.process(2)); l.Token() != 2 || time.Since(begun) < Default {
			t.Errorf("token %d after %v", l.Token(), time.Since(begun))
		}
		if err := l.Check(); err == nil {
			t.Error("two owners")
		}
		if err := unix.Mkfifo(filepath.Join(dir, folderName, nameOf(3)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Take(dir, m.process(3)); err == nil || !strings.Contains(err.Error(), nameOf(3)) {
			t.Errorf("%v", err)
		}
	})
}

// Every step fails in turn: then the directory is nobody's, and can be taken.
func TestFaults(t *testing.T) {
	m := newMachine("n1")
	for n := 1; ; n++ {
		dir := filepath.Join(t.TempDir(), "ckpt")
		disarm, err := fault.Arm(fmt.Sprintf("*=error:%d", n))
		if err != nil {
			t.Fatal(err)
		}
		l, err := Take(dir, m.process(1))
		disarm()
		if err == nil {
			if n < 6 {
				t.Errorf("only %d steps", n-1)
			}
			if err := l.Check(); err != nil {
				t.Error(err)
			}
			break
		}
		if !errors.Is(err, fault.ErrInjected) {
			t.Errorf("step %d: %v", n, err)
		}
		second := mustTake(t, dir, m.process(2))
		if err := second.Check(); err != nil {
			t.Errorf("step %d: %v", n, err)
		}
		if _, other, _ := tokens(second.folder); len(other) > 0 {
			t.Errorf("step %d left %v", n, other)
		}
	}
	// A renewal that fails loses nothing; it is told once in a row.
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := mustTake(t, dir, m.process(1))
		disarm, err := fault.Arm("lease.write=error")
		if err != nil {
			t.Fatal(err)
		}
		var troubles, beats atomic.Int32
		l.Keep(Keeper{Trouble: func(error) { troubles.Add(1) }, Beat: func() { beats.Add(1) },
			Lost: func(err error) { t.Error(err) }})
		time.Sleep(30 * time.Second)
		disarm()
		if troubles.Load() != 1 || beats.Load() != 0 {
			t.Errorf("told %d times, %d beats", troubles.Load(), beats.Load())
		}
		time.Sleep(10 * time.Second)
		if beats.Load() < 4 {
			t.Errorf("%d beats in 10 s", beats.Load())
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	})
}

// Crashes at every step, as of a power cut: the next process takes the directory at once.
func TestCrashes(t *testing.T) {
	if dir := os.Getenv("LEASE_TEST_DIR"); dir != "" {
		if _, err := Take(dir, Claim{Program: "crasher"}); err != nil {
			t.Fatal(err)
		}
		os.Exit(0) // without Release
	}
	for n := 1; ; n++ {
		dir := filepath.Join(t.TempDir(), "ckpt")
		cmd := exec.Command(os.Args[0], "-test.run=^TestCrashes$")
		cmd.Env = append(os.Environ(), "LEASE_TEST_DIR="+dir, fmt.Sprintf("CKPT_FAULT=*=kill:%d", n))
		err := cmd.Run()
		begun := time.Now()
		l := mustTake(t, dir, Claim{Program: "next"})
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("step %d: taken after %v", n, took)
		}
		if err := l.Check(); err != nil {
			t.Errorf("step %d: %v", n, err)
		}
		if err == nil {
			break // all steps were made
		}
	}
}

func TestVanish(t *testing.T) {
	dir := t.TempDir()
	m := newMachine("n1")
	l := mustTake(t, dir, m.process(1))
	if err := l.Vanish(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if l = mustTake(t, dir, m.process(2)); l.Token() != 1 {
		t.Errorf("token %d", l.Token())
	}
}

// What Look and Watch tell of an owner, from its own node and from another.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		m, far := newMachine("n1"), newMachine("n2").process(9).node
		near := m.process(8).node
		if s, err := look(dir, near); err != nil || s.Owned {
			t.Errorf("%+v, %v", s, err)
		}
		l := mustTake(t, dir, m.process(1))
		l.Keep(Keeper{})
		if s, err := look(dir, near); err != nil || !s.Owned || s.Life != Alive || s.Owner.Program != "p1" {
			t.Errorf("%+v, %v", s, err)
		}
		if s, err := look(dir, far); err != nil || s.Life != Unknown {
			t.Errorf("%+v, %v", s, err)
		}
		if s, err := watchFor(dir, far); err != nil || s.Life != Alive {
			t.Errorf("%+v, %v", s, err)
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		if s, err := watchFor(dir, far); err != nil || s.Owned {
			t.Errorf("%+v, %v", s, err)
		}
		mustTake(t, dir, m.process(2)) // which does not renew
		if s, err := watchFor(dir, far); err != nil || s.Life != Unknown || !s.Owned {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// What the kernel tells of real processes.
func TestProcessLife(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	st, err := readStat(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string, is func(Life) bool) {
		t.Helper()
		end := time.Now().Add(time.Minute)
		for !is(processLife(pid, st.start)) {
			if time.Now().After(end) {
				t.Fatalf("%s: life %d", what, processLife(pid, st.start))
			}
			time.Sleep(time.Millisecond)
		}
	}
	want("runs", func(l Life) bool { return l == Alive })
	if l := processLife(pid, st.start+1); l != Dead {
		t.Errorf("a number that is used again: %d", l)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	want("stopped", func(l Life) bool { return l == Stopped })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	want("killed, and nobody has waited for it", func(l Life) bool { return l == Dead })
}
