// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// keeper is a thread with a descriptor table of its own, which runs the functions that it is given. A process loses
// its POSIX locks on a file when it closes any descriptor of the file, but only one in the table in which the lock
// was taken. So opening and closing a file on a keeper takes no lock from the application.
//
// The thread never ends: a thread of Go that ends lets in signal 34, the first real-time one. If the application
// has blocked that signal and it is pending, it would end the process. So keepers are used again; there are as many
// as were ever needed at the same time.
type keeper chan func()

// idle are the keepers that nobody uses.
var idle struct {
	sync.Mutex
	keepers []keeper
}

// takeKeeper returns a keeper whose table has none of the application's descriptors, which are fds.
func takeKeeper(fds []int) (keeper, error) {
	idle.Lock()
	if n := len(idle.keepers); n > 0 {
		k := idle.keepers[n-1]
		idle.keepers = idle.keepers[:n-1]
		idle.Unlock()
		return k, nil
	}
	idle.Unlock()
	pollOnce()
	k, ready := make(keeper), make(chan error, 1)
	go k.run(fds, ready)
	return k, <-ready
}

// give says that the keeper is not needed any more. It must have closed what it opened.
func (k keeper) give() {
	idle.Lock()
	defer idle.Unlock()
	idle.keepers = append(idle.keepers, k)
}

// do runs f on the thread.
func (k keeper) do(f func()) {
	done := make(chan struct{})
	k <- func() { defer close(done); f() }
	<-done
}

// Apart runs f on a keeper: what f opens and closes takes no POSIX lock from the application, whose descriptors are fds. f closes
// what it opens.
func Apart(fds []int, f func()) error {
	k, err := takeKeeper(fds)
	if err != nil {
		return err
	}
	defer k.give()
	k.do(f)
	return nil
}

// firstThread is the one on which Go began.
var firstThread = unix.Gettid()

// pollOnce makes Go open the descriptors by which it polls others. Go may use them on any thread, so ours
// must have them from the start.
var pollOnce = sync.OnceFunc(func() {
	if r, w, err := os.Pipe(); err == nil {
		_ = r.Close()
		_ = w.Close()
	}
})

func (k keeper) run(fds []int, ready chan<- error) {
	runtime.LockOSThread()
	if tid := unix.Gettid(); tid == firstThread || tid == unix.Getpid() {
		// The table of the process's first thread is what /proc/self shows: another one must do it.
		// This one stays taken meanwhile, so that it is not chosen again.
		other := make(chan error, 1)
		go k.run(fds, other)
		ready <- <-other
		runtime.UnlockOSThread()
		return
	}
	if err := ownTable(); err != nil {
		ready <- fmt.Errorf("a descriptor table of a thread's own: %w", err)
		runtime.UnlockOSThread()
		return
	}
	ready <- emptyTable(fds) // on failure nobody gives it work, and Go must not use such a thread either
	for f := range k {
		f()
	}
}

// ownTable gives the calling thread a descriptor table of its own, a copy. Containers forbid unshare for the sake of its
// other uses; close_range, which has nothing to close here, does this part of it.
func ownTable() error {
	err := unix.Unshare(unix.CLONE_FILES)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		if unix.CloseRange(math.MaxUint32, math.MaxUint32, unix.CLOSE_RANGE_UNSHARE) == nil {
			return nil
		}
	}
	return err
}

// emptyTable closes what the calling thread does not need in its table: a connection, or a pipe of the
// application, must end when the process closes it.
func emptyTable(fds []int) error {
	numbers, err := openNumbers()
	if err != nil {
		return err
	}
	keep := []int{2} // and what is below
	for _, fd := range numbers {
		if fd > 2 && !slices.Contains(fds, fd) && pollsForGo(fd) {
			keep = append(keep, fd)
		}
	}
	closeBetween(append(keep, math.MaxUint32), numbers)
	// What Go itself has to say in the worst case shall not end in a file of the application.
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for fd := range 3 {
		if err := unix.Dup3(null, fd, unix.O_CLOEXEC); err != nil {
			return err
		}
	}
	return unix.Close(null)
}

// pollsForGo tells whether a descriptor is one of the two by which Go polls. The program stands meanwhile, and hundreds of
// numbers are placeholders: so only those that can be have their names looked up. Such files have no type.
func pollsForGo(fd int) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != 0 {
		return false
	}
	what, _ := os.Readlink("/proc/thread-self/fd/" + strconv.Itoa(fd))
	return what == "anon_inode:[eventpoll]" || what == "anon_inode:[eventfd]"
}

// smallTable is up to which size of the table all its numbers are tried: the kernel takes longer to list one that is open.
const smallTable = 8192

// openNumbers are the descriptors of the calling thread, in order, and perhaps some that are not open.
func openNumbers() ([]int, error) {
	if n := tableSize(); n > 0 && n <= smallTable {
		all := make([]int, n)
		for fd := range all {
			all[fd] = fd
		}
		return all, nil
	}
	entries, err := os.ReadDir("/proc/thread-self/fd")
	if err != nil {
		return nil, err
	}
	var open []int
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			open = append(open, fd)
		}
	}
	slices.Sort(open)
	return open, nil
}

// tableSize is for how many descriptors the calling thread's table has room; 0: unknown.
func tableSize() int {
	status, _ := os.ReadFile("/proc/thread-self/status")
	_, rest, _ := strings.Cut(string(status), "\nFDSize:")
	line, _, _ := strings.Cut(rest, "\n")
	n, _ := strconv.Atoi(strings.TrimSpace(line))
	return n
}

// closeBetween closes those of the numbers that are between those that are kept; both are in order.
func closeBetween(keep, numbers []int) {
	for i, after := range keep[1:] {
		if from := keep[i] + 1; from < after && unix.CloseRange(uint(from), uint(after-1), 0) != nil {
			// A container's filter does not know that call.
			for _, fd := range numbers {
				if from <= fd && fd < after {
					unix.Close(fd)
				}
			}
		}
	}
}

// descriptorOf returns a descriptor, in the caller's table, of what fd is in that of thread tid of this
// process: the same open file if the kernel gives it, else another one of the same file.
func descriptorOf(tid, fd int) (int, error) {
	process, err := unix.PidfdOpen(unix.Getpid(), 0)
	if err == nil {
		got, err := unix.PidfdGetfd(process, fd, 0)
		unix.Close(process)
		if err == nil {
			return got, nil
		}
	}
	// The first thread is gone, or a sandbox forbids it.
	path := fmt.Sprintf("/proc/self/task/%d/fd/%d", tid, fd)
	var got int
	for _, mode := range []int{unix.O_RDWR, unix.O_RDONLY, unix.O_WRONLY} {
		if got, err = unix.Open(path, mode|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); !errors.Is(err, unix.EACCES) {
			break
		}
	}
	return got, err
}
