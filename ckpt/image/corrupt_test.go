// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/zeebo/blake3"
)

// small is an image small enough to be damaged at every byte: every kind of chunk and padding.
func small(t testing.TB) []byte {
	t.Helper()
	in, _ := sample()
	path, _ := mustWrite(t, in, Options{Compress: CompressSnappy, Workers: 1, Chunk: 4 * PageSize})
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func openBytes(p []byte) (*File, error) {
	return OpenReader("x.ckpt", bytes.NewReader(p), int64(len(p)))
}

// TestEveryByteFlipped: whichever byte is damaged, Verify notices; when it is none of the pages' bytes,
// Open does; and a damaged page is never restored.
func TestEveryByteFlipped(t *testing.T) {
	p := small(t)
	f, err := openBytes(p)
	if err != nil {
		t.Fatal(err)
	}
	inPages := make([]bool, len(p)) // bytes that Open does not look at: chunks and padding
	from := f.sections[len(f.sections)-1].offset + f.sections[len(f.sections)-1].bytes
	to := int64(len(p)) - footerBytes - int64(len(f.sections))*sectionBytes - int64(len(f.chunks))*chunkBytes
	for i := from; i < to; i++ {
		inPages[i] = true
	}
	dst := make([]byte, 16*PageSize)
	step := 1
	if testing.Short() {
		step = 17
	}
	for i := 0; i < len(p); i += step {
		p[i] ^= 1 << (i % 8)
		bad, err := openBytes(p)
		if (err != nil) != !inPages[i] {
			t.Fatalf("byte %d flipped: Open: %v", i, err)
		}
		if err == nil {
			err = bad.Verify(t.Context(), nil)
		}
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
		if corrupt.File != "x.ckpt" || corrupt.Section == "" || corrupt.Expected == corrupt.Found {
			t.Fatalf("byte %d flipped: the message does not help: %v", i, err)
		}
		// Restoring finds it too, unless it was padding, which is not restored.
		if bad != nil && corrupt.Section != "padding" {
			err := bad.Read(t.Context(), func(_ int, r *Region) []byte { return dst[:r.Bytes()] }, ReadOptions{Workers: 1})
			if !errors.As(err, &corrupt) {
				t.Fatalf("byte %d flipped: Read: %v", i, err)
			}
		}
		p[i] ^= 1 << (i % 8)
	}
}

// TestTorn: a file cut short anywhere, or with a tail that never reached the disk (zeros), does not
// open.
func TestTorn(t *testing.T) {
	p := small(t)
	for n := range len(p) {
		if n%7 != 0 && n%PageSize > 16 && n < len(p)-1000 {
			continue // every 7th length, and all around page boundaries and in index and footer
		}
		var corrupt *CorruptError
		if _, err := openBytes(p[:n]); !errors.As(err, &corrupt) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(p), err)
		}
		torn := append(append([]byte{}, p[:n]...), make([]byte, len(p)-n)...)
		if _, err := openBytes(torn); !errors.As(err, &corrupt) {
			t.Fatalf("zero from %d on: %v", n, err)
		}
	}
	// A page in the middle that never reached the disk.
	f, err := openBytes(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range f.chunks {
		torn := append([]byte{}, p...)
		clear(torn[c.Offset : c.Offset+int64(c.Stored)])
		f, err := openBytes(torn)
		if err != nil {
			t.Fatal(err)
		}
		var corrupt *CorruptError
		if err := f.Verify(t.Context(), nil); !errors.As(err, &corrupt) || corrupt.Section != c.name() {
			t.Fatalf("%s lost: %v", c.name(), err)
		}
	}
	longer := append(append([]byte{}, p...), 0)
	if _, err := openBytes(longer); err == nil {
		t.Error("a file with a byte too many was opened")
	}
}

// reseal makes the digests of a changed image fit again: what only a mistaken or hostile writer
// produces.
func reseal(p []byte) {
	s := sum(p[:headerBytes-16])
	copy(p[headerBytes-16:], s[:])
	var ft footer
	tail := p[len(p)-footerBytes:]
	ft.get(tail)
	h := blake3.New()
	h.Write(p[:headerBytes])
	if at := ft.indexOffset; at >= headerBytes && at <= int64(len(p)-footerBytes) {
		for i := range int64(min(ft.sections, 100)) {
			var e sectionEntry
			if at+(i+1)*sectionBytes > int64(len(p)) {
				break
			}
			entry := p[at+i*sectionBytes:]
			e.get(entry)
			if e.offset >= 0 && e.bytes >= 0 && e.offset <= int64(len(p)) && e.bytes <= int64(len(p))-e.offset {
				data := p[e.offset : e.offset+e.bytes]
				s := sum(data)
				copy(entry[48:64], s[:])
				h.Write(data)
			}
		}
		h.Write(p[at : len(p)-footerBytes])
	}
	h.Write(tail[:footerSealed])
	h.Sum(ft.seal[:0])
	ft.finish(tail)
}

func TestOtherVersionAndMachine(t *testing.T) {
	for _, c := range []struct {
		at    int
		value uint32
		want  any
		say   string
	}{
		{8, 3, new(*VersionError), "version is 3, this libckpt reads versions up to 2"},
		{16, 183, new(*ArchError), "architecture is aarch64, this machine has x86_64"},
		{20, 65536, new(*ArchError), "page size is 65536, this machine has 4096"},
		{24, 9, new(*CorruptError), "header"},
	} {
		p := small(t)
		binary.LittleEndian.PutUint32(p[c.at:], c.value)
		reseal(p)
		_, err := openBytes(p)
		if err == nil || !errors.As(err, c.want) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("word at %d is %d: %v", c.at, c.value, err)
		}
	}
	var corrupt *CorruptError
	if _, err := openBytes(bytes.Repeat([]byte("not an image\n"), 1000)); !errors.As(err, &corrupt) {
		t.Errorf("another file: %v", err)
	}
}

// TestLyingIndex changes the index and makes the digests fit: bounds are checked all the same.
func TestLyingIndex(t *testing.T) {
	p := small(t)
	f, err := openBytes(p)
	if err != nil {
		t.Fatal(err)
	}
	index := len(p) - footerBytes - len(f.sections)*sectionBytes - len(f.chunks)*chunkBytes
	chunk := func(i int) int { return index + len(f.sections)*sectionBytes + i*chunkBytes }
	rawAt := -1
	for i, c := range f.chunks {
		if c.Kind == KindRaw {
			rawAt = i
		}
	}
	if rawAt < 0 {
		t.Fatal("the sample has no raw chunk")
	}
	le := binary.LittleEndian
	for name, lie := range map[string]func(p []byte){
		"chunk outside the file":   func(p []byte) { le.PutUint64(p[chunk(1)+8:], 1<<40) },
		"negative offset":          func(p []byte) { le.PutUint64(p[chunk(1)+8:], 1<<63) },
		"offset in the header":     func(p []byte) { le.PutUint64(p[chunk(1)+8:], 0) },
		"huge chunk":               func(p []byte) { le.PutUint32(p[chunk(1)+16:], 1<<31) },
		"empty chunk":              func(p []byte) { le.PutUint32(p[chunk(1)+16:], 0) },
		"half a page":              func(p []byte) { le.PutUint32(p[chunk(1)+16:], 100) },
		"outside its region":       func(p []byte) { le.PutUint64(p[chunk(len(f.chunks)-1):], 1<<46) },
		"overlapping memory":       func(p []byte) { copy(p[chunk(1):chunk(1)+8], p[chunk(0):]) },
		"overlapping file":         func(p []byte) { copy(p[chunk(1)+8:chunk(1)+16], p[chunk(0)+8:]) },
		"unaligned raw":            func(p []byte) { p[chunk(rawAt)+8]++ },
		"unknown kind":             func(p []byte) { p[chunk(1)+24] = 99 },
		"kind parent":              func(p []byte) { p[chunk(1)+24] = uint8(KindParent) },
		"zero chunk with bytes":    func(p []byte) { p[chunk(1)+24] = uint8(KindZero) },
		"reserved byte of a chunk": func(p []byte) { p[chunk(1)+31] = 1 },
		"section outside":          func(p []byte) { le.PutUint64(p[index+40:], 1<<62) },
		"negative section":         func(p []byte) { le.PutUint64(p[index+40:], 1<<63) },
		"section moved":            func(p []byte) { le.PutUint64(p[index+32:], 5000) },
		"section name":             func(p []byte) { p[index] = 'X' },
		"same section twice":       func(p []byte) { copy(p[index+sectionBytes:], p[index:index+32]) },
		"no regions":               func(p []byte) { p[index+sectionBytes] = 'x' },
		"reserved of regions":      func(p []byte) { p[f.sections[1].offset+12] = 1 },
		"reserved of a region":     func(p []byte) { p[f.sections[1].offset+regionsHead+50] = 1 },
		"many regions":             func(p []byte) { le.PutUint64(p[f.sections[1].offset:], 1<<60) },
		"region text outside":      func(p []byte) { le.PutUint32(p[f.sections[1].offset+regionsHead+44:], 1<<31) },
		"region backwards":         func(p []byte) { le.PutUint64(p[f.sections[1].offset+regionsHead+8:], 0) },
		"many chunks":              func(p []byte) { le.PutUint64(p[len(p)-footerBytes+16:], 1<<60) },
		"many sections":            func(p []byte) { le.PutUint64(p[len(p)-footerBytes+8:], 1<<58) },
		"index outside":            func(p []byte) { le.PutUint64(p[len(p)-footerBytes:], 1<<62) },
		"index negative":           func(p []byte) { le.PutUint64(p[len(p)-footerBytes:], 1<<63) },
	} {
		bad := append([]byte{}, p...)
		lie(bad)
		reseal(bad)
		var corrupt *CorruptError
		if _, err := openBytes(bad); !errors.As(err, &corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	same := append([]byte{}, p...)
	reseal(same)
	if !bytes.Equal(same, p) {
		t.Error("reseal changes a sound image, so this test tests nothing")
	}
}

// brokenReader fails like a bad disk: the error is passed on and is not called damage.
type brokenReader struct{ io.ReaderAt }

var errDisk = errors.New("bad sector")

func (b brokenReader) ReadAt(p []byte, at int64) (int, error) {
	if at > 0 {
		return 0, errDisk
	}
	return b.ReaderAt.ReadAt(p, at)
}

func TestReadError(t *testing.T) {
	p := small(t)
	_, err := OpenReader("x.ckpt", brokenReader{bytes.NewReader(p)}, int64(len(p)))
	var corrupt *CorruptError
	if !errors.Is(err, errDisk) || errors.As(err, &corrupt) || !strings.Contains(err.Error(), "x.ckpt") {
		t.Errorf("%v", err)
	}
}

// FuzzOpen opens arbitrary bytes, as they are and with digests that fit, and reads what opens.
func FuzzOpen(f *testing.F) {
	f.Add(small(f), false)
	f.Add(small(f), true)
	f.Add(referring(f, CompressNone), true)
	f.Add(referring(f, CompressZstd), true)
	f.Add([]byte(headerMagic), false)
	f.Fuzz(func(t *testing.T, p []byte, fit bool) {
		if fit && len(p) >= headerBytes+footerBytes {
			p = append([]byte{}, p...)
			reseal(p)
		}
		img, err := openBytes(p)
		if err != nil {
			return
		}
		for _, s := range img.Sections() {
			if _, err := img.Section(s.Name); err != nil {
				t.Fatalf("an image that opens has a bad section: %v", err)
			}
		}
		for _, c := range img.Chunks() {
			if err := img.ReadAt(make([]byte, PageSize), c.Addr); err != nil {
				break
			}
		}
		_ = img.Verify(t.Context(), nil)
	})
}
