// SPDX-License-Identifier: Apache-2.0

package polite

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Threads yield, are not the process's first one, and are there after the work, for the next one.
func TestRun(t *testing.T) {
	const together = 8
	var mu sync.Mutex
	used := map[int]int{}
	round := func(niceness int) {
		var all, wg sync.WaitGroup
		all.Add(together)
		for range together {
			wg.Go(func() {
				Run(niceness, func(yields error) {
					if yields != nil {
						t.Error(yields)
					}
					all.Done()
					all.Wait() // at the same time
					mu.Lock()
					defer mu.Unlock()
					used[unix.Gettid()]++
					// The kernel's answer is 20 - niceness.
					if got, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || got != 20-niceness {
						t.Errorf("niceness %d, want %d (%v)", 20-got, niceness, err)
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
