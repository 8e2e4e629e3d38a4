// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/regions"
	"github.com/libckpt/libckpt/ckpt/store"
)

const spanBase = 0x300000000000

// makeRegionsEpoch commits an epoch of regions mode: ranks 0 to 3 in two processes, each with two pieces of memory.
// The first piece begins with the doubles rank, rank+1, ...; the second is zero but for its last page.
func makeRegionsEpoch(t *testing.T, s *store.Store) {
	t.Helper()
	if err := s.Begin(1); err != nil {
		t.Fatal(err)
	}
	m := &store.Manifest{Libckpt: "1", Mode: "regions", Ranks: 4, Processes: 2, Program: "./p", MPI: store.MPI{Name: "none", ABI: "regions"}}
	for process := range 2 {
		table := regions.Table{}
		data := map[uint64][]byte{}
		for i := range 2 {
			rank := 2*process + i
			a := regions.Span{Base: spanBase + uint64(rank)<<24, Bytes: 2 * image.PageSize}
			b := regions.Span{Base: a.Base + 1<<20, Bytes: 4 * image.PageSize}
			table.Tasks = append(table.Tasks, regions.Task{Rank: rank, Spans: []regions.Span{a, b}})
			var doubles bytes.Buffer
			for n := range 2 * image.PageSize / 8 {
				_ = binary.Write(&doubles, binary.LittleEndian, float64(rank+n))
			}
			data[a.Base] = doubles.Bytes()
			data[b.Base] = make([]byte, b.Bytes)
			data[b.Base][b.Bytes-1] = byte(rank + 1)
		}
		section, err := table.Encode()
		if err != nil {
			t.Fatal(err)
		}
		list := table.Regions()
		for i := range list {
			list[i].Copied = image.CopiedAt(list[i].Start, data[list[i].Start])
		}
		sum, err := image.Write(t.Context(), s.ImagePath(1, process), image.Input{
			Meta:     testMeta(t, ckpt.Meta{Version: 1, Mode: "regions", Epoch: 1, Rank: process, Ranks: 2, Program: "./p", Dir: "/"}),
			Sections: []image.Section{{Name: "tasks", Data: section}}, Regions: list}, image.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		m.Images = append(m.Images, store.Image{Rank: process, Tasks: table.Ranks(), File: store.ImageName(process), Bytes: sum.Bytes,
			Digest: sum.Digest.String(), Payload: sum.PayloadBytes})
	}
	if err := s.Commit(1, m, nil); err != nil {
		t.Fatal(err)
	}
}

func regionsStore(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Create(filepath.Join(t.TempDir(), "ckpt"))
	if err != nil {
		t.Fatal(err)
	}
	makeRegionsEpoch(t, s)
	return s
}

func TestExportRegions(t *testing.T) {
	s := regionsStore(t)
	out := filepath.Join(t.TempDir(), "out")
	var r exportReport
	ctlJSON(t, &r, exitOK, "export", s.Dir(), "--out", out, "--rank", "3")
	if len(r.Files) != 2 || r.Files[0].Rank != 3 || r.Files[0].Start != "0x300003000000" {
		t.Fatalf("%+v", r)
	}
	b := mustReadFile(t, filepath.Join(out, r.Files[1].File))
	if len(b) != 4*image.PageSize || b[len(b)-1] != 4 || b[0] != 0 {
		t.Errorf("%d bytes, ends with %d", len(b), b[len(b)-1])
	}
	var index exportReport
	if err := json.Unmarshal(mustReadFile(t, filepath.Join(out, "index.json")), &index); err != nil || len(index.Files) != 2 {
		t.Errorf("index %+v, %v", index, err)
	}
	// All of them, as arrays.
	arrays := filepath.Join(t.TempDir(), "arrays")
	ctlJSON(t, &r, exitOK, "export", s.Dir(), "-o", arrays, "--format", "npy", "--dtype", "f8", "--shape", "100,5")
	if len(r.Files) != 8 {
		t.Fatalf("%+v", r)
	}
	b = mustReadFile(t, filepath.Join(arrays, "rank-00002-000.npy"))
	head := int(binary.LittleEndian.Uint16(b[8:])) + 10
	if string(b[:8]) != "\x93NUMPY\x01\x00" || head%64 != 0 || b[head-1] != '\n' ||
		!strings.HasPrefix(string(b[10:]), "{'descr': '<f8', 'fortran_order': False, 'shape': (100,5,), }") {
		t.Errorf("header %q", b[:min(head, 128)])
	}
	if len(b) != head+100*5*8 {
		t.Errorf("%d bytes", len(b))
	}
	var v float64
	if err := binary.Read(bytes.NewReader(b[head+8:]), binary.LittleEndian, &v); err != nil || v != 3 {
		t.Errorf("[0, 1] is %v, %v", v, err)
	}
	// NumPy itself reads it, where there is one.
	python := ""
	for _, p := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(p, "-c", "import numpy").Run() == nil {
			python = p
			break
		}
	}
	if python == "" {
		t.Skip("no python3 with numpy: the header was compared with the description of the format only")
	}
	said, err := exec.Command(python, "-c", `import numpy, sys
a = numpy.load(sys.argv[1])
print(a.shape, a.dtype, a[99, 4], a.flags.c_contiguous)`, filepath.Join(arrays, "rank-00002-000.npy")).CombinedOutput()
	if err != nil || string(said) != "(100, 5) float64 501.0 True\n" {
		t.Errorf("%v: %s", err, said)
	}
}

func mustReadFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestExportProcess(t *testing.T) {
	s := testStore(t)
	out := filepath.Join(t.TempDir(), "out")
	var r exportReport
	ctlJSON(t, &r, exitOK, "export", s.Dir()+"@2", "-o", out, "--range", "0x100040000800-0x100040001004", "--mapping", "[heap]")
	if len(r.Files) != 4 { // two ranks, two pieces
		t.Fatalf("%+v", r)
	}
	b := mustReadFile(t, filepath.Join(out, "rank-00001-000.raw"))
	if len(b) != 0x804 || b[0] != 2 || b[0x800] != 102 || b[0x801] != 2 {
		t.Errorf("%d bytes, %v", len(b), b[0x7fe:])
	}
	if b := mustReadFile(t, filepath.Join(out, "rank-00000-001.raw")); len(b) != testPages*image.PageSize || b[0] != 102 || b[1] != 1 {
		t.Errorf("the heap: %d bytes", len(b))
	}
	// A single image.
	one := filepath.Join(t.TempDir(), "one")
	ctlJSON(t, &r, exitOK, "export", s.ImagePath(2, 1), "-o", one, "--mapping", "[heap]")
	if b := mustReadFile(t, filepath.Join(one, "memory-000.raw")); len(b) != testPages*image.PageSize {
		t.Errorf("%d bytes", len(b))
	}
}

// What is wrong is said, and nothing is left behind.
func TestExportRefused(t *testing.T) {
	s, named := testStore(t), regionsStore(t)
	work := t.TempDir()
	pipe := filepath.Join(work, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(work, "torn.ckpt")
	b := mustReadFile(t, s.ImagePath(2, 0))
	if err := os.WriteFile(torn, b[:len(b)-200], 0o600); err != nil {
		t.Fatal(err)
	}
	rotten := filepath.Join(work, "rotten.ckpt")
	b = mustReadFile(t, named.ImagePath(1, 0))
	at := bytes.Index(b, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0x40}) // the doubles 1, 2
	if at < 0 {
		at = len(b) / 2
	}
	b[at] ^= 1
	if err := os.WriteFile(rotten, b, 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(work, "out")
	for _, c := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{s.Dir()}, exitUsage, "--range or --mapping"},
		{[]string{s.Dir(), "--range", "10"}, exitUsage, "START-END"},
		{[]string{s.Dir(), "--range", "0x2000-0x1000"}, exitUsage, "START-END"},
		{[]string{s.Dir(), "--range", "0x1000-0x2000"}, exitFailed, "nothing is mapped at 0x1000"},
		{[]string{s.Dir(), "--range", "0x100040007000-0x100040009000"}, exitFailed, "nothing is mapped at 0x100040008000"},
		{[]string{s.Dir(), "--mapping", "[stack]"}, exitFailed, "nothing to export: no image has a mapping \"[stack]\"; those with a name are [heap]"},
		{[]string{s.Dir(), "--mapping", "[heap]", "--mapping", "/lib/none.so"}, exitFailed, "no image has a mapping \"/lib/none.so\""},
		{[]string{s.Dir() + "@7", "--mapping", "[heap]"}, exitNone, "epoch 7 is not there"},
		{[]string{s.Dir(), "--mapping", "[heap]", "--rank", "2"}, exitUsage, "--rank 2"},
		{[]string{named.Dir(), "--format", "pickle"}, exitUsage, "raw or npy"},
		{[]string{named.Dir(), "--dtype", "f8"}, exitUsage, "--format npy"},
		{[]string{named.Dir(), "--format", "npy", "--dtype", "f3"}, exitUsage, "--dtype"},
		{[]string{named.Dir(), "--format", "npy", "--shape", "0"}, exitUsage, "no dimension"},
		{[]string{named.Dir(), "--format", "npy", "--shape", "9223372036854775807,8"}, exitFailed, "does not fit"},
		{[]string{pipe}, exitFailed, "pipe"},
		{[]string{torn, "--mapping", "[heap]"}, exitFailed, "footer"},
		{[]string{rotten}, exitFailed, "digest"},
		{[]string{filepath.Join(work, "none")}, exitFailed, "no such file"},
	} {
		status, _, said := ctl(t, append([]string{"export", "--out", out}, c.args...)...)
		if status != c.exit || !strings.Contains(said, c.want) {
			t.Errorf("%v: exit status %d: %s", c.args, status, said)
		}
	}
	if status, _, said := ctl(t, "export", named.Dir()); status != exitUsage || !strings.Contains(said, "--out") {
		t.Errorf("without --out: %d: %s", status, said)
	}
	if status, _, said := ctl(t, "export", named.Dir(), "--out", filepath.Join(work, "no", "out")); status != exitFailed || !strings.Contains(said, "--out") {
		t.Errorf("into nothing: %d: %s", status, said)
	}
	if status, _, said := ctl(t, "export", named.Dir(), "--out", torn); status != exitFailed || !strings.Contains(said, "there already") || strings.Contains(said, "--force") {
		t.Errorf("over a file: %d: %s", status, said)
	}
	left, err := os.ReadDir(work)
	if err != nil || len(left) != 3 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A full disk: a real one.
func TestExportDiskFull(t *testing.T) {
	disk := smallDisk(t, "16k")
	s := regionsStore(t)
	status, _, said := ctl(t, "export", s.Dir(), "--out", filepath.Join(disk, "out"))
	if status != exitFailed || !strings.Contains(said, "no space left") {
		t.Errorf("%d: %s", status, said)
	}
	if left, err := os.ReadDir(disk); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root: the full disk is not tested here")
	}
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no small file system: %v: the full disk is not tested here", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	return disk
}

// Memory that a program has named by numbers of its own: to the byte, with the dimensions that it gave.
func TestExportProtected(t *testing.T) {
	s, err := store.Create(filepath.Join(t.TempDir(), "ckpt"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(epoch int, section string) {
		t.Helper()
		if err := s.Begin(epoch); err != nil {
			t.Fatal(err)
		}
		m := &store.Manifest{Libckpt: "1", Mode: "regions", Ranks: 2, Program: "./p", MPI: store.MPI{Name: "none", ABI: "regions"}}
		for rank := range 2 {
			data := make([]byte, image.PageSize)
			for i := range 6 {
				binary.LittleEndian.PutUint32(data[4*i:], uint32(100*rank+i))
			}
			sum, err := image.Write(t.Context(), s.ImagePath(epoch, rank), image.Input{Meta: testMeta(t, ckpt.Meta{Version: 1, Mode: "regions", Program: "./p"}),
				Sections: []image.Section{{Name: "protected", Data: []byte(section)}},
				Regions:  []image.Region{{Start: 1 << 40, End: 1<<40 + image.PageSize, Prot: 3, Flags: image.FlagAnonymous, Copied: image.CopiedAt(1<<40, data)}}}, image.Options{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			m.Images = append(m.Images, store.Image{Rank: rank, File: store.ImageName(rank), Bytes: sum.Bytes, Digest: sum.Digest.String(), Payload: sum.PayloadBytes})
		}
		if err := s.Commit(epoch, m, nil); err != nil {
			t.Fatal(err)
		}
	}
	write(1, `{"version":1,"regions":[{"id":7,"bytes":24,"at":1099511627776,"block":{"whole":[4,3],"first":[0,0],"count":[2,3],"element":4}},
		{"id":9,"bytes":0,"at":2199023255552}]}`)
	out := filepath.Join(t.TempDir(), "out")
	var r exportReport
	ctlJSON(t, &r, exitOK, "export", s.Dir(), "--out", out, "--format", "npy", "--dtype", "i4")
	if len(r.Files) != 2 || r.Files[1].File != "rank-00001-id-7.npy" || r.Files[1].Bytes != 24 || len(r.Files[1].Shape) != 2 || r.Files[1].Shape[1] != 3 || r.Files[1].Block == nil {
		t.Fatalf("%+v", r)
	}
	b := mustReadFile(t, filepath.Join(out, "rank-00001-id-7.npy"))
	head := int(binary.LittleEndian.Uint16(b[8:])) + 10
	if len(b) != head+24 || !strings.Contains(string(b[:head]), "(2,3,)") || binary.LittleEndian.Uint32(b[head+20:]) != 105 {
		t.Errorf("%q", b)
	}
	var tree treeReport
	ctlJSON(t, &tree, exitOK, "inspect", "--tree", s.Dir())
	if k := tree.Images[0].Root.Children; len(k) != 1 || k[0].Name != kindNamed || k[0].Children[0].Name != "region 7" {
		t.Errorf("%+v", tree)
	}
	// Another type is an array of one dimension; raw is to the byte.
	ctlJSON(t, &r, exitOK, "export", s.Dir(), "--out", out+"8", "--format", "npy", "--dtype", "f8", "--rank", "0")
	if len(r.Files) != 1 || len(r.Files[0].Shape) != 1 || r.Files[0].Shape[0] != 3 {
		t.Errorf("%+v", r)
	}
	ctlJSON(t, &r, exitOK, "export", s.Dir(), "--out", out+"raw", "--rank", "0")
	if b := mustReadFile(t, filepath.Join(out+"raw", "rank-00000-id-7.raw")); len(b) != 24 {
		t.Errorf("%d bytes", len(b))
	}
	for n, c := range []struct{ section, want string }{
		{`{"version":2}`, "version 2"},
		{`{"version":1,"regions":[{"id":1,"bytes":5000,"at":1099511627776}]}`, "nothing is mapped"},
		{`{"version":1,"regions":[{"id":1,"bytes":18446744073709551615,"at":4096}]}`, "is in no image"},
		{`{"version":1`, "unexpected end"},
	} {
		write(n+2, c.section)
		if status, _, said := ctl(t, "export", s.Dir(), "--out", out+"bad"); status != exitFailed || !strings.Contains(said, c.want) {
			t.Errorf("%s: %d: %s", c.section, status, said)
		}
	}
}
