// SPDX-License-Identifier: Apache-2.0

package polite

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Threads yield, are not the process's first one, and are there after the work, for the next one.
func TestRun(t *testing.T) {
	const together = 8
	var mu sync.Mutex
	used := map[int]int{}
	round := func(asked int) {
		var all, wg sync.WaitGroup
		all.Add(together)
		for range together {
			wg.Go(func() {
				Run(asked, func(yields error) {
					if yields != nil {
						t.Error(yields)
					}
					all.Done()
					all.Wait() // at the same time
					mu.Lock()
					defer mu.Unlock()
					used[unix.Gettid()]++
					if got, want := niceness(t, 0), max(asked, niceness(t, os.Getpid())); got != want {
						t.Errorf("niceness %d, want %d", got, want)
					}
				})
			})
		}
		wg.Wait()
	}
	for range 5 {
		round(10)
	}
	round(19)
	if used[os.Getpid()] > 0 {
		t.Error("work was done on the process's first thread")
	}
	if n := len(used); n < 2*together || n > 4*together { // one that has just finished may not wait yet
		t.Errorf("%d threads for %d at a time", n, together)
	}
	for tid := range used {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); err != nil {
			t.Errorf("a thread has ended: %v", err)
		}
	}
}

// A program that is nicer than its helpers has them as nice as it is, also those that it had before.
func TestNeverAboveTheProgram(t *testing.T) {
	const again = "LIBCKPT_NICE_PROGRAM"
	if os.Getenv(again) == "" { // who becomes nicer cannot always go back: another process does
		self := exec.Command(os.Args[0], "-test.run=^TestNeverAboveTheProgram$", "-test.v")
		self.Env = append(os.Environ(), again+"=1")
		if out, err := self.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	want := max(10, niceness(t, os.Getpid()))
	seen := func() (tid, nice int) {
		Run(10, func(yields error) {
			if yields != nil {
				t.Error(yields)
			}
			tid, nice = unix.Gettid(), niceness(t, 0)
		})
		return tid, nice
	}
	first, nice := seen()
	if nice != want {
		t.Errorf("niceness %d, want %d", nice, want)
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, os.Getpid(), 19); err != nil {
		t.Fatal(err)
	}
	kept := false
	for range 100 { // a new thread is had only while the first one has not come back yet
		tid, nice := seen()
		kept = kept || tid == first
		if nice != 19 {
			t.Fatalf("the program's niceness is 19, that of thread %d (the first one was %d) is %d", tid, first, nice)
		}
	}
	if !kept {
		t.Error("the first thread was never used again")
	}
}

// niceness is that of a thread, 0 for this one.
func niceness(t *testing.T, tid int) int {
	t.Helper()
	got, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	if err != nil {
		t.Error(err)
	}
	return 20 - got // the kernel's answer
}
