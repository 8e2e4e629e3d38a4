// SPDX-License-Identifier: Apache-2.0

package sysv

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
)

// segment makes one, which is removed at the end.
func segment(t *testing.T, key, bytes int, text string) int {
	t.Helper()
	id, err := unix.SysvShmGet(key, bytes, unix.IPC_CREAT|unix.IPC_EXCL|0o640)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	b, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	copy(b, text)
	if err := unix.SysvShmDetach(b); err != nil {
		t.Fatal(err)
	}
	return id
}

// all are the program's addresses.
func all(uint64, uint64) bool { return true }

// room is memory for contents.
func room(n int) ([]byte, error) { return make([]byte, n), nil }

// save has one process save its segments.
func save(t *testing.T, ids []ID) ([]image.Region, []image.Section, []string) {
	t.Helper()
	h, err := Look(mapsNow(t), Table{IDs: [kinds][]ID{ids}}, all)
	if err != nil {
		t.Fatal(err)
	}
	obstacles := h.Match(0, []Report{h.Report()})
	var regions []image.Region
	for _, p := range h.Pieces() {
		regions = append(regions, image.Region{Start: p.Start, End: p.End, Offset: p.Offset, Prot: unix.PROT_READ | unix.PROT_WRITE,
			Path: "/SYSV00000000 (deleted)", Flags: image.FlagShared | image.FlagFile})
	}
	if err := h.Mark(regions); err != nil {
		t.Fatal(err)
	}
	sections, err := h.Sections(room)
	if err != nil {
		t.Fatal(err)
	}
	return regions, sections, obstacles
}

// restore begins to make them again.
func restore(t *testing.T, sections []image.Section, note string) *Restored {
	t.Helper()
	s, err := Decode(sections[0].Data, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	return Restore(s, 0, func(name string) ([]byte, error) {
		for _, one := range sections {
			if one.Name == name {
				return one.Data, nil
			}
		}
		return nil, fmt.Errorf("no section %s", name)
	}, note)
}

// A segment that nobody has attached is saved with its content, and made again with what can be seen of it. The program
// keeps the id; a segment that the killed restart has left is taken again, and none is left by a restart that fails.
func TestMadeAgain(t *testing.T) {
	key := 0x5e000000 | os.Getpid()
	id := segment(t, key, 5000, "content")
	note := filepath.Join(t.TempDir(), "note")
	_, sections, obstacles := save(t, []ID{{id, id, true}})
	if len(obstacles) > 0 {
		t.Fatal(obstacles)
	}
	if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil {
		t.Fatal(err)
	}
	var first int
	for life := range 3 {
		r := restore(t, sections, note)
		if err := r.Compare([]Word{r.Word()}); err != nil {
			t.Fatal(err)
		}
		made, err := r.Make()
		if err != nil || len(made) != 1 {
			t.Fatalf("life %d: %v %v", life, made, err)
		}
		r.Take([][]Made{made})
		real := made[0].Real
		if life == 0 {
			first = real
		} else if real != first {
			t.Errorf("life %d: %d is made, and %d of the former one is left", life, real, first)
		}
		ids := r.Table().IDs[Segments]
		if len(ids) != 1 || ids[0] != (ID{id, real, true}) {
			t.Errorf("ids: %v", ids)
		}
		if err := r.Done(life < 2); err != nil {
			t.Fatal(err)
		}
		ds, err := status(real)
		if life == 2 {
			if err == nil {
				t.Error("a restart that failed has left it")
			}
			break
		}
		if err != nil || int(ds.Perm.Key) != key || ds.Segsz != 5000 || ds.Perm.Mode != 0o640 || ds.Nattch != 0 {
			t.Fatalf("%+v %v", ds, err)
		}
		b, err := unix.SysvShmAttach(real, 0, 0)
		if err != nil || !strings.HasPrefix(string(b), "content") {
			t.Fatalf("%q %v", b[:10], err)
		}
		copy(b, "changed")
		if err := unix.SysvShmDetach(b); err != nil {
			t.Fatal(err)
		}
	}
}

// A key that somebody else uses is said, and nothing of theirs is touched.
func TestKeyTaken(t *testing.T) {
	key := 0x5f000000 | os.Getpid()
	id := segment(t, key, 5000, "ours")
	_, sections, _ := save(t, []ID{{id, id, true}})
	if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil {
		t.Fatal(err)
	}
	theirs := segment(t, key, 6000, "theirs")
	r := restore(t, sections, filepath.Join(t.TempDir(), "note"))
	_, err := r.Make()
	if err == nil || !strings.Contains(err.Error(), "its key is in use on host") {
		t.Errorf("%v", err)
	}
	b, err := unix.SysvShmAttach(theirs, 0, 0)
	if err != nil || !strings.HasPrefix(string(b), "theirs") {
		t.Fatalf("%q %v", b[:10], err)
	}
	_ = unix.SysvShmDetach(b)
}

// Parts of a segment are put back where they were.
func TestParts(t *testing.T) {
	id := segment(t, unix.IPC_PRIVATE, 3*pageSize, "")
	b, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] = byte('a' + i/pageSize)
	}
	regions, sections, obstacles := save(t, []ID{{id, id, true}})
	if len(regions) != 1 || len(obstacles) > 0 {
		t.Fatal(regions, obstacles)
	}
	if err := unix.SysvShmDetach(b); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil {
		t.Fatal(err)
	}
	r := restore(t, sections, filepath.Join(t.TempDir(), "note"))
	made, err := r.Make()
	if err != nil {
		t.Fatal(err)
	}
	r.Take([][]Made{made})
	middle := regions[0]
	middle.Start += pageSize
	middle.End = middle.Start + pageSize
	middle.Offset = pageSize
	if is, err := r.Attach(&middle); !is || err != nil {
		t.Fatal(is, err)
	}
	h, err := Look(mapsNow(t), r.Table(), all)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, p := range h.Pieces() {
		if p.Real == made[0].Real && p.Start == middle.Start {
			found = p.Offset == pageSize && p.End == middle.End
		}
	}
	if !found {
		t.Errorf("%#x is not there: %+v", middle.Start, h.Pieces())
	}
	_, _, _ = unix.Syscall(unix.SYS_MUNMAP, uintptr(middle.Start), pageSize, 0)
	if err := r.Done(false); err != nil {
		t.Fatal(err)
	}
}

// Who shares what is found out by all in the same way.
func TestMatch(t *testing.T) {
	here := Node{Host: "a", Boot: "1", IPC: 1}
	there := Node{Host: "b", Boot: "2", IPC: 1}
	one := func(real, pieces int, attached uint64, made bool) Held {
		return Held{Virtual: real + 100, Real: real, Pieces: pieces, Attached: attached, Made: made, Known: Known{Bytes: 1}}
	}
	reports := []Report{
		{Node: here, Held: []Held{one(1, 1, 2, true), one(2, 0, 0, true), one(3, 0, 5, false)}},
		{Node: here, Held: []Held{one(1, 1, 2, false), one(4, 1, 3, false)}},
		{Node: there, Held: []Held{one(1, 1, 1, true)}, Taken: []int{7}},
	}
	h := &Here{report: reports[1]}
	obstacles := h.Match(1, reports)
	if len(obstacles) != 1 || !strings.Contains(obstacles[0], "System V segment 104 (1 bytes, private) is attached by a process outside the job, too") {
		t.Errorf("%q", obstacles)
	}
	got := ""
	for _, s := range h.saved {
		got += fmt.Sprintf("%d of %v by %d; ", s.Virtual, s.Holders, s.Leader)
	}
	if want := "101 of [0 1] by 0; 102 of [] by 0; 104 of [1] by 1; "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if fmt.Sprint(h.taken) != "[7 101 102 103 104]" {
		t.Errorf("taken: %v", h.taken)
	}
	if obstacles := (&Here{report: reports[0]}).Match(0, reports); len(obstacles) > 0 {
		t.Errorf("rank 0 says %q of what is rank 1's", obstacles)
	}
}

// Ranks that shared a segment are on one node again, or the restart is refused.
func TestCompare(t *testing.T) {
	s := Section{Segments: []Saved{{Virtual: 5, Holders: []int{0, 1}, Known: Known{Bytes: 10, Key: 3}}}}
	words := []Word{{Node: Node{Host: "a", Boot: "1"}}, {Node: Node{Host: "b", Boot: "2"}}, {Node: Node{Host: "c", Boot: "3"}}}
	for rank, want := range []string{
		"the System V segment 5 (10 bytes, key 0x3) was shared by ranks [0 1] on one node, but rank 0 is on host a, rank 1 on host b: start these ranks on one node", "", "",
	} {
		if rank == 1 {
			continue
		}
		got := ""
		if err := Restore(s, rank, nil, "").Compare(words); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("rank %d: %q, want %q", rank, got, want)
		}
	}
}

// No bytes make it fail otherwise than by an error.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"segments":[{"virtual":1,"real":2,"leader":0,"bytes":5,"holders":[0,1]}],"taken":[1]}`))
	f.Add([]byte(`{"segments":[{"virtual":-1}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b, 0, 2)
		if err != nil {
			return
		}
		for _, one := range s.Segments {
			if one.Bytes == 0 || one.Leader > 1 || len(one.Holders) > 2 {
				t.Errorf("%+v", one)
			}
		}
	})
}

// residentOf counts the pages of a segment that are real.
func residentOf(t *testing.T, id int) int {
	t.Helper()
	b, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.SysvShmDetach(b) }()
	in := make([]byte, (len(b)+page-1)/page)
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&in[0]))); e != 0 {
		t.Fatal(e)
	}
	return bytes.Count(in, []byte{1})
}

// A large segment of which little is used stays so: what is saved, what is left by a restart, and what is made again.
func TestNearlyEmpty(t *testing.T) {
	const size, at = 64<<20 + 100, 40<<20 + 5
	id := segment(t, unix.IPC_PRIVATE, size, "begin")
	b, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	copy(b[at:], "middle")
	copy(b[size-3:], "end")
	if err := unix.SysvShmDetach(b); err != nil {
		t.Fatal(err)
	}
	if n := residentOf(t, id); n != 3 {
		t.Fatalf("%d pages are real", n)
	}
	_, sections, obstacles := save(t, []ID{{id, id, true}})
	if len(obstacles) > 0 {
		t.Fatal(obstacles)
	}
	if n := residentOf(t, id); n != 3 {
		t.Errorf("%d pages are real after it is saved", n)
	}
	note := filepath.Join(t.TempDir(), "note")
	for range 2 { // the second finds what the first has left
		r := restore(t, sections, note)
		if err := r.Compare([]Word{r.Word()}); err != nil {
			t.Fatal(err)
		}
		made, err := r.Make()
		if err != nil || len(made) != 1 {
			t.Fatalf("%v %v", made, err)
		}
		r.Take([][]Made{made})
		if err := r.Done(true); err != nil {
			t.Fatal(err)
		}
		real := made[0].Real
		t.Cleanup(func() { _, _ = unix.SysvShmCtl(real, unix.IPC_RMID, nil) })
		if n := residentOf(t, real); n > 4 { // with one that was written meanwhile
			t.Errorf("%d pages are real after it is made again", n)
		}
		b, err := unix.SysvShmAttach(real, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if string(b[:6]) != "begin\x00" || string(b[at:at+7]) != "middle\x00" || string(b[size-3:size]) != "end" || b[20<<20] != 0 {
			t.Errorf("it holds %q, %q, %q, %d", b[:6], b[at:at+7], b[size-3:size], b[20<<20])
		}
		b[20<<20] = 1 // gone in the next life
		if err := unix.SysvShmDetach(b); err != nil {
			t.Fatal(err)
		}
	}
}

func mapsNow(t *testing.T) []byte {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return maps
}
