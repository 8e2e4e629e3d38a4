// SPDX-License-Identifier: Apache-2.0

package regions

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const page = 4096

func room(t *testing.T, pages int) uint64 {
	t.Helper()
	b, err := unix.Mmap(-1, 0, pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return uint64(addressOf(b))
}

func TestSet(t *testing.T) {
	program := Program{Path: "p", Build: "b"}
	s, at := NewSet(program), room(t, 8)
	for _, one := range []struct {
		rank int
		span Span
		want string
	}{
		{3, Span{at, page, false}, ""},
		{1, Span{at + 4*page, 2 * page, true}, ""},
		{3, Span{at + 2*page, page, false}, ""},
		{2, Span{at + 5*page, page, false}, "overlaps"},
		{2, Span{at + 1, page, false}, "whole pages"},
		{2, Span{at + 7*page, 0, false}, "empty"},
		{2, Span{1 << 63, page, false}, "kernel's half"},
		{-1, Span{at + 7*page, page, false}, "no rank"},
		{2, Span{16 * page, page, false}, "not mapped"},
	} {
		if err := s.Add(one.rank, one.span); (err == nil) != (one.want == "") || err != nil && !strings.Contains(err.Error(), one.want) {
			t.Errorf("%d, %v: %v, want %q", one.rank, one.span, err, one.want)
		}
	}
	table := s.Table(true)
	if !slices.Equal(table.Ranks(), []int{1, 3}) || len(table.Spans(3)) != 2 || table.Spans(2) != nil {
		t.Errorf("%+v", table)
	}
	b, err := table.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Decode(b)
	if err != nil || !reflect.DeepEqual(back, table) {
		t.Errorf("%v: %+v, want %+v", err, back, table)
	}
	if err := back.CheckRegions(table.Regions()); err != nil {
		t.Error(err)
	}
	if err := back.CheckRegions(table.Regions()[1:]); err == nil {
		t.Error("an image that lacks memory of a rank is taken")
	}
	if rank, is := s.Holder(at + 5*page); !is || rank != 1 {
		t.Errorf("rank %d, %v", rank, is)
	}
	if err := s.Remove(1, at); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if err := s.Remove(1, at+4*page); err != nil || s.Has(1) || !s.Has(3) {
		t.Error(err, s.Has(1), s.Has(3))
	}
}

// Programs are compiled as the conditions want it, and as they do not.
func TestProgram(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Fatalf("%v: make setup installs it", err)
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "p.c")
	if err := os.WriteFile(source, []byte("#include <string.h>\nint main(int n, char **v) { char b[64]; strcpy(b, v[0]); return b[n]; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	builds := map[string]string{}
	for _, c := range []struct{ flags, want string }{
		{"-no-pie -fno-stack-protector", ""},
		{"-no-pie -fno-stack-protector -DX -O1", ""},
		{"-no-pie -fno-stack-protector -Wl,--build-id=none", ""},
		{"-no-pie -fstack-protector-all", "-fno-stack-protector"},
		{"-pie -fPIE -fno-stack-protector", "-no-pie"},
	} {
		out := filepath.Join(dir, "p")
		if text, err := exec.Command(gcc, append(strings.Fields(c.flags), "-w", "-o", out, source)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		f, err := os.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		p, err := describe(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		if other, there := builds[p.Build]; there || len(p.Build) < 16 {
			t.Errorf("%s: build %q is that of %s, too", c.flags, p.Build, other)
		}
		builds[p.Build] = c.flags
		if err := p.CheckCode(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.flags, err, c.want)
		}
	}
	self, err := Self()
	if err != nil || self.Build == "" {
		t.Errorf("%+v, %v", self, err)
	}
	if err := self.SameBuild(&Table{Program: Program{Build: "another"}}); !errors.Is(err, ErrBuild) {
		t.Error(err)
	}
}

func TestDecode(t *testing.T) {
	for text, want := range map[string]string{
		`{"version":2}`:                      "version 2",
		`{"version":1,"tasks":[{"rank":0}]}`: "no memory",
		`{"version":1,"tasks":[{"rank":-1,"spans":[{"base":4096,"bytes":4096}]}]}`:                                                "behind",
		`{"version":1,"tasks":[{"rank":0,"spans":[{"base":4096,"bytes":18446744073709547520}]}]}`:                                 "kernel",
		`{"version":1,"tasks":[{"rank":0,"spans":[{"base":4096,"bytes":4096,"code":true}]}]}`:                                     "build",
		`{"version":1,"tasks":[{"rank":0,"spans":[{"base":4096,"bytes":8192}]},{"rank":1,"spans":[{"base":8192,"bytes":4096}]}]}`: "overlap",
		`x`: "invalid",
	} {
		if _, err := Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"program":{"path":"p","build":"b"},"answers":true,"tasks":[{"rank":0,"spans":[{"base":4096,"bytes":4096,"code":true}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := Decode(b)
		if err != nil {
			return
		}
		again, err := table.Encode()
		if err != nil {
			t.Fatalf("%v of what was read from %q", err, b)
		}
		if back, err := Decode(again); err != nil || !reflect.DeepEqual(back, table) {
			t.Errorf("%v: %+v, first %+v", err, back, table)
		}
		if err := table.CheckRegions(table.Regions()); err != nil {
			t.Error(err)
		}
	})
}
