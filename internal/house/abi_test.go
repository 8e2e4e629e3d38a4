// SPDX-License-Identifier: Apache-2.0

package house

import (
	"debug/elf"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewriteABI = flag.Bool("rewrite-abi", false, "add new functions to testdata/abi and debian/libckpt1.symbols; nothing is removed")

// keptABI is a list of testdata/abi: the first release that had each function.
func keptABI(text string) map[string]string {
	since := map[string]string{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && !strings.HasPrefix(line, "#") {
			since[f[0]] = f[1]
		}
	}
	return since
}

// gone are the functions of a list that a library does not show, and more are those that it shows beside them.
func gone(kept map[string]string, shown []string) (gone, more []string) {
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		if !slices.Contains(shown, name) {
			gone = append(gone, name)
		}
	}
	for _, name := range shown {
		if _, ok := kept[name]; !ok {
			more = append(more, name)
		}
	}
	return gone, more
}

// debianSymbols is what debian/libckpt1.symbols must be for a list.
func debianSymbols(kept map[string]string) string {
	var b strings.Builder
	b.WriteString("libckpt.so.1 libckpt1 #MINVER#\n")
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		b.WriteString(" " + name + "@Base " + kept[name] + "\n")
	}
	return b.String()
}

// TestABI: a function that a release had is in all later ones of the same SONAME (docs/compatibility.md). A new one is
// added to the lists with the version of the Makefile; none is ever removed from them.
func TestABI(t *testing.T) {
	version := regexp.MustCompile(`(?m)^VERSION := (.+)$`).FindStringSubmatch(read(t, "Makefile"))
	if version == nil {
		t.Fatal("the Makefile says no VERSION")
	}
	lib := filepath.Join(buildDir(t), "lib")
	for soname, paths := range map[string][]string{
		"libckpt.so.1":       {"libckpt.so.1", "ckpt/front/libckpt.so.1"},
		"libckpt_fti.so.1":   {"ckpt/fti/*/libckpt_fti.so.1"},
		"libckpt_veloc.so.1": {"ckpt/veloc/*/libckpt_veloc.so.1"},
	} {
		list := filepath.Join(root, "internal", "house", "testdata", "abi", soname)
		text, err := os.ReadFile(list)
		if err != nil && !*rewriteABI {
			t.Fatal(err)
		}
		kept := keptABI(string(text))
		for _, pattern := range paths {
			found, err := filepath.Glob(filepath.Join(lib, pattern))
			if err != nil || len(found) == 0 {
				t.Errorf("%s: %v, %v", pattern, found, err)
			}
			for _, path := range found {
				f, err := elf.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				shown := shownBy(t, f)
				if is, err := f.DynString(elf.DT_SONAME); err != nil || !slices.Equal(is, []string{soname}) {
					t.Errorf("%s: SONAME %q (%v), want %s", path, is, err, soname)
				}
				_ = f.Close()
				missing, more := gone(kept, shown)
				if *rewriteABI {
					for _, name := range more {
						kept[name] = version[1]
					}
					more = nil
				}
				if len(missing) > 0 {
					t.Errorf("%s lacks %q: programs that call them do not run any more; that takes another SONAME", path, missing)
				}
				if len(more) > 0 {
					t.Errorf("%s shows %q, which is not kept: go test ./internal/house -run TestABI -rewrite-abi", path, more)
				}
			}
		}
		if len(kept) < 10 {
			t.Errorf("%s has only %d functions", list, len(kept))
		}
		if *rewriteABI {
			var b strings.Builder
			for _, name := range slices.Sorted(maps.Keys(kept)) {
				b.WriteString(name + " " + kept[name] + "\n")
			}
			if err := os.WriteFile(list, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if soname == "libckpt.so.1" {
			symbols := filepath.Join(root, "debian", "libckpt1.symbols")
			if *rewriteABI {
				if err := os.WriteFile(symbols, []byte(debianSymbols(kept)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(debianSymbols(kept), read(t, "debian", "libckpt1.symbols")); diff != "" {
				t.Errorf("debian/libckpt1.symbols is not made of the list (-want +is):\n%s", diff)
			}
		}
	}
}

// TestGone proves that TestABI finds what is missing and what is new.
func TestGone(t *testing.T) {
	missing, more := gone(keptABI("a 1.0\nb 1.1\n# c 1.0\n"), []string{"b", "c"})
	if !slices.Equal(missing, []string{"a"}) || !slices.Equal(more, []string{"c"}) {
		t.Errorf("missing %q, more %q", missing, more)
	}
}
