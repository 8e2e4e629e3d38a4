// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"compress/gzip"
	"flag"
	"io"
	"os"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files of the current version anew")

const goldenFile = "testdata/version1.ckpt.gz"

// goldenCompressed hold the same memory, compressed; encoders may change, decoders must not.
var goldenCompressed = map[Compression]string{
	CompressSnappy: "testdata/version1-snappy.ckpt.gz",
	CompressZstd:   "testdata/version1-zstd.ckpt.gz",
}

func writeGolden(t *testing.T, name string, opt Options) {
	t.Helper()
	in, _ := sample()
	opt.Workers, opt.Chunk = 1, 4*PageSize
	path, _ := mustWrite(t, in, opt)
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
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

func readGolden(t *testing.T, name string) []byte {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// checkGolden opens an image that an earlier build wrote and finds in it what was written then.
func checkGolden(t *testing.T, p []byte) *File {
	t.Helper()
	in, mem := sample()
	f, err := openBytes(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Verify(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	checkContent(t, f, mem)
	if meta, err := f.Meta(); err != nil || !bytes.Equal(meta, in.Meta) {
		t.Errorf("meta %q, %v", meta, err)
	}
	return f
}

// TestGolden also writes the same image again and compares the bytes: a difference means that the
// format changed, and that docs/image-format.md and Version must follow.
func TestGolden(t *testing.T) {
	if *rewrite {
		writeGolden(t, goldenFile, Options{})
	}
	golden := readGolden(t, goldenFile)
	checkGolden(t, golden)
	in, _ := sample()
	path, _ := mustWrite(t, in, Options{Workers: 1, Chunk: 4 * PageSize})
	now, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(now, golden) {
		t.Error("the same input makes other bytes than it did")
	}
}

func TestGoldenCompressed(t *testing.T) {
	for mode, name := range goldenCompressed {
		if *rewrite {
			writeGolden(t, name, Options{Compress: mode})
		}
		f := checkGolden(t, readGolden(t, name))
		kinds := map[Kind]bool{}
		for _, c := range f.Chunks() {
			kinds[c.Kind] = true
		}
		if want := map[Compression]Kind{CompressSnappy: KindSnappy, CompressZstd: KindZstd}[mode]; !kinds[want] || !kinds[KindRaw] {
			t.Errorf("%s has chunks of kinds %v", name, kinds)
		}
	}
}
