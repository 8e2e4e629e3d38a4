// SPDX-License-Identifier: Apache-2.0

package house

import (
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
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

// declared returns the functions that the public headers declare, and those that ckptrun, which is
// always installed with libckpt.so, looks up by name.
func declared(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"include/*.h", "include/ckpt/*.h"} {
		headers, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(headers) == 0 {
			t.Fatalf("%s: no headers (%v)", pattern, err)
		}
		for _, header := range headers {
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
	private := goStruct.FindStringSubmatch(read(t, "capi", "host", "hostgo.h"))
	if private == nil {
		t.Fatal("capi/host/hostgo.h: no struct host_go")
	}
	for _, m := range member.FindAllStringSubmatch(cNoCode.ReplaceAllString(private[1], " "), -1) {
		names = append(names, "ckpt_host_"+m[1])
	}
	sort.Strings(names)
	return slices.Compact(names)
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

// TestLibraryShowsWhatTheHeadersDeclare compares the two; neither may have more.
func TestLibraryShowsWhatTheHeadersDeclare(t *testing.T) {
	lib, err := elf.Open(filepath.Join(buildDir(t), "lib", "libckpt.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer lib.Close()
	shown := shownBy(t, lib)
	sort.Strings(shown)
	if diff := cmp.Diff(declared(t), shown); diff != "" {
		t.Errorf("libckpt.so against include/ (-declared +shown):\n%s", diff)
	}
	if soname, err := lib.DynString(elf.DT_SONAME); err != nil || !cmp.Equal(soname, []string{"libckpt.so.1"}) {
		t.Errorf("SONAME %q (%v), want libckpt.so.1", soname, err)
	}
}
