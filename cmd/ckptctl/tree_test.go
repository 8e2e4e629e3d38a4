// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt"
	"github.com/libckpt/libckpt/ckpt/image"
)

func TestInspectTree(t *testing.T) {
	const base = 0x102000000000
	page := func(n int, b byte) []byte { return bytes.Repeat([]byte{b}, n*image.PageSize) }
	at := func(n uint64) uint64 { return base + n*image.PageSize }
	path := filepath.Join(t.TempDir(), "one.ckpt")
	list := []image.Region{
		{Start: at(0), End: at(1), Prot: 5, Flags: image.FlagFile, Path: "/opt/bin/heat", Copied: image.CopiedAt(at(0), page(1, 1))},
		{Start: at(1), End: at(2), Prot: 3, Flags: image.FlagFile, Path: "/opt/bin/heat", Offset: 4096, Copied: image.CopiedAt(at(1), page(1, 1))},
		{Start: at(2), End: at(4), Prot: 3, Flags: image.FlagAnonymous, Copied: image.CopiedAt(at(2), page(2, 1))}, // its .bss
		{Start: at(10), End: at(12), Prot: 5, Flags: image.FlagFile, Path: "/lib/libm.so.6", Copied: image.CopiedAt(at(10), page(2, 1))},
		{Start: at(20), End: at(21), Prot: 1, Flags: image.FlagFile, Path: "/data/table", Copied: image.CopiedAt(at(20), page(1, 1))},
		{Start: at(30), End: at(130), Prot: 3, Flags: image.FlagAnonymous, Name: "[heap]", Copied: image.CopiedAt(at(30), append(page(90, 0), page(10, 7)...))},
		{Start: at(200), End: at(202), Prot: 3, Flags: image.FlagAnonymous | image.FlagStack, Name: "[stack]", Copied: image.CopiedAt(at(200), page(2, 1))},
		{Start: at(300), End: at(301), Prot: 3, Flags: image.FlagShared | image.FlagAnonymous, Name: "[shared 1]", Copied: image.CopiedAt(at(300), page(1, 1))},
		{Start: at(400), End: at(403), Prot: 3, Flags: image.FlagAnonymous, Copied: image.CopiedAt(at(400), page(3, 1))},
	}
	_, err := image.Write(t.Context(), path, image.Input{Meta: testMeta(t, ckpt.Meta{Version: 1, Program: "./heat"}), Sections: testSections(t), Regions: list},
		image.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	var r treeReport
	ctlJSON(t, &r, exitOK, "inspect", "--tree", path)
	root := r.Images[0].Root
	got := map[string]uint64{}
	for _, kind := range root.Children {
		got[kind.Name] = kind.Data / image.PageSize
	}
	want := map[string]uint64{kindProgram: 4, kindLibraries: 2, kindFiles: 1, kindHeap: 10, kindStacks: 2, kindShared: 1, kindAnonymous: 3}
	for k, n := range want {
		if got[k] != n {
			t.Errorf("%s: %d pages, want %d", k, got[k], n)
		}
	}
	if len(got) != len(want) || root.Data != 23*image.PageSize || root.Mappings != len(list) || root.Mapped != 113*image.PageSize {
		t.Errorf("%+v", root)
	}
	if root.Children[0].Name != kindHeap { // the largest first
		t.Errorf("first is %s", root.Children[0].Name)
	}
	_, out, _ := ctl(t, "inspect", "--tree", path)
	for _, line := range []string{"├─ program", "│  └─ /opt/bin/heat", "behind the file (.bss)", "/lib/libm.so.6", "0x10200001e000-0x102000082000 rw-"} {
		if !strings.Contains(out, line) {
			t.Errorf("no %q in:\n%s", line, out)
		}
	}
	// Regions mode: by rank.
	ctlJSON(t, &r, exitOK, "inspect", "--tree", "--all", regionsStore(t).Dir())
	if len(r.Images) != 2 || r.Images[1].Root.Children[0].Name != kindRanks || len(r.Images[1].Root.Children[0].Children) != 2 {
		t.Errorf("%+v", r)
	}
}

func TestDiffRegions(t *testing.T) {
	s := testStore(t)
	var r diffReport
	ctlJSON(t, &r, exitOK, "diff", s.Dir()+"@1", s.Dir()+"@2", "--regions")
	if len(r.Ranks) != 2 || len(r.Ranks[1].Regions) != 1 {
		t.Fatalf("%+v", r)
	}
	g := r.Ranks[1].Regions[0]
	if g.Name != "[heap]" || g.Changed != 3*image.PageSize || g.Same != (testPages-3)*image.PageSize || g.Start != "0x100040000000" {
		t.Errorf("%+v", g)
	}
	if _, out, _ := ctl(t, "diff", s.Dir(), "--regions"); !strings.Contains(out, "[heap]") {
		t.Error(out)
	}
}

func TestDu(t *testing.T) {
	s := testStore(t)
	if err := os.WriteFile(filepath.Join(s.EpochDir(1), "rank-00001.out-0"), make([]byte, 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	// Another name elsewhere: removing the epoch does not free it.
	if err := os.Link(filepath.Join(s.EpochDir(1), "rank-00001.out-0"), filepath.Join(s.Dir(), "elsewhere")); err != nil {
		t.Fatal(err)
	}
	var r duReport
	ctlJSON(t, &r, exitOK, "du", s.Dir(), "--keep", "1")
	if len(r.Epochs) != 3 || r.Epochs[2].State != stateIncomplete {
		t.Fatalf("%+v", r)
	}
	e := r.Epochs[0]
	st, err := os.Stat(s.ImagePath(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if e.Files != 5000 || len(e.Ranks) != 2 || e.Ranks[0].Bytes != st.Size() || e.Ranks[0].Memory+e.Ranks[0].Meta != uint64(st.Size()) ||
		e.Memory != e.Ranks[0].Memory+e.Ranks[1].Memory || e.Ranks[0].Kinds["snappy"] != e.Ranks[0].Memory {
		t.Errorf("%+v", e)
	}
	if r.Epochs[1].Freed != 0 || e.Freed == 0 || e.Freed != e.Disk-8192 || r.Freed != e.Freed { // but for the link
		t.Errorf("frees %d of %d, %d of %d", e.Freed, e.Disk, r.Freed, r.Disk)
	}
	ctlJSON(t, &r, exitOK, "du", s.Dir(), "--keep", "2")
	if r.Freed != 0 {
		t.Errorf("--keep 2 frees %d", r.Freed)
	}
	// What gc does is what du said.
	ctlJSON(t, &r, exitOK, "du", s.Dir(), "--keep", "1")
	before := r.Disk
	if status, _, said := ctl(t, "gc", s.Dir(), "--keep", "1"); status != exitOK {
		t.Fatal(said)
	}
	freed := r.Freed
	ctlJSON(t, &r, exitOK, "du", s.Dir(), "--keep", "1")
	if lease := uint64(16 << 10); before-r.Disk > freed || before-r.Disk+lease < freed { // gc leaves its lease
		t.Errorf("%d before, %d after, %d were to be freed", before, r.Disk, freed)
	}
	// A damaged image keeps nobody from adding up the rest.
	if err := os.Truncate(s.ImagePath(2, 1), 5000); err != nil {
		t.Fatal(err)
	}
	ctlJSON(t, &r, exitOK, "du", s.Dir())
	if len(r.Epochs[0].Errors) != 1 || !strings.Contains(r.Epochs[0].Errors[0], "rank-00001.ckpt") {
		t.Errorf("%+v", r.Epochs[0])
	}
	for _, args := range [][]string{{s.Dir() + "@9"}, {s.Dir(), "--keep", "0"}, {filepath.Join(s.Dir(), "none")}} {
		if status, _, said := ctl(t, append([]string{"du"}, args...)...); status == exitOK || said == "" {
			t.Errorf("%v: %d: %s", args, status, said)
		}
	}
}

func TestCopy(t *testing.T) {
	s := testStore(t)
	dest := filepath.Join(t.TempDir(), "a", "b")
	var r copyReport
	ctlJSON(t, &r, exitOK, "copy", s.Dir()+"@1", dest)
	if len(r.Epochs) != 1 || r.Epochs[0].Files != 2 {
		t.Errorf("%+v", r)
	}
	if status, out, said := ctl(t, "copy", s.Dir(), dest); status != exitOK || !strings.Contains(out, "ckptrun --restart "+dest+"@2") {
		t.Errorf("%d: %s%s", status, out, said)
	}
	if status, _, said := ctl(t, "verify", dest); status != exitOK {
		t.Error(said)
	}
	if status, out, _ := ctl(t, "copy", s.Dir(), dest); status != exitOK || !strings.Contains(out, "already") {
		t.Errorf("%d: %s", status, out)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(s.Dir(), link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{s.Dir(), s.Dir()}, exitUsage, "itself"},
		{[]string{s.Dir(), link}, exitUsage, "itself"},
		{[]string{s.Dir(), pipe}, exitFailed, "not a directory"},
		{[]string{s.Dir() + "@3", dest}, exitNone, "incomplete"},
		{[]string{s.Dir() + "@8", dest}, exitNone, "not there"},
		{[]string{s.Dir()}, exitUsage, "accepts 2 arg"},
	} {
		if status, _, said := ctl(t, append([]string{"copy"}, c.args...)...); status != c.exit || !strings.Contains(said, c.want) {
			t.Errorf("%v: %d: %s", c.args, status, said)
		}
	}
	full := smallDisk(t, "20k")
	if status, _, said := ctl(t, "copy", s.Dir(), filepath.Join(full, "ckpt")); status != exitFailed || !strings.Contains(said, "no space left") {
		t.Errorf("a full disk: %d: %s", status, said)
	}
	if list, _ := filepath.Glob(filepath.Join(full, "ckpt", "epoch-*")); len(list) > 0 {
		t.Errorf("left behind: %v", list)
	}
}
