// SPDX-License-Identifier: Apache-2.0

package polite

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Meter tells whether the thread that it was made on waits for a processor: whether others compute on all of them.
type Meter struct {
	stats *os.File // schedstat of the thread; nil: the kernel does not count
	ran   time.Duration
	stood time.Duration
}

// NewMeter makes one for the calling thread, which the goroutine keeps (runtime.LockOSThread) until it closes the meter.
func NewMeter() *Meter {
	m := &Meter{}
	if f, err := os.Open("/proc/self/task/" + strconv.Itoa(unix.Gettid()) + "/schedstat"); err == nil {
		m.stats = f
	}
	m.Passed()
	return m
}

// Close lets go of the thread.
func (m *Meter) Close() {
	if m.stats != nil {
		_ = m.stats.Close()
	}
}

// Passed is how long the thread ran, and how long it waited for a processor, since the last call; not ok where the
// kernel does not count.
func (m *Meter) Passed() (ran, stood time.Duration, ok bool) {
	if m.stats == nil {
		return 0, 0, false
	}
	var p [96]byte
	n, err := m.stats.ReadAt(p[:], 0)
	if n == 0 && err != nil {
		return 0, 0, false
	}
	ranAll, stoodAll, ok := parseSchedstat(string(p[:n]))
	if !ok {
		return 0, 0, false
	}
	ran, stood = ranAll-m.ran, stoodAll-m.stood
	m.ran, m.stood = ranAll, stoodAll
	return ran, stood, true
}

// Waits tells whether the thread waited longer for a processor than it ran, since it was last asked.
func (m *Meter) Waits() bool {
	ran, stood, ok := m.Passed()
	return ok && stood > ran
}

// parseSchedstat reads how long a thread ran, and how long it waited for a processor.
func parseSchedstat(s string) (ran, stood time.Duration, ok bool) {
	f := strings.Fields(s)
	if len(f) < 2 {
		return 0, 0, false
	}
	ranNs, err1 := strconv.ParseInt(f[0], 10, 64)
	stoodNs, err2 := strconv.ParseInt(f[1], 10, 64)
	return time.Duration(ranNs), time.Duration(stoodNs), err1 == nil && err2 == nil
}

const (
	share     = 10 // pauses are so many times as long as what was done before
	mostPause = 200 * time.Millisecond
)

// Pace calls piece again and again, until it says that there is no more, on a thread that has the program's own priority
// and rests between pieces while others wait for processors.
//
// A nice thread does not do for what others may wait for: one that is taken off its processor in the middle of a piece
// gets it back a tenth of a second later where the program uses all of them, and with it all that it holds meanwhile, such as the
// kernel's lock of the address space, or Go's processor. This one holds nothing while it rests.
func Pace(piece func() bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m := NewMeter()
	defer m.Close()
	for p := time.Duration(0); piece(); {
		p = pause(m, p)
		time.Sleep(p)
		m.Passed() // the rest is no wait, but being woken may have been
	}
}

// pause is how long to rest after a piece, if the last rest was so long.
func pause(m *Meter, last time.Duration) time.Duration {
	ran, stood, ok := m.Passed()
	switch {
	case ok && stood <= ran:
		if last /= 2; last < ran { // nobody else wants the processor, it seems
			return 0
		}
		return last
	case !ok:
		ran = time.Millisecond
	}
	return min(max(last, share*ran), mostPause)
}
