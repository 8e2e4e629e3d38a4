// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// layer is a part of the repository: a folder with all below it that has no row of its own.
type layer struct {
	folder string
	// imports are the folders of ours, each with all below it, that its packages may import besides
	// their own folder. "..." stands for all of ours.
	imports []string
	// pure packages do no I/O and read no clock: events in, actions out.
	pure bool
}

// layers is the order of docs/architecture.md: data flows from the top down, and nothing imports what is above it.
var layers = []layer{
	// What is run.
	{folder: "capi", imports: []string{"ckpt", "vid", "internal"}},
	{folder: "regions", imports: []string{"ckpt", "rails"}},
	{folder: "capi/back/test", imports: []string{"internal", "internal/e2e"}},
	{folder: "capi/front/test", imports: []string{"internal/e2e"}},
	{folder: "cmd/ckptctl", imports: []string{"ckpt", "internal"}},
	{folder: "cmd/mpigen"},
	{folder: "bench", imports: []string{"..."}},
	{folder: "examples"},
	{folder: "internal/e2e", imports: []string{"internal", "ckpt/store"}},
	{folder: "internal/soak", imports: []string{"internal", "internal/e2e", "internal/suites"}},
	{folder: "internal/suites", imports: []string{"internal/e2e"}},
	{folder: "internal/house"},

	// The orchestrator, and what it alone puts together.
	{folder: "ckpt", imports: []string{"collclock", "drain", "rails", "vid", "internal"}},

	// Parts that know nothing of each other.
	{folder: "collclock", pure: true},
	{folder: "drain", pure: true},
	{folder: "rails", imports: []string{"internal"}},
	{folder: "vid", imports: []string{"internal"}},
	{folder: "ckpt/clockwork", imports: []string{"collclock", "rails", "vid", "internal"}},
	{folder: "ckpt/control", imports: []string{"ckpt/after", "internal"}},
	{folder: "ckpt/files", imports: []string{"internal"}},
	{folder: "ckpt/launch", imports: []string{"ckpt/after", "ckpt/image", "ckpt/lease", "ckpt/levels", "ckpt/objects", "ckpt/period", "ckpt/store", "internal"}},
	{folder: "ckpt/meeting", imports: []string{"ckpt/launch", "internal"}},
	{folder: "ckpt/period"},
	{folder: "ckpt/regions", imports: []string{"ckpt/image"}},
	{folder: "ckpt/shm", imports: []string{"ckpt/image", "internal"}},
	{folder: "ckpt/snapshot", imports: []string{"ckpt/image", "internal"}},
	{folder: "ckpt/where", imports: []string{"ckpt/control", "vid"}},

	// Words of all of them.
	{folder: "ckpt/after", pure: true},

	// Bytes on disk.
	{folder: "ckpt/store", imports: []string{"ckpt/image", "ckpt/levels", "ckpt/objects", "internal"}},
	{folder: "ckpt/lease", imports: []string{"internal"}},
	{folder: "ckpt/levels", imports: []string{"internal"}},
	{folder: "ckpt/objects", imports: []string{"internal"}},
	{folder: "ckpt/image", imports: []string{"internal"}},

	// Tools of all.
	{folder: "internal"},
}

// impure is what a pure package may not import, itself or below it.
var impure = []string{"C", "net", "os", "time", "syscall", "golang.org/x/sys", "unsafe", "context",
	"log"}

// within reports whether name is folder or lies below it.
func within(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, folder+"/")
}

// layerOf returns the row with the longest folder that holds name.
func layerOf(name string) *layer {
	var best *layer
	for i := range layers {
		l := &layers[i]
		if within(name, l.folder) && (best == nil || len(l.folder) > len(best.folder)) {
			best = l
		}
	}
	return best
}

// allowed reports whether a package of layer from may import the package at name, which is ours.
func allowed(from *layer, name string) bool {
	to := layerOf(name)
	if to == nil {
		return false
	}
	if to == from {
		return true
	}
	for _, folder := range from.imports {
		if folder == "..." || to.folder == folder {
			return true
		}
		// A folder means its own packages and the rows below it, but for internal, whose tests and
		// programs are nobody's library.
		if within(to.folder, folder) && folder != "internal" {
			return true
		}
	}
	// The orchestrator uses what lies in its folder; nothing there uses the orchestrator.
	return from.folder == "ckpt" && within(to.folder, "ckpt")
}

// goPackage is a folder with Go files.
type goPackage struct {
	folder  string
	files   []string            // names without folder, tests included
	imports map[string][]string // of files that are no tests: what they import
}

func packages(t *testing.T) []*goPackage {
	t.Helper()
	byFolder := map[string]*goPackage{}
	for _, f := range files(t) {
		if path.Ext(f.name) != ".go" || strings.Contains(f.name, "testdata/") {
			continue
		}
		folder, base := path.Split(f.name)
		folder = path.Clean(folder)
		p := byFolder[folder]
		if p == nil {
			p = &goPackage{folder: folder, imports: map[string][]string{}}
			byFolder[folder] = p
		}
		p.files = append(p.files, base)
		if strings.HasSuffix(base, "_test.go") {
			continue
		}
		ast, err := parser.ParseFile(token.NewFileSet(), f.name, f.text, parser.ImportsOnly)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		for _, spec := range ast.Imports {
			p.imports[base] = append(p.imports[base], strings.Trim(spec.Path.Value, `"`))
		}
	}
	var all []*goPackage
	for _, p := range byFolder {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *goPackage) int { return strings.Compare(a.folder, b.folder) })
	if len(all) < 5 {
		t.Fatalf("only %d packages found: the walk is broken", len(all))
	}
	return all
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range packages(t) {
		from := layerOf(p.folder)
		if from == nil {
			t.Errorf("%s: has no row in the table of layers", p.folder)
			continue
		}
		for base, imports := range p.imports {
			for _, name := range imports {
				ours, found := strings.CutPrefix(name, module+"/")
				if found && !allowed(from, ours) {
					t.Errorf("%s/%s: imports %s, which %s may not know", p.folder, base, ours, from.folder)
				}
				if from.pure && slices.ContainsFunc(impure, func(i string) bool { return within(name, i) }) {
					t.Errorf("%s/%s: imports %s; %s does no I/O and reads no clock", p.folder, base, name,
						from.folder)
				}
			}
		}
	}
}

// TestAllowed proves that the table means what docs/architecture.md says.
func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"ckpt", "ckpt/image", true},
		{"ckpt", "rails/signaling", true},
		{"ckpt", "capi", false},
		{"ckpt/image", "ckpt", false},
		{"ckpt/image", "ckpt/store", false},
		{"ckpt/store", "ckpt/image", true},
		{"ckpt/control", "ckpt", false},
		{"ckpt/clockwork", "ckpt", false},
		{"ckpt/clockwork", "ckpt/where", false},
		{"ckpt/where", "ckpt/clockwork", false},
		{"ckpt/where", "rails/signaling", false},
		{"ckpt/meeting", "ckpt/launch", true},
		{"ckpt/meeting", "ckpt/control", false},
		{"ckpt/launch", "ckpt/meeting", false},
		{"rails/signaling", "ckpt", false},
		{"rails/signaling", "ckpt/image", false},
		{"rails/signaling", "internal/fault", true},
		{"collclock", "internal/fault", false},
		{"collclock/scenario", "collclock", true},
		{"vid", "ckpt", false},
		{"internal/fault", "ckpt/image", false},
		{"capi", "ckpt/snapshot", true},
		{"ckpt/image", "internal/e2e", false},
		{"cmd/ckptctl", "capi", false},
	} {
		if got := allowed(layerOf(c.from), c.to); got != c.want {
			t.Errorf("%s imports %s: allowed %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

func TestEveryPackageSaysWhatItOwns(t *testing.T) {
	for _, p := range packages(t) {
		if strings.HasPrefix(p.folder, "examples/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, p.folder, "doc.go"))
		if err != nil {
			t.Errorf("%s: no doc.go", p.folder)
			continue
		}
		words := strings.Join(strings.FieldsFunc(strings.ToLower(string(text)), func(r rune) bool {
			return unicode.IsSpace(r) || r == '/'
		}), " ")
		if !owns.MatchString(words) {
			t.Errorf("%s/doc.go: does not say what the package owns", p.folder)
		}
		if !knowsNot.MatchString(words) {
			t.Errorf("%s/doc.go: does not say what the package may not know", p.folder)
		}
	}
}

var (
	owns     = regexp.MustCompile(`\bowns?\b`)
	knowsNot = regexp.MustCompile(`\b(?:may|must|does) not know\b|\bknows? (?:nothing|neither)\b|\bdecides nothing\b`)
)

// TestArchitectureIsDrawn keeps the page in step with the table.
func TestArchitectureIsDrawn(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages(t) {
		if !strings.Contains(string(text), "`"+p.folder+"`") {
			t.Errorf("docs/architecture.md does not name `%s`", p.folder)
		}
	}
}
