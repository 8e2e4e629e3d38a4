// SPDX-License-Identifier: Apache-2.0

package house

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// cLayer is a part of the C in capi: a folder with all below it that has no row of its own, or the files
// that a pattern matches.
type cLayer struct {
	part string
	// includes are the parts that it may include besides itself. They stand below it in the table, so that no
	// two parts can include each other.
	includes []string
}

// cLayers is the order of the C in capi, from the top down.
var cLayers = []cLayer{
	// Started before anything else, and alone.
	{part: "capi/enter"},

	// ckptrun. Of a back it knows what ckpt/back.h says, and of MPI nothing.
	{part: "capi/hooks.c", includes: []string{"capi/host", "include"}},
	{part: "capi/pmix*"},
	{part: "capi/host", includes: []string{"capi/verbs/back.h", "capi/embed/functions.h", "include/ckpt/private", "include"}},
	{part: "capi/calls.h", includes: []string{"include"}},

	// A back, compiled against one real MPI's header: a runtime that uses libckpt by its public headers, as any
	// other could (but for news of communicators), and canon, what the fronts say to it.
	{part: "capi/back/*.c", includes: []string{"capi/back/*.h", "capi/back/image", "capi/back/window", "capi/back/file",
		"capi/back/collective", "capi/back/object", "capi/back/message", "capi/back/request", "capi/back/impl",
		"capi/back/gen/*.h"}},
	{part: "capi/back/gen/*.c", includes: []string{"capi/back/*.h", "capi/back/collective"}},
	{part: "capi/back/*.h", includes: []string{"capi/back/collective", "capi/back/object", "capi/back/request",
		"capi/back/impl"}},
	{part: "capi/back/image", includes: []string{"capi/back/window", "capi/back/file", "capi/back/collective",
		"capi/back/object", "capi/back/message", "capi/back/gen/zz_section.h", "capi/back/request", "capi/back/impl"}},
	{part: "capi/back/window", includes: []string{"capi/back/collective", "capi/back/object", "capi/back/impl"}},
	{part: "capi/back/file", includes: []string{"capi/back/collective", "capi/back/object", "capi/back/request",
		"capi/back/impl", "capi/back/gen/*.h"}},
	{part: "capi/back/collective", includes: []string{"capi/back/object", "capi/back/message", "capi/back/request",
		"capi/back/impl", "capi/back/gen/*.h"}},
	{part: "capi/back/object", includes: []string{"capi/back/request", "capi/back/impl", "capi/canon", "include/ckpt/private"}},
	{part: "capi/back/message", includes: []string{"capi/back/request", "capi/back/impl"}},
	{part: "capi/back/request", includes: []string{"capi/back/impl"}},
	{part: "capi/back/gen/zz_section.h", includes: []string{"capi/back/impl"}},
	{part: "capi/back/impl", includes: []string{"capi/back/gen/*.h", "capi/canon", "include"}},
	{part: "capi/back/gen/*.h"},

	// The fronts: one application's ABI each.
	{part: "capi/front/*.c", includes: []string{"capi/front/object", "capi/front/large", "capi/front/*.h",
		"capi/front/gen/*.h", "include/mpix_checkpoint.h", "include"}},
	{part: "capi/front/gen/*.c", includes: []string{"capi/front/large", "capi/front/*.h", "capi/front/gen/*.h"}},
	{part: "capi/front/abi", includes: []string{"capi/front/*.h", "capi/front/abi/*_abi.h", "capi/front/gen/*.h"}},
	{part: "capi/front/object", includes: []string{"capi/front/*.h", "capi/front/gen/*.h"}},
	{part: "capi/front/large", includes: []string{"capi/front/*.h", "capi/front/gen/*.h"}},
	{part: "capi/front/*.h", includes: []string{"capi/front/abi/*_abi.h", "capi/front/gen/*.h", "capi/canon", "include"}},
	{part: "capi/front/abi/*_abi.h"},
	{part: "capi/front/gen/*.h"},

	// The standard's mpi.h, for programs and for a back.
	{part: "capi/std"},

	// What a front and a back say to each other.
	{part: "capi/canon", includes: []string{"include/ckpt/private", "include"}},

	// What programs and runtimes are linked with, with ckptrun and without; and what it calls of the core, through
	// the gate of ckptrun for one.
	{part: "capi/embed", includes: []string{"capi/embed/functions.h", "include/mpix_checkpoint.h", "include/ckpt/private", "include"}},
	{part: "capi/embed/functions.h", includes: []string{"include"}},

	// What programs see as libibverbs, and what is below it; the objects of the first are described for both.
	{part: "capi/verbs/front", includes: []string{"capi/verbs/objects.h", "capi/verbs/route.h", "include/ckpt/private"}},
	{part: "capi/verbs/back", includes: []string{"capi/verbs/back.h", "capi/verbs/objects.h", "capi/verbs/route.h", "include/ckpt/private"}},
	// A connection manager above that libibverbs.
	{part: "capi/verbs/cm"},
	{part: "capi/verbs/direct/gen", includes: []string{"capi/verbs/direct/answers.h"}},
	{part: "capi/verbs/direct/answers.h"},
	{part: "capi/verbs/objects.h"},
	{part: "capi/verbs/route.h"},
	{part: "capi/verbs/back.h"},

	// A verbs adapter in software, and what makes it a device of libibverbs.
	{part: "capi/verbs/tcp", includes: []string{"capi/verbs/soft/provider", "capi/verbs/soft"}},
	{part: "capi/verbs/soft/provider", includes: []string{"capi/verbs/soft"}},
	{part: "capi/verbs/soft"},

	// FTI's functions and VeloC's over those of applications, compiled against each MPI's header.
	{part: "capi/veloc", includes: []string{"capi/fti", "include/veloc", "include/mpix_checkpoint.h"}},
	{part: "capi/fti", includes: []string{"include/fti", "include/mpix_checkpoint.h"}},
	{part: "include/veloc"},
	{part: "include/fti"},

	// libckpt: the application's header, what those who cross into it see, and runtimes' headers.
	{part: "include/mpix_checkpoint.h"},
	{part: "include/ckpt/private", includes: []string{"include"}},
	{part: "include"},
}

// cLayerOf returns which row holds a file: that of its own name, of a pattern, or of the longest folder.
func cLayerOf(name string) int {
	best, length := -1, 0
	for i := range cLayers {
		part := cLayers[i].part
		match, _ := path.Match(part, name)
		if n := len(part); (match || within(name, part)) && (n > length || part == name) {
			best, length = i, n
			if part == name {
				break
			}
		}
	}
	return best
}

var (
	cInclude   = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]*"([^"]+)"`)
	includeMPI = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]*<mpi\.h>`)
)

// TestCLayers keeps the C of capi in the order of the table.
func TestCLayers(t *testing.T) {
	for i, l := range cLayers {
		for _, part := range l.includes {
			at := slices.IndexFunc(cLayers, func(l cLayer) bool { return l.part == part })
			if at <= i {
				t.Errorf("the table: %s may not include %s, which stands beside or above it or not at all", l.part, part)
			}
		}
	}

	sources := map[string][]byte{}
	for _, f := range files(t) {
		c := slices.Contains([]string{".c", ".h", ".S"}, path.Ext(f.name))
		if c && (within(f.name, "capi") || within(f.name, "include")) && !strings.Contains(f.name, "/test/") {
			sources[f.name] = f.text
		}
	}
	if len(sources) < 150 {
		t.Fatalf("only %d files of C found: the walk is broken", len(sources))
	}
	for name, text := range sources {
		at := cLayerOf(name)
		if at < 0 {
			t.Errorf("%s: has no row in the table of layers of C", name)
			continue
		}
		from := cLayers[at]
		if includeMPI.Match(text) && !within(name, "capi/back") && !within(name, "include/fti") && !within(name, "include/veloc") {
			t.Errorf("%s: includes <mpi.h>, which only a back, fti.h and veloc.h may know", name)
		}
		for _, m := range cInclude.FindAllSubmatch(text, -1) {
			included := string(m[1])
			found := ""
			for _, folder := range []string{path.Dir(name), "capi", "include"} {
				if _, ok := sources[path.Join(folder, included)]; ok {
					found = path.Join(folder, included)
					break
				}
			}
			if found == "" {
				t.Errorf("%s: includes %q, which is none of ours", name, included)
				continue
			}
			if to := cLayers[cLayerOf(found)].part; to != from.part && !slices.Contains(from.includes, to) {
				t.Errorf("%s: includes %s, which %s may not know", name, found, from.part)
			}
		}
	}
}

// TestCLayerOf proves that the table is read as it is written.
func TestCLayerOf(t *testing.T) {
	for name, want := range map[string]string{
		"capi/back/core.c":             "capi/back/*.c",
		"capi/embed/core.c":            "capi/embed",
		"capi/embed/functions.h":       "capi/embed/functions.h",
		"capi/back/calls.h":            "capi/back/*.h",
		"capi/back/gen/zz_back.h":      "capi/back/gen/*.h",
		"capi/back/gen/zz_coll.c":      "capi/back/gen/*.c",
		"capi/back/request/wait.c":     "capi/back/request",
		"capi/front/abi/mpich_abi.h":   "capi/front/abi/*_abi.h",
		"capi/canon/gen/zz_numbers.h":  "capi/canon",
		"include/ckpt/clock.h":         "include",
		"include/ckpt/private/gate.h":  "include/ckpt/private",
		"include/ckpt.h":               "include",
		"include/mpix_checkpoint.h":    "include/mpix_checkpoint.h",
		"capi/host/signal.c":           "capi/host",
		"capi/front/object/attr.c":     "capi/front/object",
		"capi/back/collective/clock.c": "capi/back/collective",
	} {
		if at := cLayerOf(name); at < 0 || cLayers[at].part != want {
			t.Errorf("%s: row %d, want %s", name, at, want)
		}
	}
	if at := cLayerOf("capi/other/x.c"); at >= 0 {
		t.Errorf("capi/other/x.c: row %s, want none", cLayers[at].part)
	}
}
