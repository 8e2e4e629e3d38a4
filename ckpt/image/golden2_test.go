// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"compress/gzip"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// An image of version 2 and its source, as the first build that wrote them did.
var goldenPair = [2]string{"testdata/version2-source.ckpt.gz", "testdata/version2.ckpt.gz"}

// TestGoldenReferring reads an image that refers to another one. With -rewrite it writes both anew.
func TestGoldenReferring(t *testing.T) {
	if *rewrite {
		e, _ := chain(t, CompressSnappy)
		for i, name := range goldenPair {
			p, err := os.ReadFile(e.path(i + 1))
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			if _, err := z.Write(p); err != nil {
				t.Fatal(err)
			}
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	e := &epochs{dir: dir}
	for i, name := range goldenPair {
		if err := os.Mkdir(filepath.Dir(e.path(i+1)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(e.path(i+1), readGolden(t, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	mem := fakeMemory{}
	fill(rng, mem, 0, 64)
	fill(rng, mem, 20, 22)
	f := mustOpen(t, e.path(2))
	checkContent(t, f, mem)
	if err := f.Verify(t.Context(), nil); err != nil || len(f.Sources()) != 1 {
		t.Errorf("%v, sources %v", err, f.Sources())
	}
	parts := 0
	for _, c := range f.Chunks() {
		if c.Source == 1 && c.Whole != 0 && c.Whole != c.Bytes {
			parts++
		}
	}
	if parts == 0 {
		t.Error("no part of a compressed chunk is referred to")
	}
	// Compared with its source: two pages changed.
	d, err := Diff(t.Context(), mustOpen(t, e.path(1)), f)
	if err != nil || d.Changed != 2*PageSize || d.Same != 62*PageSize {
		t.Errorf("%+v, %v", d, err)
	}
}
