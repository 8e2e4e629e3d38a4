// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
	"testing"
)

// loud reports whether a package may print and exit: programs and the tests' own.
func loud(folder string) bool {
	for _, f := range []string{"cmd", "examples", "bench", "internal/e2e"} {
		if within(folder, f) {
			return true
		}
	}
	return false
}

// noise returns what in a Go file ends the process or writes to its terminal, each with its position.
func noise(name string, text []byte) ([]string, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []string
	ast.Inspect(tree, func(n ast.Node) bool {
		what := ""
		switch n := n.(type) {
		case *ast.SelectorExpr:
			from, ok := n.X.(*ast.Ident)
			if !ok {
				break
			}
			what = from.Name + "." + n.Sel.Name
			switch {
			case what == "os.Exit", what == "os.Stdout", what == "os.Stderr", what == "syscall.Exit":
			case from.Name == "log" && n.Sel.Name != "Logger":
			case from.Name == "fmt" && strings.HasPrefix(n.Sel.Name, "Print"):
			default:
				what = ""
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "print" || f.Name == "println") {
				what = f.Name
			}
		}
		if what != "" {
			found = append(found, set.Position(n.Pos()).String()+": "+what)
		}
		return true
	})
	return found, nil
}

func TestLibrariesNeitherExitNorPrint(t *testing.T) {
	for _, f := range files(t) {
		if path.Ext(f.name) != ".go" || strings.HasSuffix(f.name, "_test.go") || f.data() ||
			loud(path.Dir(f.name)) {
			continue
		}
		found, err := noise(f.name, f.text)
		if err != nil {
			t.Error(err)
		}
		for _, line := range found {
			t.Errorf("%s in a library", line)
		}
	}
}

// cNoise is the same for C, where names are enough; comments and strings are taken out first.
var (
	cNoise  = regexp.MustCompile(`\b(?:_?exit|_Exit|abort|printf|puts|putchar|perror|vprintf)\s*\(|\bfprintf\s*\(\s*std`)
	cNoCode = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'`)

	// cLibraries are the folders with C that is loaded into programs; ckptrun (capi/host) is one itself.
	cLibraries = []string{"capi/front", "capi/back"}

	// cExceptions are files that may, since a front stands in the place of an MPI library, and what
	// the standard calls fatal ends the program.
	cExceptions = map[string]string{
		"capi/front/core.c":  "MPI called before MPI_Init or after MPI_Finalize; no memory",
		"capi/front/error.c": "MPI_ERRORS_ARE_FATAL",
		"capi/front/init.c":  "MPI_Init that fails has no error handler yet; MPI_Abort",
		"capi/back/core.c":   "a job that cannot be opened inside MPI_Init; a last epoch lost in MPI_Finalize; names lost in a restart",
	}
)

func TestFrontsAndBacksNeitherExitNorPrint(t *testing.T) {
	used := map[string]bool{}
	for _, f := range files(t) {
		library := false
		for _, folder := range cLibraries {
			library = library || within(path.Dir(f.name), folder)
		}
		if e := path.Ext(f.name); !library || e != ".c" && e != ".h" || strings.Contains(f.name, "/test/") {
			continue
		}
		code := cNoCode.ReplaceAllFunc(f.text, func(m []byte) []byte {
			return []byte(" " + strings.Repeat("\n", strings.Count(string(m), "\n")))
		})
		for i, line := range strings.Split(string(code), "\n") {
			if m := cNoise.FindString(line); m != "" {
				used[f.name] = true
				if cExceptions[f.name] == "" {
					t.Errorf("%s:%d: %s...) in a library", f.name, i+1, m)
				}
			}
		}
	}
	for name, reason := range cExceptions {
		if !used[name] {
			t.Errorf("%s needs no exception any more (%s)", name, reason)
		}
	}
}

// TestNoise proves that the search finds what it is for.
func TestNoise(t *testing.T) {
	text := "package p\n" +
		"import (\"fmt\"; \"io\"; \"os\")\n" +
		"func f(w io.Writer) { fmt.Fprintln(w); fmt.Println(); os.Exit(1); fmt.Fprint(os.Stderr); println() }\n"
	found, err := noise("p.go", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 4 {
		t.Errorf("found %d of 4: %q", len(found), found)
	}
	for code, want := range map[string]bool{
		"exit(1);": true, "fprintf(stderr, x);": true, "printf (x);": true, "abort();": true,
		"snprintf(b, n, x);": false, "MPI_Abort(c, 1);": false, "on_exit_of(x);": false,
		"fprintf(log, x);": false,
	} {
		if got := cNoise.MatchString(code); got != want {
			t.Errorf("%q: found %v, want %v", code, got, want)
		}
	}
}
