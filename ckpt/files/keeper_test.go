// SPDX-License-Identifier: Apache-2.0

package files

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A keeper holds nothing open but what Go polls by: a pipe must end when the program closes it, and so must an event
// descriptor of the program's, which looks like one of Go's. So it is where the table is too large for all numbers to be tried.
func TestKeeperHoldsNothing(t *testing.T) {
	t.Run("small", func(t *testing.T) { keeperHoldsNothing(t) })
	t.Run("large", func(t *testing.T) {
		high, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, smallTable)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(high)
		if n := tableSize(); n <= smallTable {
			t.Fatalf("a table with %d is of size %d", high, n)
		}
		keeperHoldsNothing(t, high)
	})
}

func keeperHoldsNothing(t *testing.T, fds ...int) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range []int{pipe[0], pipe[1], event} {
		defer unix.Close(fd)
		fds = append(fds, fd)
	}
	// One that was made earlier would not have had these.
	idle.Lock()
	earlier := idle.keepers
	idle.keepers = nil
	idle.Unlock()
	defer func() {
		idle.Lock()
		defer idle.Unlock()
		idle.keepers = append(idle.keepers, earlier...)
	}()
	k, err := takeKeeper(fds)
	if err != nil {
		t.Fatal(err)
	}
	defer k.give()
	var open []string
	k.do(func() {
		entries, _ := os.ReadDir("/proc/thread-self/fd")
		for _, e := range entries {
			what, err := os.Readlink(filepath.Join("/proc/thread-self/fd", e.Name()))
			if err == nil { // not the descriptor of this folder
				open = append(open, what)
			}
		}
	})
	if n := len(open); n < 3 || !slices.Contains(open, "/dev/null") {
		t.Fatalf("open in a keeper: %q", open)
	}
	polls := map[string]int{"/dev/null": 3, "anon_inode:[eventpoll]": 1, "anon_inode:[eventfd]": 1}
	for _, what := range open {
		if polls[what]--; polls[what] < 0 {
			t.Errorf("open in a keeper: %s, of %q", what, open)
		}
	}
}
