// SPDX-License-Identifier: Apache-2.0

package house

import (
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	// declaration is a function at the start of a line: type, name, parenthesis.
	declaration = regexp.MustCompile(`(?m)^[A-Za-z_][\w \t*]*?\b((?:ckpt|MPIX)_\w+)\(`)
	inline      = regexp.MustCompile(`(?m)^static [^;{]*`)
	goStruct    = regexp.MustCompile(`(?s)struct host_go \{(.*?)\n\};`)
	member      = regexp.MustCompile(`\(\*(\w+)\)`)
)

func read(t *testing.T, names ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{root}, names...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// declared returns the functions that the public headers declare, of runtimes (ckpt_) and of programs (MPIX_).
func declared(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"include/*.h", "include/ckpt/*.h"} {
		headers, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(headers) == 0 {
			t.Fatalf("%s: no headers (%v)", pattern, err)
		}
		for _, header := range headers {
			if filepath.Base(header) == "back.h" { // declares what a back shows
				continue
			}
			text, err := os.ReadFile(header)
			if err != nil {
				t.Fatal(err)
			}
			code := inline.ReplaceAll(cNoCode.ReplaceAll(text, []byte(" ")), nil)
			for _, m := range declaration.FindAllSubmatch(code, -1) {
				names = append(names, string(m[1]))
			}
		}
	}
	sort.Strings(names)
	return slices.Compact(names)
}

// forCkptrun returns the functions of the core that ckptrun, which is always installed with it, looks up.
func forCkptrun(t *testing.T) (names []string) {
	t.Helper()
	private := goStruct.FindStringSubmatch(read(t, "capi", "host", "hostgo.h"))
	if private == nil {
		t.Fatal("capi/host/hostgo.h: no struct host_go")
	}
	for _, m := range member.FindAllStringSubmatch(cNoCode.ReplaceAllString(private[1], " "), -1) {
		names = append(names, "ckpt_host_"+m[1])
	}
	return names
}

// shownBy lists the dynamic symbols that a file defines for others.
func shownBy(t *testing.T, f *elf.File) (shown []string) {
	t.Helper()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_BIND(s.Info) != elf.STB_LOCAL {
			shown = append(shown, s.Name)
		}
	}
	return shown
}

// TestCkptrunShowsOneFunction looks at what of ckptrun takes the place of the same name in each library of the
// lower half: pthread_create, which is meant to (hush.c), and nothing else.
func TestCkptrunShowsOneFunction(t *testing.T) {
	run, err := elf.Open(filepath.Join(buildDir(t), "bin", "ckptrun"))
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if diff := cmp.Diff([]string{"pthread_create"}, shownBy(t, run)); diff != "" {
		t.Errorf("symbols of ckptrun (-want +shown):\n%s", diff)
	}
}

// TestLibrariesShowWhatTheHeadersDeclare compares the headers with the library that programs are linked with, with
// the one that takes its place under ckptrun, and with the core behind both; none may have more or less.
func TestLibrariesShowWhatTheHeadersDeclare(t *testing.T) {
	all := declared(t)
	core := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return strings.HasPrefix(name, "MPIX_") })
	core = append(core, forCkptrun(t)...)
	sort.Strings(core)
	for _, c := range []struct {
		path, soname string
		want         []string
	}{
		{"libckpt.so", "libckpt.so.1", all},
		{"ckpt/front/libckpt.so.1", "libckpt.so.1", all},
		{"ckpt/libckpt-core.so", "libckpt-core.so", core},
	} {
		lib, err := elf.Open(filepath.Join(buildDir(t), "lib", c.path))
		if err != nil {
			t.Fatal(err)
		}
		defer lib.Close()
		shown := shownBy(t, lib)
		sort.Strings(shown)
		if diff := cmp.Diff(c.want, shown); diff != "" {
			t.Errorf("%s against include/ (-declared +shown):\n%s", c.path, diff)
		}
		if soname, err := lib.DynString(elf.DT_SONAME); err != nil || !cmp.Equal(soname, []string{c.soname}) {
			t.Errorf("%s: SONAME %q (%v), want %s", c.path, soname, err, c.soname)
		}
	}
}
