// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
)

const (
	r, w, x = unix.PROT_READ, unix.PROT_WRITE, unix.PROT_EXEC
	anon    = image.FlagAnonymous
	shared  = image.FlagShared
	file    = image.FlagFile
)

func TestParseLine(t *testing.T) {
	for _, c := range []struct {
		line string
		want image.Region
	}{
		{"00400000-00401000 r-xp 00002000 08:01 1234                               /usr/bin/a b",
			image.Region{Start: 0x400000, End: 0x401000, Prot: r | x, Flags: file, Offset: 0x2000, Path: "/usr/bin/a b"}},
		{"102000000000-102000002000 rw-p 00000000 00:00 0 ",
			image.Region{Start: 0x102000000000, End: 0x102000002000, Prot: r | w, Flags: anon}},
		{"102000000000-102000002000 rw-p 00000000 00:00 0",
			image.Region{Start: 0x102000000000, End: 0x102000002000, Prot: r | w, Flags: anon}},
		{"01000000-01021000 rw-p 00000000 00:00 0                                  [heap]",
			image.Region{Start: 0x1000000, End: 0x1021000, Prot: r | w, Flags: anon, Name: "[heap]"}},
		{"1000-2000 ---p 00000000 00:00 0",
			image.Region{Start: 0x1000, End: 0x2000, Flags: anon}},
		{"1000-2000 rwxs 00003000 00:19 77   /dev/shm/x (deleted)",
			image.Region{Start: 0x1000, End: 0x2000, Prot: r | w | x, Flags: file | shared, Offset: 0x3000, Path: "/dev/shm/x (deleted)"}},
		// Anonymous shared memory has a file of the kernel's own.
		{"1000-2000 rw-s 00003000 00:01 77   /dev/zero (deleted)",
			image.Region{Start: 0x1000, End: 0x2000, Prot: r | w, Flags: anon | shared}},
		// Memory of a window that ranks share: everybody saves its own part.
		{"1000-2000 rw-s 00003000 00:19 77   /dev/shm/libckpt-own-1f-0 (deleted)",
			image.Region{Start: 0x1000, End: 0x2000, Prot: r | w, Flags: anon | shared, Name: "[shared window]"}},
		{"1000-2000 rw-s 00003000 00:19 77   /dev/shm/libckpt-peer-1f-1 (deleted)",
			image.Region{Start: 0x1000, End: 0x2000, Prot: r | w, Flags: anon | shared | image.FlagNoData, Name: "[shared window]"}},
		// Private pages of the device are what a file's are.
		{"1000-2000 rw-p 00003000 00:05 6   /dev/zero",
			image.Region{Start: 0x1000, End: 0x2000, Prot: r | w, Flags: file, Offset: 0x3000, Path: "/dev/zero"}},
		{"1000-2000 rw-p 00003000 00:00 0   [anon:name given by prctl]",
			image.Region{Start: 0x1000, End: 0x2000, Prot: r | w, Flags: anon, Name: "[anon:name given by prctl]"}},
		{"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0   [vsyscall]",
			image.Region{Start: 0xffffffffff600000, End: 0xffffffffff601000, Prot: x, Flags: anon, Name: "[vsyscall]"}},
	} {
		got, err := parseLine(c.line)
		if err != nil {
			t.Errorf("%q: %v", c.line, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%q: %s", c.line, d)
		}
	}
	for _, line := range []string{
		"",
		"1000-2000",
		"1000-2000 rw-p 0 00:00", // no inode
		"1000 rw-p 0 00:00 0",
		"2000-1000 rw-p 0 00:00 0",
		"1000-1000 rw-p 0 00:00 0",
		"x-2000 rw-p 0 00:00 0",
		"1000-y rw-p 0 00:00 0",
		"1000-2000 rw- 0 00:00 0",
		"1000-2000 rw-pp 0 00:00 0",
		"1000-2000 rw-p z 00:00 0",
		"1000-10000000000000000 rw-p 0 00:00 0", // more than 64 bits
		"-1000-2000 rw-p 0 00:00 0",
	} {
		if got, err := parseLine(line); err == nil {
			t.Errorf("%q: read as %+v", line, got)
		} else if !strings.Contains(err.Error(), fmt.Sprintf("%q", line)) {
			t.Errorf("%q: the error does not show the line: %v", line, err)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add("00400000-00401000 r-xp 00002000 08:01 1234    /usr/bin/a b")
	f.Add("1000-2000 rw-s 0 00:01 77 /dev/zero (deleted)")
	f.Add("1000-2000 rw-p 0 00:00 0")
	f.Fuzz(func(t *testing.T, line string) {
		r, err := parseLine(line)
		if err != nil {
			return
		}
		if r.Start >= r.End {
			t.Errorf("%q: %v", line, &r)
		}
		if f, a := r.Flags&file != 0, r.Flags&anon != 0; f == a {
			t.Errorf("%q: flags 0x%x: either a file is behind it or none", line, r.Flags)
		}
		if (r.Path != "") != (r.Flags&file != 0) {
			t.Errorf("%q: path %q with flags 0x%x", line, r.Path, r.Flags)
		}
	})
}

func TestParseMaps(t *testing.T) {
	line := func(start, end uint64, rest string) string { return fmt.Sprintf("%x-%x %s\n", start, end, rest) }
	const plain = "rw-p 00000000 00:00 0"
	const a, heap, stack = uint64(heapEnd + 1<<20), uint64(heapStart), uint64(stackEnd)
	for _, c := range []struct {
		name, maps string
		want       []image.Region
	}{
		{"nothing", "", nil},
		{"only the lower half's", line(0xc000000000, 0xc000001000, plain) + line(0x7f0000000000, 0x7f0000001000, plain+" [stack]"), nil},
		{"neighbours that differ in nothing", line(a, a+0x1000, plain) + line(a+0x1000, a+0x3000, plain) + line(a+0x3000, a+0x4000, plain),
			[]image.Region{{Start: a, End: a + 0x4000, Prot: r | w, Flags: anon}}},
		{"a hole between", line(a, a+0x1000, plain) + line(a+0x2000, a+0x3000, plain),
			[]image.Region{{Start: a, End: a + 0x1000, Prot: r | w, Flags: anon}, {Start: a + 0x2000, End: a + 0x3000, Prot: r | w, Flags: anon}}},
		{"other protection", line(a, a+0x1000, plain) + line(a+0x1000, a+0x2000, "r--p 0 00:00 0"),
			[]image.Region{{Start: a, End: a + 0x1000, Prot: r | w, Flags: anon}, {Start: a + 0x1000, End: a + 0x2000, Prot: r, Flags: anon}}},
		{"other name", line(a, a+0x1000, plain) + line(a+0x1000, a+0x2000, plain+" [heap]"),
			[]image.Region{{Start: a, End: a + 0x1000, Prot: r | w, Flags: anon}, {Start: a + 0x1000, End: a + 0x2000, Prot: r | w, Flags: anon, Name: "[heap]"}}},
		{"heap and stack", line(stack-0x2000, stack, plain) + line(heap, heap+0x1000, plain) + line(heap+0x1000, heap+0x2000, plain) + line(heap+0x2000, heap+0x3000, "r--p 0 08:01 9 /f") + line(heapEnd-0x1000, heapEnd+0x1000, plain),
			[]image.Region{{Start: stack - 0x2000, End: stack, Prot: r | w, Flags: anon, Name: "[stack]"}, {Start: heap, End: heap + 0x2000, Prot: r | w, Flags: anon, Name: "[heap]"},
				{Start: heap + 0x2000, End: heap + 0x3000, Prot: r, Flags: file, Path: "/f"}, {Start: heapEnd - 0x1000, End: heapEnd + 0x1000, Prot: r | w, Flags: anon}}},
		// Parts of files have offsets, and each piece of shared memory is one object.
		{"files", line(a, a+0x1000, "r--p 0 08:01 9 /f") + line(a+0x1000, a+0x2000, "r--p 1000 08:01 9 /f"),
			[]image.Region{{Start: a, End: a + 0x1000, Prot: r, Flags: file, Path: "/f"}, {Start: a + 0x1000, End: a + 0x2000, Prot: r, Flags: file, Offset: 0x1000, Path: "/f"}}},
		{"shared", line(a, a+0x1000, "rw-s 0 00:01 9 /dev/zero (deleted)") + line(a+0x1000, a+0x2000, "rw-s 0 00:01 9 /dev/zero (deleted)"),
			[]image.Region{{Start: a, End: a + 0x1000, Prot: r | w, Flags: anon | shared}, {Start: a + 0x1000, End: a + 0x2000, Prot: r | w, Flags: anon | shared}}},
	} {
		got, err := parseMaps([]byte(c.maps))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
	if _, err := parseMaps([]byte(line(a, a+0x1000, plain) + "what is this\n")); err == nil {
		t.Error("a line that cannot be read was passed over")
	}
	// A path may be long; the kernel's limit is a page.
	long := "/" + strings.Repeat("x", 4000)
	if got, err := parseMaps([]byte(line(a, a+0x1000, "r--p 0 08:01 9 "+long))); err != nil || len(got) != 1 || got[0].Path != long {
		t.Errorf("long path: %v, %v", got, err)
	}
}

func TestUpper(t *testing.T) {
	const page = 4096
	for _, c := range []struct {
		name       string
		start, end uint64
		want       bool
	}{
		{"lowest", page, 2 * page, true},
		{"last below 2 GiB", LowEnd - page, LowEnd, true},
		{"over 2 GiB", LowEnd - page, LowEnd + page, false},
		{"first above 2 GiB", LowEnd, LowEnd + page, false},
		{"Go's heap", 0xc000000000, 0xc000400000, false},
		{"last below the arena", ArenaStart - page, ArenaStart, false},
		{"gate page", GatePage, GatePageEnd, false},
		{"behind the gate page", GatePageEnd, GatePageEnd + page, true},
		{"last before the tables", Tables - page, Tables, true},
		{"first of the tables", Tables, Tables + page, false},
		{"all of the tables", Tables, Tables + TablesBytes, false},
		{"last of the tables", Tables + TablesBytes - page, Tables + TablesBytes, false},
		{"behind the tables", Tables + TablesBytes, Tables + TablesBytes + page, true},
		{"last of the arena", ArenaEnd - page, ArenaEnd, true},
		{"behind the arena", ArenaEnd, ArenaEnd + page, false},
		{"out of the arena", ArenaEnd - page, ArenaEnd + page, false},
		{"stack", 0x7ffffffde000, 0x7ffffffff000, false},
		{"vsyscall", 0xffffffffff600000, 0xffffffffff601000, false},
	} {
		if got := upper(c.start, c.end); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
