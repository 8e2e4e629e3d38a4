// SPDX-License-Identifier: Apache-2.0

package posixshm

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/shm"
	"github.com/libckpt/libckpt/internal/needmpi"
)

func never(uint64, uint64) bool { return false }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inMemoryFile makes a file in memory, which is removed at the end if it is still there.
func inMemoryFile(t *testing.T, name string, size int64) *os.File {
	t.Helper()
	f, err := os.OpenFile(fmt.Sprintf("%s/posixshm-test-%d-%s", shm.Dir, os.Getpid(), name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
	must(t, err)
	t.Cleanup(func() {
		f.Close()
		_ = os.Remove(f.Name())
	})
	must(t, f.Truncate(size))
	return f
}

// mapped maps a part of a file, and says what a list of the program's memory has of it.
func mapped(t *testing.T, f *os.File, offset int64, n int) (image.Region, []byte) {
	t.Helper()
	b, err := unix.Mmap(int(f.Fd()), offset, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	t.Cleanup(func() { _ = unix.Munmap(b) })
	start := uint64(uintptr(unsafe.Pointer(&b[0])))
	r := image.Region{Start: start, End: start + uint64(n+pageSize-1)&^(pageSize-1), Offset: uint64(offset),
		Prot: unix.PROT_READ | unix.PROT_WRITE, Flags: image.FlagShared | image.FlagFile}
	return r, b
}

// paths asks the kernel what regions are called.
func paths(t *testing.T, regions []image.Region) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	for i := range regions {
		for line := range strings.Lines(string(maps)) {
			if f := strings.SplitN(strings.TrimSpace(line), " ", 6); strings.HasPrefix(f[0], fmt.Sprintf("%x-", regions[i].Start)) && len(f) == 6 {
				regions[i].Path = strings.TrimLeft(f[5], " ")
			}
		}
	}
}

// Files in memory are taken, under the names that they have now, and those without a name; others are not.
func TestMark(t *testing.T) {
	stays, gone, renamed := inMemoryFile(t, "stays", 2*pageSize+10), inMemoryFile(t, "gone", pageSize), inMemoryFile(t, "first", 32)
	onDisk, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	must(t, err)
	defer onDisk.Close()
	must(t, onDisk.Truncate(pageSize))
	fd, err := unix.MemfdCreate("ring", unix.MFD_CLOEXEC)
	must(t, err)
	ring := os.NewFile(uintptr(fd), "ring")
	defer ring.Close()
	must(t, ring.Truncate(pageSize))

	var regions []image.Region
	add := func(f *os.File, offset int64, n int) {
		r, _ := mapped(t, f, offset, n)
		regions = append(regions, r)
	}
	add(stays, 0, pageSize)
	add(stays, pageSize, pageSize+10)
	add(gone, 0, pageSize)
	add(renamed, 0, 32)
	add(onDisk, 0, pageSize)
	add(ring, 0, pageSize)
	// As sem_open does: the file that is mapped gets its name when it is complete.
	second := strings.Replace(renamed.Name(), "first", "second", 1)
	must(t, os.Link(renamed.Name(), second))
	defer os.Remove(second)
	must(t, os.Remove(renamed.Name()))
	must(t, os.Remove(gone.Name()))
	paths(t, regions)
	private := regions[0]
	private.Flags = image.FlagFile
	regions = append(regions, private)

	sealed := append([]image.Region(nil), regions...)
	if _, obstacles, err := Mark(sealed, 0, nil, func(_, ino uint64) bool { return ino != 0 }); err != nil || len(obstacles) != 5 || !strings.Contains(obstacles[4], `"ring"`) {
		t.Errorf("sealed: %q, %v", obstacles, err)
	}
	s, obstacles, err := Mark(regions, 0, nil, never)
	if err != nil || len(obstacles) != 0 || s == nil {
		t.Fatalf("%v, %v, %v", s, obstacles, err)
	}
	want := []Saved{
		{Path: stays.Name(), Named: true, Bytes: 2*pageSize + 10, Mode: 0o640, Pieces: [][2]uint64{{0, pageSize}, {pageSize, 3 * pageSize}}},
		{Path: gone.Name(), Bytes: pageSize, Mode: 0o600, Pieces: [][2]uint64{{0, pageSize}}},
		{Path: second, Named: true, Bytes: 32, Mode: 0o640, Pieces: [][2]uint64{{0, pageSize}}},
		{Path: "ring", Memory: true, Bytes: pageSize, Mode: 0o600, Pieces: [][2]uint64{{0, pageSize}}},
	}
	if diff := cmp.Diff(want, s.Files, cmpopts.IgnoreFields(Saved{}, "Dev", "Ino", "UID", "GID", "Mtime")); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	var names []string
	for _, r := range regions {
		names = append(names, r.Name+r.Path)
	}
	if diff := cmp.Diff([]string{"[posix 0]", "[posix 0]", "[posix 1]", "[posix 2]", onDisk.Name(), "[posix 3]", stays.Name()}, names); diff != "" {
		t.Errorf("regions (-want +got):\n%s", diff)
	}
	b, err := s.Encode()
	must(t, err)
	again, err := Decode(b)
	if diff := cmp.Diff(*s, again); diff != "" || err != nil {
		t.Errorf("read again: %v\n%s", err, diff)
	}
	if diff := cmp.Diff(map[string]bool{stays.Name(): true, second: true}, s.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// Of each part one process has the content: the first that may write to it, or whoever reads what nobody writes.
func TestSaved(t *testing.T) {
	file := mapping{1, 2}
	writes := func(pieces ...[2]uint64) *Report {
		return &Report{Boot: "b", Files: []Writes{{Dev: 1, Ino: 2, Pieces: pieces}}}
	}
	page := func(from, to uint64) [2]uint64 { return [2]uint64{from * pageSize, to * pageSize} }
	reads, elsewhere, all := writes(), writes(page(0, 4)), writes(page(0, 4))
	elsewhere.Boot = "c"
	halves := writes(page(0, 2))
	rest := writes(page(2, 3), page(3, 4))
	for _, c := range []struct {
		name     string
		reports  []*Report
		rank     int
		writable bool
		saved    bool
	}{
		{"first", []*Report{all, all}, 0, true, false},
		{"second", []*Report{all, all}, 1, true, true},
		{"no report", []*Report{all, nil}, 1, true, false},
		{"other host", []*Report{elsewhere, all}, 1, true, false},
		{"half", []*Report{halves, all}, 1, true, false},
		{"halves", []*Report{halves, nil, rest, all}, 3, true, true},
		{"reader", []*Report{reads, all}, 0, false, true},
		{"readers", []*Report{reads, reads}, 1, false, false},
		{"reader of halves", []*Report{reads, rest, halves}, 0, false, true},
		{"nothing", nil, 0, true, false},
	} {
		r := image.Region{Start: 1 << 40, End: 1<<40 + 4*pageSize, Prot: unix.PROT_READ}
		if c.writable {
			r.Prot |= unix.PROT_WRITE
		}
		if got := saved(c.reports, c.rank, file, &r); got != c.saved {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	f := inMemoryFile(t, "look", 3*pageSize)
	first, _ := mapped(t, f, 0, pageSize)
	second, _ := mapped(t, f, pageSize, 2*pageSize)
	got, err := Look(mapsNow(t), func(start, _ uint64) bool { return start == first.Start || start == second.Start })
	var st unix.Stat_t
	must(t, unix.Fstat(int(f.Fd()), &st))
	want := []Writes{{st.Dev, st.Ino, [][2]uint64{page(0, 1), page(1, 3)}}}
	if first.Start > second.Start { // as the kernel lists them
		want[0].Pieces = [][2]uint64{page(1, 3), page(0, 1)}
	}
	if err != nil || got == nil || got.Boot == "" {
		t.Fatalf("%v, %v", got, err)
	}
	if first.End == second.Start { // one mapping to the kernel
		want[0].Pieces = [][2]uint64{page(0, 3)}
	}
	if diff := cmp.Diff(want, got.Files); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if got, err := Look(mapsNow(t), func(uint64, uint64) bool { return false }); got != nil || err != nil {
		t.Errorf("nothing of the program's: %v, %v", got, err)
	}
}

// imageWith is an image with a page of each file, filled with its number and one.
func imageWith(t *testing.T, s Section) *image.File {
	t.Helper()
	return imageFor(t, s, unix.PROT_READ|unix.PROT_WRITE)
}

func imageFor(t *testing.T, s Section, prot uint32) *image.File {
	t.Helper()
	b, err := s.Encode()
	must(t, err)
	in := image.Input{Meta: []byte("{}"), Sections: []image.Section{{Name: SectionName, Data: b}}}
	for n := range s.Files {
		start := uint64(1<<40 + n<<20)
		for _, p := range s.Files[n].Pieces {
			in.Regions = append(in.Regions, image.Region{Start: start + p[0], End: start + p[1], Offset: p[0], Name: regionName(n),
				Prot: prot, Flags: image.FlagShared | image.FlagAnonymous, Copied: image.CopiedAt(start+p[0], bytes.Repeat([]byte{byte(n + 1)}, int(p[1]-p[0])))})
		}
	}
	path := filepath.Join(t.TempDir(), "image")
	_, err = image.Write(t.Context(), path, in, image.Options{NoSync: true})
	must(t, err)
	f, err := image.Open(path)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// job are the processes of a restart, all here.
func job(t *testing.T, sections ...Section) (all []*Restored, words []Word) {
	t.Helper()
	for rank, s := range sections {
		r, err := Restore(imageWith(t, s), rank)
		must(t, err)
		all, words = append(all, r), append(words, r.Word())
	}
	return all, words
}

func testName(name string) string {
	return fmt.Sprintf("%s/posixshm-test-%d-%s", shm.Dir, os.Getpid(), name)
}

// What processes shared they share again, each by its name, or without one; nothing else is left.
func TestMadeAgain(t *testing.T) {
	name := testName("again")
	defer os.Remove(name)
	page := [][2]uint64{{0, pageSize}}
	first := Section{Boot: "b", Files: []Saved{
		{Dev: 1, Ino: 1, Path: testName("creator"), Bytes: pageSize, Mode: 0o600, Pieces: page}, // as sem_open: a name that only the other knows
		{Dev: 1, Ino: 2, Path: testName("gone"), Bytes: pageSize, Mode: 0o600, Pieces: page},
		{Dev: 2, Ino: 1, Path: "ring", Memory: true, Bytes: pageSize, Mode: 0o600, Pieces: page},
		{Dev: 2, Ino: 2, Path: "both", Memory: true, Bytes: pageSize, Mode: 0o600, Pieces: page},
	}}
	second := Section{Boot: "b", Files: []Saved{
		{Dev: 1, Ino: 2, Path: testName("other"), Bytes: pageSize, Mode: 0o600, Pieces: page},
		{Dev: 1, Ino: 1, Path: name, Named: true, Bytes: 40, Mode: 0o604, Mtime: 1e18, Pieces: page},
		{Dev: 2, Ino: 2, Path: "both", Memory: true, Bytes: pageSize, Mode: 0o600, Pieces: page},
	}}
	all, words := job(t, first, second, Section{})
	for _, step := range []func(*Restored) error{func(r *Restored) error { return r.Compare(words) }, (*Restored).Make, (*Restored).Open, (*Restored).Clear} {
		for _, r := range all {
			must(t, step(r))
		}
	}
	for _, r := range all {
		r.Unname()
	}
	same := func(a, b *os.File) bool {
		x, err1 := a.Stat()
		y, err2 := b.Stat()
		return err1 == nil && err2 == nil && os.SameFile(x, y)
	}
	file := func(rank, n int) *os.File {
		t.Helper()
		f, err := all[rank].File(&image.Region{Name: regionName(n), Flags: image.FlagShared | image.FlagAnonymous})
		if err != nil || f == nil {
			t.Fatalf("rank %d, file %d: %v, %v", rank, n, f, err)
		}
		return f
	}
	for _, c := range [][2]int{{0, 1}, {1, 0}, {3, 2}} {
		if !same(file(0, c[0]), file(1, c[1])) {
			t.Errorf("file %d of rank 0 is not file %d of rank 1", c[0], c[1])
		}
	}
	if same(file(0, 2), file(0, 3)) || !same(all[0].Unnamed(2, 1), file(0, 2)) || all[0].Unnamed(1, 1) != nil {
		t.Error("a memory file is not what it was")
	}
	for _, r := range all {
		r.Done(true)
	}
	st, err := os.Stat(name)
	if err != nil || st.Size() != 40 || st.Mode().Perm() != 0o604 {
		t.Errorf("%v, %v", st, err)
	}
	if left, _ := filepath.Glob(shm.Dir + "/libckpt-posix-" + words[0].Nonce + "*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if f, err := all[0].File(&image.Region{Name: "[sysv 0]", Flags: image.FlagShared | image.FlagAnonymous}); f != nil || err != nil {
		t.Errorf("another region: %v, %v", f, err)
	}
}

// A file that is there is used, and emptied where the image has it: pages of zeros are not in it.
func TestThereStill(t *testing.T) {
	f := inMemoryFile(t, "there", 3*pageSize)
	_, err := f.Write(bytes.Repeat([]byte{9}, 3*pageSize))
	must(t, err)
	all, words := job(t, Section{Boot: "b", Files: []Saved{{Dev: 1, Ino: 1, Path: f.Name(), Named: true, Bytes: 2 * pageSize, Mode: 0o640, Pieces: [][2]uint64{{0, pageSize}}}}})
	r := all[0]
	must(t, r.Compare(words))
	must(t, r.Make())
	must(t, r.Open())
	must(t, r.Clear())
	r.Done(false)
	b, err := os.ReadFile(f.Name())
	if err != nil || len(b) != 3*pageSize || b[0] != 0 || b[pageSize-1] != 0 || b[pageSize] != 9 {
		t.Errorf("%d bytes, %v: %d, %d, %d", len(b), err, b[0], b[pageSize-1], b[pageSize])
	}
}

// A file that is there and has another size since gets back what it had.
func TestOtherSize(t *testing.T) {
	for _, size := range []int64{0, 10, 3 * pageSize} {
		f := inMemoryFile(t, fmt.Sprint("size-", size), size)
		all, words := job(t, Section{Boot: "b", Files: []Saved{{Dev: 1, Ino: 1, Path: f.Name(), Named: true, Bytes: pageSize - 5, Mode: 0o640, Pieces: [][2]uint64{{0, pageSize}}}}})
		must(t, all[0].Compare(words))
		must(t, all[0].Make())
		if st, err := f.Stat(); err != nil || st.Size() != size {
			t.Errorf("it was touched before all could have refused: %v, %v", st, err)
		}
		must(t, all[0].Open())
		must(t, all[0].Clear())
		if st, err := f.Stat(); err != nil || st.Size() != pageSize-5 {
			t.Errorf("of %d bytes: %v, %v", size, st, err)
		}
		all[0].Done(true)
	}
}

// A file that is there and that the job only reads is left as it is; the program has what it had.
func TestOnlyRead(t *testing.T) {
	f := inMemoryFile(t, "read", pageSize)
	_, err := f.WriteString("of somebody else")
	must(t, err)
	s := Section{Boot: "b", Files: []Saved{{Dev: 1, Ino: 1, Path: f.Name(), Named: true, Bytes: pageSize, Mode: 0o640, Pieces: [][2]uint64{{0, pageSize}}}}}
	r, err := Restore(imageFor(t, s, unix.PROT_READ), 0)
	must(t, err)
	must(t, r.Compare([]Word{r.Word()}))
	must(t, r.Make())
	must(t, r.Open())
	must(t, r.Clear())
	file, err := r.File(&image.Region{Name: regionName(0), Flags: image.FlagShared | image.FlagAnonymous})
	if file != nil || err != nil {
		t.Errorf("it is mapped of %v, %v", file, err)
	}
	r.Done(true)
	if b, err := os.ReadFile(f.Name()); err != nil || !bytes.HasPrefix(b, []byte("of somebody else")) {
		t.Errorf("the file has %q, %v", b[:20], err)
	}
}

// What cannot be made again is refused before anything is touched, in words that name the file and what to do.
func TestNotMadeAgain(t *testing.T) {
	page := [][2]uint64{{0, pageSize}}
	small := inMemoryFile(t, "small", 10)
	named := func(path string, bytes int64) Section {
		return Section{Boot: "b", Files: []Saved{{Dev: 1, Ino: 1, Path: path, Named: true, Bytes: bytes, Mode: 0o600, Pieces: page}}}
	}
	away := shm.Node{Host: "far", Boot: "other"}
	for _, c := range []struct {
		name     string
		sections []Section
		change   func(words []Word)
		words    string
	}{
		{"two nodes", []Section{named(testName("x"), pageSize), named(testName("x"), pageSize)}, func(w []Word) { w[1].Node = away },
			"was shared by ranks of one node, but rank 0 is on host"},
		{"two containers", []Section{named(testName("x"), pageSize), named(testName("x"), pageSize)}, func(w []Word) { w[1].Node.Device++ },
			"have different file systems at /dev/shm: start these ranks on one node"},
		{"one node", []Section{named(testName("x"), pageSize), named(testName("x"), pageSize)}, func(w []Word) { w[1].Boot = "c" },
			"start these ranks on two nodes"},
		{"wrong", []Section{named(testName("x"), pageSize), named(testName("x"), pageSize)}, func(w []Word) { w[1].Wrong = "no /dev/shm" },
			"rank 1: no /dev/shm"},
		{"a part", []Section{named(testName("x"), 3*pageSize)}, nil, "put it back where it was: the ranks had only parts of it mapped"},
		{"smaller", []Section{named(small.Name(), 3*pageSize)}, nil, "it has 10 bytes, 12288 are needed"},
		{"folder", []Section{named(shm.Dir, pageSize)}, nil, "something else has its name now"},
		{"behind the end", []Section{named(testName("x"), 0)}, nil, "which end before what the image has of it"},
		{"no folder", []Section{named(shm.Dir+"/no/such", pageSize)}, nil, "make it in /dev/shm/no"},
	} {
		all, words := job(t, c.sections...)
		if c.change != nil {
			c.change(words)
		}
		all[0].mine = words[0]
		err := all[0].Compare(words)
		if err == nil {
			err = all[0].Make()
		}
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %q", c.name, err, c.words)
		}
		all[0].Done(false)
		if _, err := os.Stat(testName("x")); err == nil {
			t.Errorf("%s: the file is there", c.name)
		}
	}
}

// A file system in memory that has no room is said so: whoever writes to a page for which there is none is killed.
func TestNoRoom(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		needmpi.Skip(t, "no mounts", fmt.Sprintf("mount a tmpfs: %v", err))
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	const size = 40 * pageSize
	all, words := job(t, Section{Boot: "b", Files: []Saved{{Dev: 1, Ino: 1, Path: dir + "/large", Named: true, Bytes: size, Mode: 0o600, Pieces: [][2]uint64{{0, size}}}}})
	must(t, all[0].Compare(words))
	must(t, all[0].Make())
	must(t, all[0].Open())
	if err := all[0].Clear(); err == nil || !strings.Contains(err.Error(), dir+"/large: its file system has no room for what it had") {
		t.Errorf("it says %v", err)
	}
	all[0].Done(false)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// A restart that fails later leaves no file that it has made.
func TestMadeForNothing(t *testing.T) {
	all, words := job(t, Section{Boot: "b", Files: []Saved{
		{Dev: 1, Ino: 1, Path: testName("nothing"), Named: true, Bytes: pageSize, Mode: 0o600, Pieces: [][2]uint64{{0, pageSize}}},
		{Dev: 1, Ino: 2, Path: testName("less"), Bytes: pageSize, Mode: 0o600, Pieces: [][2]uint64{{0, pageSize}}},
	}})
	must(t, all[0].Compare(words))
	must(t, all[0].Make())
	if _, err := os.Stat(testName("nothing")); err != nil {
		t.Error(err)
	}
	all[0].Done(false)
	left, _ := filepath.Glob(shm.Dir + "/libckpt-posix-" + words[0].Nonce + "*")
	if _, err := os.Stat(testName("nothing")); err == nil || len(left) > 0 {
		t.Errorf("it is left, and %v", left)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"boot":"b","files":[{"dev":1,"ino":2,"path":"/dev/shm/x","named":true,"bytes":4096,"mode":384,"pieces":[[0,4096]]}]}`,
		`{"boot":"b","files":[{"dev":1,"ino":2,"path":"x","memory":true,"bytes":1,"mode":384,"pieces":[]}]}`,
		`{"files":[{"path":"/"}]}`, `{"files":[{"path":"/a/../b"}]}`, `{"files":[{"path":"/a","bytes":-1}]}`, `{}`, `[`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b)
		if err != nil {
			return
		}
		again, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		other, err := Decode(again)
		if err != nil {
			t.Fatalf("%q: %v", again, err)
		}
		if diff := cmp.Diff(s, other, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
		words := []Word{{Section: s}, {Section: other}}
		for i := range s.Files {
			_ = words[1].find(s.Boot, &s.Files[i])
			_ = covers(s.Files[i].Pieces, 0, uint64(s.Files[i].Bytes))
		}
	})
}

func mapsNow(t *testing.T) []byte {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return maps
}
