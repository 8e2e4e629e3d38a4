// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/libckpt/libckpt/internal/fault"
)

// testContext is for code that also runs in a process without a testing.T.
var testContext = context.Background()

// run is a life of the store after epoch 1: another epoch, garbage collection, the job's record.
func run(s *Store) error {
	if err := s.WriteJob(Job{Program: "new"}); err != nil {
		return err
	}
	epoch, err := s.Next()
	if err != nil {
		return err
	}
	if err := commitEpoch(s, epoch, 0); err != nil {
		return errors.Join(err, s.Abandon(epoch))
	}
	if _, err := s.Retire(1); err != nil {
		return err
	}
	return nil
}

// visits lists the fault points that run passes, in order but for those that it passes at once.
func visits(t *testing.T) []string {
	t.Helper()
	s := newStore(t)
	mustCommit(t, s, 1, 0)
	var list []string
	stop := fault.Trace(func(name string) { list = append(list, name) })
	err := run(s)
	stop()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// checkSurvived: whatever happened, there is a newest epoch and it restores; and the next try works.
func checkSurvived(t *testing.T, s *Store) {
	t.Helper()
	n, err := s.Newest()
	if err != nil {
		t.Fatal(err)
	}
	checkRestorable(t, s, n)
	if j, err := s.ReadJob(); err != nil || j.Program != "old" && j.Program != "new" {
		t.Errorf("job record: %+v, %v", j, err)
	}
	// Epochs that count are whole, all of them, also those that were about to go.
	list, err := s.Epochs()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Err != nil {
			t.Errorf("epoch %d: %v", e.Number, e.Err)
		}
		if e.Committed() {
			checkRestorable(t, s, e.Number)
		}
	}
	if err := run(s); err != nil {
		t.Fatalf("the next epoch: %v", err)
	}
	after, err := s.Newest()
	if err != nil || after <= n {
		t.Errorf("the next epoch is %d after %d, %v", after, n, err)
	}
	list, err = s.Epochs()
	if err != nil || len(list) != 1 {
		t.Errorf("garbage collection left %d epochs, %v", len(list), err)
	}
}

func prepared(t *testing.T) *Store {
	t.Helper()
	s := newStore(t)
	if err := s.WriteJob(Job{Program: "old"}); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, s, 1, 0)
	return s
}

// TestFailEveryStep fails the n-th step for n = 1, 2, 3 ... until nothing is left to fail.
func TestFailEveryStep(t *testing.T) {
	for _, act := range []string{"error", "enospc"} {
		n := 1
		for ; ; n++ {
			s := prepared(t)
			disarm, err := fault.Arm(fmt.Sprintf("*=%s:%d", act, n))
			if err != nil {
				t.Fatal(err)
			}
			err = run(s)
			disarm()
			if err == nil {
				break
			}
			if act == "enospc" && !errors.Is(err, syscall.ENOSPC) || act == "error" && !errors.Is(err, fault.ErrInjected) {
				t.Errorf("step %d: the error hides its cause: %v", n, err)
			}
			checkSurvived(t, s)
		}
		if want := len(visits(t)) + 1; n != want {
			t.Errorf("%s: it succeeded at n=%d, but there are %d steps", act, n, want-1)
		}
	}
}

// TestEveryPoint arms every point for good: not even cleaning up works there.
func TestEveryPoint(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range visits(t) {
		seen[name] = true
	}
	for _, name := range []string{"store.begin.mkdir", "store.commit.rename", "store.commit.syncdir",
		"store.retire.manifest", "image.write.rename", "store.job.rename"} {
		if !seen[name] {
			t.Errorf("the path has no point %s any more", name)
		}
	}
	for name := range seen {
		s := prepared(t)
		disarm, err := fault.Arm(name + "=error")
		if err != nil {
			t.Fatal(err)
		}
		err = run(s)
		disarm()
		if !errors.Is(err, fault.ErrInjected) {
			t.Errorf("%s: %v", name, err)
		}
		checkSurvived(t, s)
	}
}

// TestSeenWhenItLasts: nobody sees an epoch before its manifest is on stable storage under its name, so that one
// for which this fails was never there; and whoever looks meanwhile takes the one before.
func TestSeenWhenItLasts(t *testing.T) {
	for _, name := range []string{"", "store.commit.syncmanifest"} {
		s := prepared(t)
		looks := 0
		look := func(step string) {
			if step != "store.commit.syncmanifest" {
				return
			}
			looks++
			if _, err := os.Lstat(filepath.Join(s.EpochDir(2), manifestName)); err != nil {
				t.Errorf("%s: the manifest has no name yet: %v", step, err) // or this tests nothing
			}
			if n, err := s.Newest(); err != nil || n != 1 {
				t.Errorf("%s: the newest epoch is %d, %v", step, n, err)
			}
			if _, err := s.Manifest(2); !errors.Is(err, ErrNone) {
				t.Errorf("%s: epoch 2: %v, want ErrNone", step, err)
			}
			if list, err := s.Epochs(); err != nil || len(list) != 2 || list[1].Committed() {
				t.Errorf("%s: %+v, %v", step, list, err)
			}
		}
		if name == "" {
			stop := fault.Trace(look)
			err := commitEpoch(s, 2, 0)
			stop()
			if err != nil || looks != 1 {
				t.Errorf("%v, %d looks", err, looks)
			}
			if n, err := s.Newest(); err != nil || n != 2 {
				t.Errorf("the newest epoch is %d, %v", n, err)
			}
			checkRestorable(t, s, 2)
			continue
		}
		disarm, err := fault.Arm(name + "=error")
		if err != nil {
			t.Fatal(err)
		}
		err = commitEpoch(s, 2, 0)
		disarm()
		if !errors.Is(err, fault.ErrInjected) {
			t.Errorf("%s: %v", name, err)
		}
		if n, err := s.Newest(); err != nil || n != 1 {
			t.Errorf("after %s: the newest epoch is %d, %v", name, n, err)
		}
		checkSurvived(t, s)
	}
}

// TestKillEveryStep kills a process at the n-th step, for every n.
func TestKillEveryStep(t *testing.T) {
	if dir := os.Getenv("STORE_TEST_DIR"); dir != "" { // the process to be killed
		fault.ArmFromEnvironment()
		s, err := Open(dir)
		if err == nil {
			err = run(s)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(9)
		}
		os.Exit(0)
	}
	steps := len(visits(t))
	for n := 1; n <= steps+1; n++ {
		s := prepared(t)
		cmd := exec.Command(os.Args[0], "-test.run=^TestKillEveryStep$")
		cmd.Env = append(os.Environ(), "STORE_TEST_DIR="+s.Dir(), fmt.Sprintf("%s=*=kill:%d", fault.EnvName, n))
		out, err := cmd.CombinedOutput()
		if n == steps+1 {
			if err != nil {
				t.Errorf("nothing left to fail, but: %v\n%s", err, out)
			}
			break
		}
		if err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("step %d: the process was not killed: %v\n%s", n, err, out)
		}
		checkSurvived(t, s)
	}
	t.Logf("killed at %d steps, restored after each", steps)
}

func TestPlanRetire(t *testing.T) {
	committed := func(n, parent int) Epoch { return Epoch{Number: n, Manifest: &Manifest{Epoch: n, Parent: parent}} }
	incomplete := func(n int) Epoch { return Epoch{Number: n} }
	damaged := func(n int) Epoch { return Epoch{Number: n, Err: errors.New("damaged")} }
	for _, c := range []struct {
		name string
		list []Epoch
		keep int
		want []int
	}{
		{"nothing there", nil, 2, nil},
		{"newest stays", []Epoch{committed(1, 0), committed(2, 0)}, 1, []int{1}},
		{"two stay", []Epoch{committed(1, 0), committed(2, 0), committed(3, 0)}, 2, []int{1}},
		{"parents stay", []Epoch{committed(1, 0), committed(2, 0), committed(3, 1), committed(4, 3)}, 1, []int{2}},
		{"old incomplete goes, new stays", []Epoch{incomplete(1), committed(2, 0), incomplete(3)}, 1, []int{1}},
		{"only incomplete", []Epoch{incomplete(1), incomplete(2)}, 1, nil},
		{"damaged stays and does not count", []Epoch{committed(1, 0), committed(2, 0), damaged(3)}, 1, []int{1}},
	} {
		if got := planRetire(c.list, c.keep).Remove; fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: removes %v, want %v", c.name, got, c.want)
		}
	}
	if r := planRetire([]Epoch{committed(1, 0)}, 1); fmt.Sprint(r.Keep) != "[1]" {
		t.Errorf("keeps %v", r.Keep)
	}
}

func TestRemove(t *testing.T) {
	s := newStore(t)
	mustCommit(t, s, 1, 0)
	mustCommit(t, s, 2, 0)
	mustCommit(t, s, 3, 2)
	if err := s.Begin(4); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{2, 3, 4} {
		if err := s.Remove(n); err == nil {
			t.Errorf("epoch %d was removed", n)
		}
	}
	if err := s.Remove(9); !errors.Is(err, ErrNone) {
		t.Errorf("epoch 9: %v", err)
	}
	if err := s.Remove(1); err != nil {
		t.Error(err)
	}
	if _, err := s.Manifest(1); !errors.Is(err, ErrNone) {
		t.Errorf("epoch 1 after removal: %v", err)
	}
	checkRestorable(t, s, 2)
	checkRestorable(t, s, 3)
}
