// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// sample is a table with every kind of content.
func sample() Table {
	zero := 0
	return Table{
		Files: []File{
			{Kind: KindLauncher, Launcher: 1, Inode: &Inode{Dev: 1, Ino: 2, Size: 3}},
			{Kind: KindRegular, Path: "/a\\b\xff\n\"", Inode: &Inode{Tail: "00"}, Flags: 2},
			{Kind: KindUnlinked, Content: &zero},
			{Kind: KindPipe, Pipe: &zero},
			{Kind: KindTimerfd, Timer: &Timer{Left: 5}},
			{Kind: KindEpoll, Watches: []Watch{{FD: 3, Events: 1, Data: 1<<64 - 1}}},
		},
		Numbers: []Number{{FD: 1}, {FD: 3, File: 1, Locks: []Lock{{Kind: "ofd"}}}, {FD: 255, File: 5, Cloexec: true}},
		Pipes:   []Pipe{{Capacity: 4096, Bytes: 3, data: []byte("abc")}},
		Contents: []Content{{Name: "x", Size: 100, Extents: []Extent{
			{Offset: 0, Bytes: 2, data: []byte("hi")}, {Offset: 90, Bytes: 1, data: []byte("!")}}}},
	}
}

func TestDecodeRefusesEveryCut(t *testing.T) {
	table := sample()
	whole, err := table.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if _, err := Decode(whole[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes were accepted", n, len(whole))
		}
	}
	if _, err := Decode(append(bytes.Clone(whole), 0)); err == nil {
		t.Fatal("a byte too many was accepted")
	}
}

func TestValidateRefuses(t *testing.T) {
	one := 1
	for name, spoil := range map[string]func(*Table){
		"number too high":      func(t *Table) { t.Numbers[0].FD = MaxNumber + 1 },
		"number negative":      func(t *Table) { t.Numbers[0].FD = -1 },
		"number twice":         func(t *Table) { t.Numbers[1].FD = 1 },
		"file out of range":    func(t *Table) { t.Numbers[0].File = 6 },
		"unknown kind":         func(t *Table) { t.Files[0].Kind = "socket" },
		"launcher's fourth":    func(t *Table) { t.Files[0].Launcher = 3 },
		"no inode":             func(t *Table) { t.Files[1].Inode = nil },
		"content out of range": func(t *Table) { t.Files[2].Content = &one },
		"pipe out of range":    func(t *Table) { t.Files[3].Pipe = &one },
		"no timer":             func(t *Table) { t.Files[4].Timer = nil },
		"watch out of range":   func(t *Table) { t.Files[5].Watches[0].FD = MaxNumber + 1 },
		"pipe too full":        func(t *Table) { t.Pipes[0].Bytes = 5000 },
		"extent outside":       func(t *Table) { t.Contents[0].Extents[1].Offset = 100 },
		"extents overlap":      func(t *Table) { t.Contents[0].Extents[1].Offset = 1 },
		"unknown lock":         func(t *Table) { t.Numbers[1].Locks[0].Kind = "lease" },
		"negative offset":      func(t *Table) { t.Files[1].Offset = -1 },
	} {
		table := sample()
		if err := table.validate(); err != nil {
			t.Fatal(err)
		}
		spoil(&table)
		if table.validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestPathsKeepTheirBytes(t *testing.T) {
	for _, p := range []Path{"", "/a b", "/\xff\xfe", `/a\x41`, `\\`, "/ü/\xed\xa0\x80", "/new\nline"} {
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var back Path
		if err := json.Unmarshal(b, &back); err != nil || back != p {
			t.Errorf("%q became %q (%s): %v", p, back, b, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	table := sample()
	b, err := table.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:40])
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := Decode(b)
		if err != nil {
			return
		}
		again, err := table.Encode()
		if err != nil {
			t.Fatalf("decoded but does not encode: %v", err)
		}
		back, err := Decode(again)
		if err != nil {
			t.Fatalf("encoded but does not decode: %v", err)
		}
		if diff := cmp.Diff(table, back, cmp.AllowUnexported(Pipe{}, Extent{}), cmp.Comparer(bytes.Equal), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("changed on the way:\n%s", diff)
		}
	})
}

func FuzzFdinfo(f *testing.F) {
	f.Add("pos:\t0\nflags:\t02004002\nmnt_id:\t15\nino:\t1063\ntfd:        5 events:       1d data: ffffffffffffffff  pos:0 ino:61af sdev:7\n")
	f.Add("lock:\t1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 0 EOF\nlock:\t2: FLOCK  ADVISORY  READ 1 00:01:2 5 9\n")
	f.Add("clockid: 1\nticks: 2\nsettime flags: 01\nit_value: (0, 49406829)\nit_interval: (1, 0)\n")
	f.Add("eventfd-count:                7\neventfd-id: 3\neventfd-semaphore: 1\nsigmask:\t0000000000000800\n")
	f.Add("inotify wd:1 ino:2 sdev:3 mask:fce ignored_mask:0 fhandle-bytes:8 fhandle-type:1 f_handle:00\n")
	f.Fuzz(func(t *testing.T, text string) {
		info, err := parseFdinfo(text)
		if err != nil {
			return
		}
		for _, l := range info.locks {
			if l.Start < 0 || l.Len < 0 {
				t.Fatalf("lock %+v", l)
			}
		}
		if info.timer.Left < 0 || info.timer.Interval < 0 {
			t.Fatalf("timer %+v", info.timer)
		}
	})
}
