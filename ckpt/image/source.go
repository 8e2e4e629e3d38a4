// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/libckpt/libckpt/internal/regular"
)

// Source is another image that holds content of this one. References are flat: a source is always the image that has
// the bytes in its own file, so a reader needs nothing else of it than these bytes.
type Source struct {
	Name  string // "../FOLDER/FILE", from the folder of the image that refers to it
	Bytes int64  // length of the file
	Seal  Digest // of the image: says that it is the same one
}

// maxSources bounds the number of images that one image refers to.
const maxSources = 1 << 10

// SourceName is the name under which an image in a folder beside that of the file at path refers to it.
func SourceName(path string) (string, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	name := "../" + filepath.Base(filepath.Dir(full)) + "/" + filepath.Base(full)
	if !validSource(name) {
		return "", fmt.Errorf("%q cannot be the name of an image that others refer to", name)
	}
	return name, nil
}

// validSource tells whether the name leads to a file in a folder beside the image's own, and nowhere else.
func validSource(name string) bool {
	parts := strings.Split(name, "/")
	if len(parts) != 3 || len(name) > sourceName || parts[0] != ".." || strings.ContainsRune(name, 0) {
		return false
	}
	for _, p := range parts[1:] {
		if p == "" || p == "." || p == ".." {
			return false
		}
	}
	return true
}

func (s *Source) put(p []byte) {
	le := binary.LittleEndian
	clear(p[:sourceBytes])
	copy(p[:sourceName], s.Name)
	le.PutUint64(p[sourceName:], uint64(s.Bytes))
	copy(p[sourceName+8:], s.Seal[:])
}

func (s *Source) get(p []byte) {
	le := binary.LittleEndian
	s.Name = string(bytes.TrimRight(p[:sourceName], "\x00"))
	s.Bytes = int64(le.Uint64(p[sourceName:]))
	copy(s.Seal[:], p[sourceName+8:])
}

// decodeSources decodes the last part of the index, which begins at offset at of the file.
func (f *File) decodeSources(p []byte, n int, at int64) error {
	f.sources = make([]Source, n)
	seen := map[string]bool{}
	for i := range f.sources {
		s, entry := &f.sources[i], p[i*sourceBytes:][:sourceBytes]
		s.get(entry)
		here := at + int64(i)*sourceBytes
		switch {
		case !validSource(s.Name) || seen[s.Name]:
			return f.corrupt("index", here, "name of a source", "a new one, ../FOLDER/FILE", fmt.Sprintf("%q", s.Name))
		case s.Bytes < headerBytes+footerBytes:
			return f.corrupt("index", here, "length of "+s.Name, fmt.Sprintf("at least %d", headerBytes+footerBytes), s.Bytes)
		case !isZeroAny(entry[sourceName+40:]):
			return f.corrupt("index", here, "reserved bytes of "+s.Name, "zero", "others")
		}
		seen[s.Name] = true
	}
	return nil
}

// checkReference checks the entry of a chunk in another image, as far as this one tells.
func (f *File) checkReference(c *Chunk, bad func(what string, expected, found any) error) error {
	if int(c.Source) > len(f.sources) {
		return bad("source", fmt.Sprintf("1 to %d", len(f.sources)), c.Source)
	}
	switch c.Kind {
	case KindRaw:
		if c.Stored != c.Bytes || c.Offset%PageSize != 0 || c.Data != c.Content || c.Skip != 0 || c.Whole != 0 {
			return bad("entry of a raw chunk", "length, alignment and digests of its content", "others")
		}
	case KindSnappy, KindZstd:
		if c.Whole == 0 || c.Whole > MaxChunk || c.Skip > c.Whole || c.Bytes > c.Whole-c.Skip {
			return bad("part of a chunk", fmt.Sprintf("%d bytes of at most %d", c.Bytes, MaxChunk),
				fmt.Sprintf("those from %d on of %d", c.Skip, c.Whole))
		}
		if c.Stored == 0 || c.Stored >= c.Whole {
			return bad("stored length", fmt.Sprintf("1 to %d", c.Whole-1), c.Stored)
		}
	default:
		return bad("kind of a chunk in another image", "raw, snappy or zstd", c.Kind)
	}
	if most := f.sources[c.Source-1].Bytes - footerBytes - int64(c.Stored); c.Offset < headerBytes || c.Offset > most {
		return bad("offset", fmt.Sprintf("%d to %d", headerBytes, most), c.Offset)
	}
	return nil
}

// MemoryBytes is how much memory is in the image, and in those that it refers to, before compression. What is zero is not
// counted.
func (f *File) MemoryBytes() (n int64) {
	for i := range f.chunks {
		if f.chunks[i].Kind != KindZero {
			n += int64(f.chunks[i].Bytes)
		}
	}
	return n
}

// Sources returns the images that this one refers to. The caller must not change them.
func (f *File) Sources() []Source { return f.sources }

// SourcePath is where Sources()[i] is looked for.
func (f *File) SourcePath(i int) string {
	if f.find != nil {
		if path := f.find(f.sources[i]); path != "" {
			return path
		}
	}
	return filepath.Join(filepath.Dir(f.name), filepath.FromSlash(f.sources[i].Name))
}

// FindSources has images that this one refers to looked for where find says; "": beside its own folder, as without.
// Called before anything is read.
func (f *File) FindSources(find func(s Source) string) { f.find = find }

// others are the open files of sources.
type others struct {
	mu    sync.Mutex
	files []*os.File // nil: not opened yet
}

func (o *others) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var errs []error
	for _, f := range o.files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	o.files = nil
	return errors.Join(errs...)
}

// SourceFile opens Sources()[i], once, and checks that it is the image that was meant, by its length and its seal. The
// file belongs to f. It fails with *LostError.
func (f *File) SourceFile(i int) (*os.File, error) {
	f.others.mu.Lock()
	defer f.others.mu.Unlock()
	if f.others.files == nil {
		f.others.files = make([]*os.File, len(f.sources))
	}
	if have := f.others.files[i]; have != nil {
		return have, nil
	}
	s, path := &f.sources[i], f.SourcePath(i)
	file, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, &LostError{File: f.name, Source: path, Err: err}
	}
	if err := s.is(file); err != nil {
		_ = file.Close()
		return nil, &LostError{File: f.name, Source: path, Err: err}
	}
	f.others.files[i] = file
	return file, nil
}

// is tells by its last bytes whether the file is this source.
func (s *Source) is(file *os.File) error {
	st, err := file.Stat()
	if err != nil {
		return err
	}
	if st.Size() != s.Bytes {
		return fmt.Errorf("it has %d bytes, expected %d", st.Size(), s.Bytes)
	}
	p := make([]byte, footerBytes)
	if _, err := file.ReadAt(p, s.Bytes-footerBytes); err != nil {
		return err
	}
	if string(p[120:]) != footerMagic || Sum(p[96:112]) != sum(p[:96]) {
		return errors.New("its end is damaged")
	}
	var ft footer
	if ft.get(p); ft.seal != s.Seal {
		return fmt.Errorf("it is another image: its digest is %v, expected %v", ft.seal, s.Seal)
	}
	return nil
}

// CheckSources opens all images that this one refers to. The error joins a *LostError for each that is not there, or
// is another one.
func (f *File) CheckSources() error {
	var errs []error
	for i := range f.sources {
		if _, err := f.SourceFile(i); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// holder returns the file that has the bytes of a chunk, and its name.
func (f *File) holder(c *Chunk) (io.ReaderAt, string, error) {
	if c.Source == 0 {
		return f.r, f.name, nil
	}
	file, err := f.SourceFile(int(c.Source) - 1)
	if err != nil {
		return nil, "", err
	}
	return file, file.Name(), nil
}
