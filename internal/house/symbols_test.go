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
	// What capi/embed/functions.h lists: macros of many lines, functions with a number, and others by name.
	macro    = regexp.MustCompile(`(?m)^#define (CKPT_\w+)\([\w, ]+\) \\\n((?:.*\\\n)*.*)$`)
	numbered = regexp.MustCompile(`\bF\([^,]+, (ckpt_\w+), \(`)
	named    = regexp.MustCompile(`\bN\((ckpt_\w+)\)`)
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

// forBacks returns the functions of the core that only backs call, which are always installed with it.
func forBacks(t *testing.T) (names []string) {
	t.Helper()
	text := cNoCode.ReplaceAllString(read(t, "include", "ckpt", "private", "news.h"), " ")
	for _, m := range declaration.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 {
		t.Fatal("include/ckpt/private/news.h declares nothing: the search is broken")
	}
	return names
}

// below returns the functions of the core that the runtime's half calls: those with a number, in its order, and those
// that it calls by name.
func below(t *testing.T) (byNumber, byName []string) {
	t.Helper()
	list := cNoCode.ReplaceAllString(read(t, "capi", "embed", "functions.h"), " ")
	lists := map[string]string{}
	for _, m := range macro.FindAllStringSubmatch(list, -1) {
		lists[m[1]] = m[2]
	}
	all := strings.Replace(lists["CKPT_FORWARDED"], "CKPT_CORE_ONLY(C)", lists["CKPT_CORE_ONLY"], 1)
	for _, m := range numbered.FindAllStringSubmatch(all, -1) {
		byNumber = append(byNumber, m[1])
	}
	for _, m := range named.FindAllStringSubmatch(lists["CKPT_BY_HAND"], -1) {
		byName = append(byName, m[1])
	}
	if len(byNumber) < 25 || len(byName) < 9 {
		t.Fatalf("found only %d and %d functions in capi/embed/functions.h: the search is broken", len(byNumber), len(byName))
	}
	return byNumber, byName
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

// TestCkptrunShows looks at what of ckptrun takes the place of the same name in each library of the lower half:
// pthread_create (hush.c) and __cxa_atexit (at_end.c), which are meant to, and what backs call; nothing else.
func TestCkptrunShows(t *testing.T) {
	run, err := elf.Open(filepath.Join(buildDir(t), "bin", "ckptrun"))
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if diff := cmp.Diff([]string{"__cxa_atexit", "lower_at_end", "pthread_create"}, shownBy(t, run)); diff != "" {
		t.Errorf("symbols of ckptrun (-want +shown):\n%s", diff)
	}
}

// TestLibrariesShowWhatTheHeadersDeclare compares the headers with the library that programs are linked with and with
// the one that takes its place under ckptrun; and the core behind both with what those two, ckptrun and backs look up in it.
// None may have more or less.
func TestLibrariesShowWhatTheHeadersDeclare(t *testing.T) {
	all := declared(t)
	byNumber, byName := below(t)
	core := slices.Concat(byNumber, byName, forCkptrun(t), forBacks(t))
	sort.Strings(core)
	if twice := len(core) - len(slices.Compact(slices.Clone(core))); twice > 0 {
		t.Errorf("%d functions of the core are listed twice: %q", twice, core)
	}
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
			t.Errorf("%s (-declared +shown):\n%s", c.path, diff)
		}
		if soname, err := lib.DynString(elf.DT_SONAME); err != nil || !cmp.Equal(soname, []string{c.soname}) {
			t.Errorf("%s: SONAME %q (%v), want %s", c.path, soname, err, c.soname)
		}
	}
}

// TestNumbersOfFunctions: the numbers of functions are in images, whose library calls the core of the day by them. So
// testdata/functions.txt, in order, only grows at its end.
func TestNumbersOfFunctions(t *testing.T) {
	byNumber, _ := below(t)
	kept := strings.Fields(read(t, "internal", "house", "testdata", "functions.txt"))
	if len(kept) < 25 {
		t.Fatalf("testdata/functions.txt has only %d names", len(kept))
	}
	if diff := cmp.Diff(kept, byNumber); diff != "" {
		t.Errorf("capi/embed/functions.h: a number means another function than in images that are kept, or a new one is to be "+
			"added at the end of testdata/functions.txt (-kept +now):\n%s", diff)
	}
}
