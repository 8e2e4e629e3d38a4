// SPDX-License-Identifier: Apache-2.0

package written

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/pagemap"
)

const page = 4096

func open(t *testing.T) *Tracker {
	t.Helper()
	tracker, err := Open()
	if err != nil {
		t.Skipf("this kernel does not note writes by itself: %v", err)
	}
	t.Cleanup(func() {
		if err := tracker.Close(); err != nil {
			t.Error(err)
		}
	})
	return tracker
}

// memory is mapped memory; all of it is there.
func memory(t *testing.T, pages int) []byte {
	t.Helper()
	m, err := unix.Mmap(-1, 0, pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	if err := unix.Madvise(m, unix.MADV_NOHUGEPAGE); err != nil && err != unix.EINVAL {
		t.Fatal(err)
	}
	for i := 0; i < len(m); i += page {
		m[i] = 1
	}
	return m
}

func at(m []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m)))) }

func whole(m []byte) []pagemap.Extent {
	return []pagemap.Extent{{Start: at(m), End: at(m) + uint64(len(m))}}
}

// numbers are the pages of list in m.
func numbers(list []pagemap.Extent, m []byte) []int {
	out := []int{}
	for _, e := range list {
		for a := e.Start; a < e.End; a += page {
			out = append(out, int(a-at(m))/page)
		}
	}
	return out
}

// raw makes a call that moves memory under Go's feet.
func raw(t *testing.T, trap uintptr, args ...uintptr) {
	t.Helper()
	var a [6]uintptr
	copy(a[:], args)
	if _, _, e := unix.Syscall6(trap, a[0], a[1], a[2], a[3], a[4], a[5]); e != 0 {
		t.Fatal(e)
	}
}

// Each way in which memory can become another is noticed.
func TestUnwritten(t *testing.T) {
	const fixed = unix.MAP_PRIVATE | unix.MAP_ANON | unix.MAP_FIXED
	for _, c := range []struct {
		name string
		do   func(t *testing.T, m []byte)
		want []int // of 8 pages
	}{
		{"nothing", func(*testing.T, []byte) {}, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{"reading", func(t *testing.T, m []byte) {
			if m[3*page] != 1 {
				t.Error("it is another")
			}
		}, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{"writing", func(_ *testing.T, m []byte) { m[2*page+5], m[7*page] = 7, 1 }, []int{0, 1, 3, 4, 5, 6}},
		{"the kernel writes", func(t *testing.T, m []byte) {
			var p [2]int
			if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			defer func() { _, _ = unix.Close(p[0]), unix.Close(p[1]) }()
			if _, err := unix.Write(p[1], []byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.Read(p[0], m[4*page:][:1]); err != nil {
				t.Fatal(err)
			}
		}, []int{0, 1, 2, 3, 5, 6, 7}},
		{"through /proc/self/mem", func(t *testing.T, m []byte) {
			f, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			if _, err := f.WriteAt([]byte("x"), int64(at(m[5*page:]))); err != nil {
				t.Fatal(err)
			}
		}, []int{0, 1, 2, 3, 4, 6, 7}},
		{"another mapping", func(t *testing.T, m []byte) {
			raw(t, unix.SYS_MMAP, uintptr(at(m[2*page:])), 3*page, unix.PROT_READ|unix.PROT_WRITE, fixed, ^uintptr(0), 0)
			for i := 2; i < 5; i++ {
				m[i*page] = 1
			}
		}, []int{0, 1, 5, 6, 7}},
		{"given back", func(t *testing.T, m []byte) {
			if err := unix.Madvise(m[page:][:2*page], unix.MADV_DONTNEED); err != nil {
				t.Fatal(err)
			}
			m[page] = 1 // page 2 stays absent
		}, []int{0, 3, 4, 5, 6, 7}},
		{"moved", func(t *testing.T, m []byte) {
			raw(t, unix.SYS_MREMAP, uintptr(at(m[6*page:])), page, page, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, uintptr(at(m[page:])))
			raw(t, unix.SYS_MMAP, uintptr(at(m[6*page:])), page, unix.PROT_READ|unix.PROT_WRITE, fixed, ^uintptr(0), 0)
		}, []int{0, 2, 3, 4, 5, 7}},
		{"other protections", func(t *testing.T, m []byte) {
			for _, prot := range []int{unix.PROT_NONE, unix.PROT_READ, unix.PROT_READ | unix.PROT_WRITE} {
				if err := unix.Mprotect(m[3*page:][:2*page], prot); err != nil {
					t.Fatal(err)
				}
			}
			m[4*page] = 2
		}, []int{0, 1, 2, 3, 5, 6, 7}},
		{"a child writes", func(t *testing.T, m []byte) {
			// Go cannot fork and go on in the child, but what shows is whether the copy lets pages of the parent count as written.
			if err := exec.Command("true").Run(); err != nil {
				t.Fatal(err)
			}
			m[0] = 9
		}, []int{1, 2, 3, 4, 5, 6, 7}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tracker, m := open(t), memory(t, 8)
			same, first, err := tracker.Cut(whole(m), nil, 0)
			if err != nil || len(same) > 0 {
				t.Fatalf("first cut: %x, %v", same, err)
			}
			c.do(t, m)
			same, second, err := tracker.Cut(whole(m), nil, first)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, numbers(same, m)); diff != "" {
				t.Errorf("pages that were not written (-want +got):\n%s", diff)
			}
			// All is followed from here on, what is new as well.
			m[6*page] = 3
			fresh, err := tracker.Fresh(whole(m), second)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range numbers(fresh, m) {
				if i == 6 {
					t.Error("a page that was written after the cut is fresh")
				}
			}
			same, _, err = tracker.Cut(whole(m), nil, second)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(numbers(same, m)); got < 6 || got > 7 { // the page that was given back may be absent still
				t.Errorf("%d pages were not written, want all but page 6", got)
			}
		})
	}
}

// What was noted since a cut that is not the last one tells nothing.
func TestLostCut(t *testing.T) {
	tracker, m := open(t), memory(t, 4)
	_, first, err := tracker.Cut(whole(m), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	m[0] = 2
	if _, _, err := tracker.Cut(whole(m), nil, first); err != nil { // of an epoch that is given up
		t.Fatal(err)
	}
	same, last, err := tracker.Cut(whole(m), nil, first)
	if err != nil || same != nil {
		t.Errorf("since a cut before the last one: %x, %v; want nothing", same, err)
	}
	if _, err := tracker.Fresh(whole(m), first); err == nil {
		t.Error("the answer of an older cut is fresh")
	}
	if same, _, err = tracker.Cut(whole(m), nil, last); err != nil || len(numbers(same, m)) != 4 {
		t.Errorf("since the last cut: %x, %v; want all", same, err)
	}
}

// A device that may write by itself makes the answer nothing, now and for the epoch after.
func TestDevice(t *testing.T) {
	tracker, m := open(t), memory(t, 4)
	_, first, err := tracker.Cut(whole(m), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	d, err := os.Open("/dev/fuse")
	if err != nil {
		t.Skipf("no device that may be opened here: %v", err)
	}
	same, none, err := tracker.Cut(whole(m), nil, first)
	if !errors.Is(err, ErrDevice) || same != nil || none != 0 {
		t.Errorf("with a device: %x, mark %d, %v", same, none, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if same, _, err = tracker.Cut(whole(m), nil, first); err != nil || same != nil {
		t.Errorf("after that: %x, %v; want nothing: it may have written", same, err)
	}
}

// huges is memory of so many huge pages, all there, and a function that counts how many of them are.
func huges(t *testing.T, tracker *Tracker, n int) ([]byte, func() int) {
	t.Helper()
	all, err := unix.Mmap(-1, 0, (n+1)*hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(all) })
	m := all[(hugePage-at(all)%hugePage)%hugePage:][:n*hugePage]
	if err := unix.Madvise(m, unix.MADV_HUGEPAGE); err != nil {
		t.Skipf("no huge pages: %v", err)
	}
	for i := 0; i < len(m); i += page {
		m[i] = 1
	}
	count := func() (have int) {
		q := pagemap.Query{Start: at(m), End: at(m) + uint64(len(m)), All: pagemap.Huge}
		if err := pagemap.Scan(tracker.pages, q, func(e pagemap.Extent, _ pagemap.Category) { have += int(e.End-e.Start) / hugePage }); err != nil {
			t.Fatal(err)
		}
		return have
	}
	if count() != n {
		t.Skipf("%d of %d pages are huge", count(), n)
	}
	return m, count
}

// part is from one page to another of m, which may be huge ones and so many small ones.
func part(m []byte, fromHuge, fromPage, toHuge, toPage int) pagemap.Extent {
	return pagemap.Extent{Start: at(m) + uint64(fromHuge*hugePage+fromPage*page), End: at(m) + uint64(toHuge*hugePage+toPage*page)}
}

func cut(t *testing.T, tracker *Tracker, m []byte, since Mark, calm ...pagemap.Extent) ([]pagemap.Extent, Mark) {
	t.Helper()
	same, mark, err := tracker.Cut(whole(m), calm, since)
	if err != nil {
		t.Fatal(err)
	}
	return same, mark
}

// mendAll returns how often there was something to do.
func mendAll(t *testing.T, tracker *Tracker) (n int) {
	t.Helper()
	for {
		more, err := tracker.Mend()
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return n
		}
		n++
	}
}

// Huge pages stay huge unless they lie in calm memory and are written, and those are made huge again.
func TestHuge(t *testing.T) {
	tracker := open(t)
	m, isHuge := huges(t, tracker, 6)
	calm := part(m, 2, 7, 6, 0) // of the third, a part: that is not reason enough to break it
	_, mark := cut(t, tracker, m, 0, calm)
	if got := isHuge(); got != 6 {
		t.Errorf("%d huge pages after the cut, want all 6", got)
	}
	m[0], m[2*hugePage], m[3*hugePage+5*page], m[3*hugePage+9*page], m[4*hugePage] = 2, 2, 2, 2, 2
	if got := isHuge(); got != 4 {
		t.Errorf("%d huge pages after two that are calm were written, want 4", got)
	}
	if !tracker.Huge() {
		t.Error("it knows of no huge pages")
	}
	old := bytes.Clone(m)
	same, mark := cut(t, tracker, m, mark, calm)
	if diff := cmp.Diff([]pagemap.Extent{part(m, 5, 0, 6, 0)}, same); diff != "" {
		t.Errorf("not written (-want +got):\n%s", diff)
	}
	if got := mendAll(t, tracker); got != 2 || isHuge() != 6 {
		t.Errorf("%d were mended, want 2; %d are huge, want 6", got, isHuge())
	}
	if !bytes.Equal(m, old) {
		t.Error("mending changed memory")
	}
	if fresh, err := tracker.Fresh(same, mark); err != nil || !cmp.Equal(fresh, same) {
		t.Errorf("fresh after that: %x, %v; want %x", fresh, err, same)
	}
	if got := mendAll(t, tracker); got != 0 {
		t.Errorf("%d were mended when nothing was written", got)
	}

	// In the same interval: what was protected and not written is given up with the rest.
	_, mark = cut(t, tracker, m, mark, calm)
	same, mark = cut(t, tracker, m, mark, calm)
	if diff := cmp.Diff([]pagemap.Extent{part(m, 3, 0, 6, 0)}, same); diff != "" {
		t.Errorf("not written since they were mended (-want +got):\n%s", diff)
	}
	m[5*hugePage+511*page] = 3
	if got := mendAll(t, tracker); got != 1 || isHuge() != 6 {
		t.Errorf("%d were mended, want 1; %d are huge, want 6", got, isHuge())
	}
	if fresh, err := tracker.Fresh(same, mark); err != nil || !cmp.Equal(fresh, []pagemap.Extent{part(m, 3, 0, 5, 0)}) {
		t.Errorf("fresh: %x, %v; want the fourth and fifth", fresh, err)
	}
}

// Mend meets memory that is not what it was.
func TestMendOther(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, m []byte)
		want int // huge pages at the end
	}{
		{"gone", func(t *testing.T, m []byte) {
			raw(t, unix.SYS_MUNMAP, uintptr(at(m)), hugePage)
		}, 1},
		{"in part", func(t *testing.T, m []byte) {
			raw(t, unix.SYS_MUNMAP, uintptr(at(m)+5*page), page)
		}, 1},
		{"given back in part", func(t *testing.T, m []byte) {
			raw(t, unix.SYS_MADVISE, uintptr(at(m)+5*page), page, unix.MADV_DONTNEED)
		}, 1},
		{"to be read in part", func(t *testing.T, m []byte) {
			raw(t, unix.SYS_MPROTECT, uintptr(at(m)+5*page), page, unix.PROT_READ)
		}, 1},
		{"not to be huge", func(t *testing.T, m []byte) {
			raw(t, unix.SYS_MADVISE, uintptr(at(m)), hugePage, unix.MADV_NOHUGEPAGE)
		}, 1},
		{"mapped again", func(t *testing.T, m []byte) {
			raw(t, unix.SYS_MMAP, uintptr(at(m)), hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED, ^uintptr(0), 0)
		}, 1},
		{"moved", func(t *testing.T, m []byte) {
			to, err := unix.Mmap(-1, 0, hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Munmap(to) })
			raw(t, unix.SYS_MREMAP, uintptr(at(m)), hugePage, hugePage, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, uintptr(at(to)))
		}, 1},
		{"the same", func(*testing.T, []byte) {}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			tracker := open(t)
			m, isHuge := huges(t, tracker, 2)
			_, mark := cut(t, tracker, m, 0, whole(m)...)
			m[0] = 2
			c.do(t, m)
			mendAll(t, tracker)
			if got := isHuge(); got != c.want {
				t.Errorf("%d huge pages, want %d", got, c.want)
			}
			if m[hugePage] != 1 {
				t.Error("memory beside it is another")
			}
			same, _ := cut(t, tracker, m, mark, whole(m)...)
			if diff := cmp.Diff([]pagemap.Extent{part(m, 1, 0, 2, 0)}, same); diff != "" {
				t.Errorf("not written (-want +got):\n%s", diff)
			}
		})
	}
}

// Random writes from several threads, against copies of the memory.
func TestRandom(t *testing.T) {
	tracker := open(t)
	random(t, tracker, memory(t, 512), func() []pagemap.Extent { return nil })
}

// The same with huge pages, of which some are calm, and mending at any time.
func TestRandomHuge(t *testing.T) {
	tracker := open(t)
	m, _ := huges(t, tracker, 8)
	r := rand.New(rand.NewPCG(3, 4))
	random(t, tracker, m, func() (calm []pagemap.Extent) {
		for i := range 8 {
			if r.IntN(3) > 0 {
				calm = pagemap.Append(calm, part(m, i, 0, i+1, 0))
			}
		}
		return calm
	})
}

func random(t *testing.T, tracker *Tracker, m []byte, calm func() []pagemap.Extent) {
	t.Helper()
	pages := len(m) / page
	r := rand.New(rand.NewPCG(1, 2))
	var mark Mark
	old, known := bytes.Clone(m), 0
	for round := range 60 {
		huge := calm()
		same, now, err := tracker.Cut(whole(m), huge, mark)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range numbers(same, m) {
			if !bytes.Equal(m[n*page:][:page], old[n*page:][:page]) {
				t.Fatalf("round %d: page %d was written", round, n)
			}
		}
		if round > 0 && len(same) == 0 && huge == nil {
			t.Fatalf("round %d: nothing is known", round)
		}
		known += len(same)
		mark = now
		copy(old, m)
		done := make(chan bool)
		for range 3 {
			at, n := r.IntN(pages), r.IntN(40)
			go func() {
				for i := at; i < min(pages, at+n); i++ {
					m[i*page+i%page]++
				}
				done <- true
			}()
		}
		mendAll(t, tracker)
		for range 3 {
			<-done
		}
		if r.IntN(2) > 0 {
			mendAll(t, tracker)
		}
	}
	if known == 0 {
		t.Error("nothing was ever known not to be written")
	}
}

// How long a program stands for it.
func BenchmarkCut(b *testing.B) {
	for _, mib := range []int{64, 1024} {
		for _, written := range []int{0, 100} {
			b.Run(fmt.Sprintf("%dMiB/%d%%", mib, written), func(b *testing.B) {
				tracker, err := Open()
				if err != nil {
					b.Skip(err)
				}
				defer func() { _ = tracker.Close() }()
				m, err := unix.Mmap(-1, 0, mib<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = unix.Munmap(m) }()
				_ = unix.Madvise(m, unix.MADV_NOHUGEPAGE)
				touch := func() {
					for i := 0; i < len(m); i += page {
						m[i]++
					}
				}
				touch()
				var mark Mark
				for b.Loop() {
					if written > 0 {
						b.StopTimer()
						touch()
						b.StartTimer()
					}
					if _, mark, err = tracker.Cut(whole(m), nil, mark); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
