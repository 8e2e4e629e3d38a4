// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watchedMemory has the thread that reads looked at.
type watchedMemory struct {
	Copied
	look func()
}

func (m watchedMemory) ReadAt(p []byte, addr uint64) error {
	m.look()
	return m.Copied.ReadAt(p, addr)
}

// nice is the niceness of a thread; 0 for this one.
func nice(t *testing.T, tid int) int {
	t.Helper()
	n, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	if err != nil {
		return 0 // it has ended
	}
	return 20 - n
}

// politeThreads lists the threads of this process that yield.
func politeThreads(t *testing.T) (list []int) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if tid, _ := strconv.Atoi(task.Name()); nice(t, tid) >= niceness {
			list = append(list, tid)
		}
	}
	return list
}

// Helpers yield to a worker that does not, and each image has the same threads.
func TestHelpers(t *testing.T) {
	content := make([]byte, 16<<20)
	fillText(content)
	usual := nice(t, 0)
	var mu sync.Mutex
	reads := map[int]int{} // by niceness
	disk := map[uintptr]int{}
	both := make(chan struct{})
	look := func() {
		n := nice(t, 0)
		io, _, _ := unix.Syscall(unix.SYS_IOPRIO_GET, 1, 0, 0)
		mu.Lock()
		reads[n]++
		if n == niceness {
			disk[io>>13]++
		}
		if len(reads) == 2 && reads[n] == 1 {
			close(both)
		}
		mu.Unlock()
		<-both // the first of each kind waits for one of the other
	}
	in := Input{Regions: []Region{{Start: testBase, End: testBase + uint64(len(content)), Flags: FlagShared}},
		Memory: watchedMemory{CopiedAt(testBase, content), look}}
	path, _ := mustWrite(t, in, Options{Compress: CompressSnappy, Workers: 1, Helpers: 3})
	if len(reads) != 2 || reads[usual] == 0 || reads[niceness] == 0 || disk[ioIdle] != reads[niceness] {
		t.Errorf("niceness of the threads that read: %v; classes for the disk: %v", reads, disk)
	}
	got := make([]byte, len(content))
	if err := mustOpen(t, path).ReadRegion(t.Context(), 0, got, 2); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the content does not come back: %v", err)
	}
	for range 10 {
		mustWrite(t, Input{Regions: in.Regions, Memory: CopiedAt(testBase, content)}, Options{Compress: CompressSnappy, Workers: 1, Helpers: 3})
	}
	if n := len(politeThreads(t)); n == 0 || n > 2*3 { // one that has just finished may not wait yet for the next image
		t.Errorf("%d threads that yield, of 3 helpers", n)
	}
}

// A helper that waits for a processor steps back, and comes at once when there is nothing left to do.
func TestStepBack(t *testing.T) {
	h := &helper{w: &writer{taken: make(chan struct{})}, waits: func() bool { return true }}
	close(h.w.taken)
	h.pause = time.Hour // would be cut to mostPause
	begun := time.Now()
	h.next(t.Context())
	if h.pause != mostPause || time.Since(begun) >= mostPause {
		t.Errorf("paused for %v of %v, with nothing to do", time.Since(begun), h.pause)
	}
}

// With a limit writing takes as long as that says, whoever writes, and an end of the caller's patience ends it.
func TestPace(t *testing.T) {
	in := autoInput(4<<20, fillRandom)
	for _, helpers := range []int{0, 2} {
		begun := time.Now()
		mustWrite(t, in, Options{Limit: 16 << 20, Helpers: helpers, Workers: 1})
		// The last chunk is written at the end of the time of those before.
		if took, least := time.Since(begun), 7*time.Second/32; took < least {
			t.Errorf("%d helpers: 4 MiB in %v, at least %v wanted", helpers, took, least)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	want := errors.New("enough")
	path := t.TempDir() + "/rank-00000.ckpt"
	_, err := Write(ctx, path, in, Options{Limit: 1, NoSync: true, Progress: func(uint64, uint64) { cancel(want) }})
	if !errors.Is(err, want) {
		t.Errorf("at a byte a second: %v", err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("a file is left: %v", err)
	}
}
