// SPDX-License-Identifier: Apache-2.0

package house

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the repository.
const root = "../.."

const module = "github.com/libckpt/libckpt"

// maxLines is more than anybody wants to read in one file.
const maxLines = 700

// buildDir is the built tree; found by where `make test` says it is, else at its usual place. With
// LIBCKPT_BUILD set it must be there, so that a skip cannot hide a broken build.
func buildDir(t *testing.T) string {
	t.Helper()
	dir, told := os.LookupEnv("LIBCKPT_BUILD")
	if !told {
		dir = filepath.Join(root, "build")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "lib", "ckpt", "libckpt-core.so")); err != nil {
		if told {
			t.Fatalf("LIBCKPT_BUILD names no built tree: %v", err)
		}
		t.Skipf("not built (`make test` builds first): %v", err)
	}
	return dir
}

// file is a text file of the repository.
type file struct {
	name string // slash-separated, relative to the repository
	text []byte
}

func (f *file) generated() bool {
	first, _, _ := bytes.Cut(f.text, []byte("\n"))
	return bytes.Contains(first, []byte("Code generated"))
}

// data reports whether the file is an input of tests or a list from elsewhere, not something that we
// wrote to be read.
func (f *file) data() bool {
	return strings.Contains(f.name, "testdata/") || f.name == "go.sum" || f.name == "LICENSE"
}

// files returns every text file of the repository but for what is built.
func files(t *testing.T) []*file {
	t.Helper()
	var all []*file
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || name == "build"):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		if !bytes.Contains(text, []byte{0}) {
			all = append(all, &file{name, text})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d files found: the walk is broken", len(all))
	}
	return all
}

// source reports whether the file is code that we write.
func (f *file) source() bool {
	switch path.Base(f.name) {
	case "Makefile", "module.mk", "run":
		return true
	}
	switch path.Ext(f.name) {
	case ".go", ".c", ".cc", ".cpp", ".h", ".S", ".sh", ".py", ".lds", ".map", ".cmake", ".pml":
		return true
	}
	return false
}

func TestSourcesNameTheirLicence(t *testing.T) {
	for _, f := range files(t) {
		if !f.source() || f.generated() || f.data() {
			continue
		}
		lines := bytes.SplitN(f.text, []byte("\n"), 4)
		head := bytes.Join(lines[:min(3, len(lines))], []byte("\n"))
		if !bytes.Contains(head, []byte("SPDX-License-Identifier: Apache-2.0")) {
			t.Errorf("%s: no SPDX-License-Identifier in its first three lines", f.name)
		}
	}
}

func TestFilesAreShortEnoughToRead(t *testing.T) {
	for _, f := range files(t) {
		if f.generated() || f.data() || !f.source() && path.Ext(f.name) != ".md" {
			continue
		}
		if n := bytes.Count(f.text, []byte("\n")); n > maxLines {
			t.Errorf("%s: %d lines, more than %d; split it by idea", f.name, n, maxLines)
		}
	}
}

// foreign finds what only means something on the machine where it was written.
var foreign = regexp.MustCompile(
	// Folders of one machine.
	`(?:^|[\s"'=:(` + "`" + `])/(?:work|root|home/[a-z]+)(?:/|\b)` +
		// Hosts of package registries, public or not.
		`|\b(?:proxy|sum)\.golang\.` + `org|\bgoproxy\.|\bdeb\.debian\.` + `org|\b[a-z-]+\.pkg\.` + `dev` +
		`|\bregistry\.[a-z]+\.`)

func TestNothingOfOneMachine(t *testing.T) {
	for _, f := range files(t) {
		for i, line := range bytes.Split(f.text, []byte("\n")) {
			if m := foreign.Find(line); m != nil {
				t.Errorf("%s:%d: %q means nothing elsewhere", f.name, i+1, m)
			}
		}
	}
}

// TestForeign proves that the pattern finds what it is for, and no more.
func TestForeign(t *testing.T) {
	slash := "/"
	for text, bad := range map[string]bool{
		"cd " + slash + "work/main":           true,
		`"` + slash + "root/x\"":              true,
		"https:" + "//proxy.golang." + "org/": true,
		"us-go.pkg." + "dev":                  true,
		"build/work/x":                        false,
		"golang.org/toolchain":                false,
		"the worker":                          false,
		"filepath.Join(root, \"work\")":       false,
	} {
		if got := foreign.MatchString(text); got != bad {
			t.Errorf("%q: found %v, want %v", text, got, bad)
		}
	}
}

// TestHostNamesItsFiles looks for each file of capi/host in the list of its header.
func TestHostNamesItsFiles(t *testing.T) {
	list, _, _ := strings.Cut(read(t, "capi", "host", "host.h"), "#ifndef")
	entries, err := os.ReadDir(filepath.Join(root, "capi", "host"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".c" && ext != ".h" && ext != ".S" {
			continue
		}
		if !strings.Contains(list, " "+e.Name()) {
			t.Errorf("capi/host/host.h does not say what %s is for", e.Name())
		}
	}
}
