// SPDX-License-Identifier: Apache-2.0

package files

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	const stat = "77 (a) (b c) S 5 77 77 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 1234 9999 1\n"
	p, ok := parseStat(77, stat)
	if want := (process{pid: 77, parent: 5, name: "a) (b c", started: 12340 * time.Millisecond}); !ok || p != want {
		t.Errorf("%+v, %v; want %+v", p, ok, want)
	}
	for _, text := range []string{"", "77", "77 (a", "77 a) (", "77 (a) S 5", "77 (a) S x 77 77 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 y 9999 1"} {
		if p, ok := parseStat(77, text); ok {
			t.Errorf("%q is taken for %+v", text, p)
		}
	}
	self, ok := about(os.Getpid())
	if !ok || self.parent != os.Getppid() {
		t.Errorf("%+v, %v; the parent is %d", self, ok, os.Getppid())
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
		t.Fatal(err)
	}
	if here := sinceBoot(now); self.started >= here {
		t.Errorf("this process starts at %v, and now is %v", self.started, here)
	}
}
