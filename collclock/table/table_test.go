// SPDX-License-Identifier: Apache-2.0

package table

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/libckpt/libckpt/collclock"
)

func litmus(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "litmus")
	out, err := exec.Command("cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I../../include", "-o", bin, "testdata/litmus.c").CombinedOutput()
	if err != nil {
		t.Fatalf("cc testdata/litmus.c: %v\n%s", err, out)
	}
	return bin
}

// TestLayout compares C's layout with Go's.
func TestLayout(t *testing.T) {
	out, err := exec.Command(litmus(t), "layout").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	var c Clock
	var h Header
	want := fmt.Sprint(unsafe.Sizeof(c), " ", unsafe.Offsetof(c.call), " ", unsafe.Offsetof(c.ret), " ",
		unsafe.Offsetof(c.lim), " ", unsafe.Offsetof(c.open), " ", unsafe.Sizeof(h), " ", unsafe.Offsetof(h.magic), " ",
		unsafe.Offsetof(h.version), " ", unsafe.Offsetof(h.bytes), " ", unsafe.Offsetof(h.pages), " ",
		PageClocks, " ", version, " ", uint64(headerMagic))
	if got := strings.TrimSpace(string(out)); got != want {
		t.Errorf("C has %s\nGo has %s", got, want)
	}
	if unsafe.Sizeof(h) != headerSize || unsafe.Sizeof(Page{}) != PageClocks*unsafe.Sizeof(c) {
		t.Error("headerSize or Page is wrong")
	}
}

func race(t *testing.T, bin string, rounds int, fence string) (misses, fast int) {
	t.Helper()
	out, err := exec.Command(bin, "race", strconv.Itoa(rounds), fence).CombinedOutput()
	if err != nil {
		t.Fatalf("litmus: %v\n%s", err, out)
	}
	if _, err := fmt.Sscan(string(out), &misses, &fast); err != nil {
		t.Fatalf("litmus printed %q", out)
	}
	return misses, fast
}

// TestFence: with membarrier no call that took the fast path is missed by the snapshot. Without, some
// are, which shows that the test can see it.
func TestFence(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU cannot see stores of another late")
	}
	bin := litmus(t)
	const rounds = 1000
	missed := 0
	for range 20 {
		if missed, _ = race(t, bin, rounds, "none"); missed > 0 {
			break
		}
	}
	if missed == 0 {
		t.Errorf("no call was missed in %d rounds without a fence: the test sees nothing", 20*rounds)
	}
	misses, fast := race(t, bin, rounds, "membarrier")
	t.Logf("without a fence %d of %d snapshots missed a call; with membarrier %d (%d calls)", missed, rounds, misses, fast)
	if misses != 0 {
		t.Errorf("%d of %d snapshots missed a call in spite of membarrier", misses, rounds)
	}
	if fast < rounds {
		t.Errorf("only %d calls took the fast path in %d rounds", fast, rounds)
	}
}

func TestTable(t *testing.T) {
	var head Header
	tab := New(&head, make([]atomic.Pointer[Page], 2))
	if _, err := tab.Add(); err == nil {
		t.Error("a clock in a table without pages")
	}
	for range 2 {
		if err := tab.Grow(new(Page)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tab.Grow(new(Page)); err == nil {
		t.Error("a third page in a directory for two")
	}
	for i := range uint32(2 * PageClocks) {
		if got, err := tab.Add(); err != nil || got != i {
			t.Fatalf("clock %d: %d, %v", i, got, err)
		}
	}
	const index = PageClocks + 5
	c := tab.at(index)
	c.call, c.ret, c.open = 7, 6, 2
	want := collclock.Count{Clock: collclock.World(), Call: 7, Ret: 6, Open: 2}
	if diff := cmp.Diff(want, tab.Count(index, collclock.World())); diff != "" {
		t.Error(diff)
	}
	if k := tab.Gated(index); k != 8 {
		t.Errorf("gated call %d", k)
	}
	tab.Permit(index, 8)
	if c.lim != 8 {
		t.Errorf("limit %d", c.lim)
	}
	tab.Remove(index)
	if got, err := tab.Add(); err != nil || got != index || *c != (Clock{}) {
		t.Errorf("a used clock again: %d, %v, %+v", got, err, *c)
	}
}

// TestRaise: when the fence fails the pending word is as before.
func TestRaise(t *testing.T) {
	var pending uint32
	failed := errors.New("not permitted")
	if err := Raise(&pending, func() error { return failed }); !errors.Is(err, failed) || pending != 0 {
		t.Errorf("%v, pending %d", err, pending)
	}
	if err := Raise(&pending, func() error {
		if pending != 1 {
			t.Error("fence before the pending word")
		}
		return nil
	}); err != nil || pending != 1 {
		t.Errorf("%v, pending %d", err, pending)
	}
	if Lower(&pending); pending != 0 {
		t.Error("not lowered")
	}
}
