// SPDX-License-Identifier: Apache-2.0

package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// captureNamed captures files that have no descriptor, and takes them through an image.
func captureNamed(t *testing.T, list ...Named) Table {
	t.Helper()
	var table Table
	obstacles, err := table.AddNamed(list)
	if err != nil || len(obstacles) > 0 {
		t.Fatal(obstacles, err)
	}
	b, err := table.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if table, err = Decode(b); err != nil {
		t.Fatal(err)
	}
	return table
}

func TestNamedOutputIsCutBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	writeFile(t, path, "saved")
	table := captureNamed(t, Named{Path: path, Write: true}, Named{Path: path, Write: true})
	if len(table.Files) != 1 {
		t.Fatalf("one file opened twice makes %d entries", len(table.Files))
	}
	writeFile(t, path, "saved and more")
	if err := Restore(table, Options{Keep: true}); err != nil || readFile(t, path) != "saved and more" {
		t.Fatalf("kept: %v, %q", err, readFile(t, path))
	}
	if err := Restore(table, Options{}); err != nil || readFile(t, path) != "saved" {
		t.Fatalf("cut: %v, %q", err, readFile(t, path))
	}
	writeFile(t, path, "sav")
	if err := Restore(table, Options{}); err == nil || !strings.Contains(err.Error(), "fewer than the 5") {
		t.Fatalf("a file that lost bytes: %v", err)
	}
}

func TestNamedInputMustNotChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in")
	writeFile(t, path, "input")
	table := captureNamed(t, Named{Path: path})
	h, err := Hold(&table, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Done()
	if err := h.Sample(&table); err != nil {
		t.Fatal(err)
	}
	if err := Restore(table, Options{}); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, "other")
	if err := Restore(table, Options{}); err == nil || !strings.Contains(err.Error(), "ends in other bytes") {
		t.Fatalf("a changed input: %v", err)
	}
	if err := Restore(table, Options{IgnoreChanged: true}); err != nil {
		t.Fatal(err)
	}
}

func TestScratchIsMadeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scratch")
	content := "begin" + strings.Repeat("\x00", 300_000) + "end"
	writeFile(t, path, content)
	table := captureNamed(t, Named{Path: path, Write: true, Scratch: true})
	for _, after := range []string{"", "something else", content + "more"} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if after != "" {
			writeFile(t, path, after)
		}
		if err := Restore(table, Options{}); err != nil {
			t.Fatal(err)
		}
		if readFile(t, path) != content {
			t.Fatalf("after %q the file has %d bytes, not its own", after, len(readFile(t, path)))
		}
	}
	writeFile(t, path, "kept")
	if err := Restore(table, Options{Keep: true}); err != nil || readFile(t, path) != "kept" {
		t.Fatal(err, readFile(t, path))
	}
}

func TestNamedObstacles(t *testing.T) {
	var table Table
	gone := filepath.Join(t.TempDir(), "gone")
	obstacles, err := table.AddNamed([]Named{{Path: gone, Write: true}, {Path: "/dev/null", Write: true}})
	if err != nil || len(obstacles) != 1 || !strings.HasPrefix(obstacles[0], gone+" was deleted") {
		t.Fatal(obstacles, err)
	}
	held, err := Hold(&table, []Named{{Path: gone, Write: true}, {Path: "/dev/null", Write: true}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Done()
	if _, err := held.Sync(); err != nil {
		t.Fatal(err)
	}
}

func TestParseNamed(t *testing.T) {
	all, own, err := ParseNamed("wo\x00/a b\x00\x00/c\x00wd\x00/d\x00")
	want := []Named{{Path: "/a b", Write: true}, {Path: "/c"}, {Path: "/d", Write: true, Scratch: true}}
	if err != nil || !cmp.Equal(all, want) || !cmp.Equal(own, want[:1]) {
		t.Fatal(all, own, err)
	}
	if _, _, err := ParseNamed("w\x00"); err == nil {
		t.Fatal("a path is missing")
	}
}
