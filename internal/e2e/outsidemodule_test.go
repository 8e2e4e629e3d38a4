// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestOutsideModule builds a program of another module, without cgo, against the packages of this one, and runs it.
func TestOutsideModule(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, from := range map[string]string{"main.go": "internal/e2e/testdata/outside/main.go", "go.sum": "go.sum"} {
		b, err := os.ReadFile(filepath.Join(built.Root, from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	module, err := os.ReadFile(filepath.Join(built.Root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	// What the packages need of others, in the same versions: nothing is fetched.
	own := fmt.Sprintf("replace github.com/libckpt/libckpt => %s\n\nrequire github.com/libckpt/libckpt v0.0.0\n", built.Root)
	module = append([]byte("module example.org/outside\n"), module[len("module github.com/libckpt/libckpt\n"):]...)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), append(module, own...), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-mod=mod", "-o", "outside", ".")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOPROXY=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := ""
	for i := range 4 {
		before := (i + 3) % 4 * 10
		want += fmt.Sprintf("rank %d: safe, with [%d %d %d]\n", i, before, before+1, before+2)
	}
	want += "64 bytes: near\n65 bytes: far\nno route to process 1: near: gate closed for 65 bytes; far: broken: unplugged\n"
	if got := outputOf(t, filepath.Join(dir, "outside")); got != want+"outside: good 7 <nil>\n" {
		t.Errorf("%s", got)
	}
}
