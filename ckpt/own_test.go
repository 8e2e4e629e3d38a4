// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/libckpt/libckpt/ckpt/launch"
)

// A job never takes one directory as two: it would lose it to itself. So a directory that cannot be looked at is
// an error, unless it is told by its name.
func TestDirectories(t *testing.T) {
	folder := t.TempDir()
	a, b, link, loop := filepath.Join(folder, "a"), filepath.Join(folder, "b"), filepath.Join(folder, "link"), filepath.Join(folder, "loop")
	for _, err := range []error{os.Mkdir(a, 0o755), os.Symlink(a, link), os.Symlink(loop, loop)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		from, dir string
		want      []string // nil: an error
	}{
		{"", a, []string{a}},
		{"", loop, []string{loop}},
		{a, a, []string{a}},
		{loop, loop, []string{loop}}, // taking it says what is wrong
		{link, a, []string{a}},
		{a, link, []string{link}},
		{a, b, []string{a, b}},
		{loop, a, nil},
		{a, loop, nil},
		{b, a, nil},
	} {
		got, err := directories(launch.Options{Dir: c.dir}, c.from)
		if !slices.Equal(got, c.want) || (err == nil) == (c.want == nil) {
			t.Errorf("from %q, --dir %q: %q, %v; want %q", c.from, c.dir, got, err, c.want)
		}
	}
}
