// SPDX-License-Identifier: Apache-2.0

package polite

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"
)

// said is a meter that reads what say has written.
func said(t *testing.T) (m *Meter, say func(string)) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "schedstat")
	if err != nil {
		t.Fatal(err)
	}
	m = &Meter{stats: f}
	t.Cleanup(m.Close)
	return m, func(s string) {
		if err := errors.Join(f.Truncate(0), func() error { _, err := f.WriteAt([]byte(s), 0); return err }()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWaits(t *testing.T) {
	m, say := said(t)
	for _, c := range []struct {
		stat string
		want bool
	}{
		{"1000 0 5\n", false}, {"2000 900 6\n", false}, {"2100 2000 7\n", true}, {"3100 2000 8\n", false}, {"", false}, {"x y z", false},
	} {
		say(c.stat)
		if got := m.Waits(); got != c.want {
			t.Errorf("%q: %v", c.stat, got)
		}
	}
}

// Who waits for a processor rests for many times what it did, and works without a rest again when it no longer waits.
func TestPause(t *testing.T) {
	m, say := said(t)
	rest := time.Duration(0)
	for _, c := range []struct {
		stat string
		want time.Duration
	}{
		{"1000000 0 1", 0},
		{"2000000 5000000 2", 10 * time.Millisecond}, // ran 1 ms, and waited for longer
		{"4000000 5000000 3", 5 * time.Millisecond},
		{"6000000 5000000 4", 2500 * time.Microsecond},
		{"8000000 5000000 5", 0},
		{"98000000 500000000 6", mostPause},
		{"", mostPause}, // the kernel does not say
	} {
		say(c.stat)
		if rest = pause(m, rest); rest != c.want {
			t.Errorf("%q: %v, want %v", c.stat, rest, c.want)
		}
	}
	if got := pause(&Meter{}, 0); got != share*time.Millisecond {
		t.Errorf("%v where the kernel does not count", got)
	}
}

// Pieces are done in order until there are no more, and the meter is that of this thread.
func TestPace(t *testing.T) {
	done := 0
	Pace(func() bool { done++; return done < 5 })
	if done != 5 {
		t.Errorf("%d pieces", done)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m := NewMeter()
	defer m.Close()
	for begun := time.Now(); time.Since(begun) < 20*time.Millisecond; {
	}
	if ran, _, ok := m.Passed(); ok != (m.stats != nil) || ok && ran <= 0 { // not every kernel counts
		t.Errorf("ran for %v, %v", ran, ok)
	}
}

func FuzzSchedstat(f *testing.F) {
	for _, s := range []string{"1 2 3", "", "18446744073709551615 1", "-1 0", "1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if ran, stood, ok := parseSchedstat(s); !ok && len(s) == 0 && (ran != 0 || stood != 0) {
			t.Error("something from nothing")
		}
	})
}
