// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/fault"
)

// Section is a named piece of metadata. Names have 1 to 32 characters of a-z, 0-9, dot, dash and
// underscore; "meta" and "regions" are taken.
type Section struct {
	Name string
	Data []byte
}

// Input is what an image is made of.
type Input struct {
	Meta     []byte // a JSON document of the caller
	Sections []Section
	Regions  []Region // ascending, without overlap
	Memory   Memory   // the content of the regions without Data

	// Parent is an image of the same process in a folder beside that of this one: what is in it, or in images that it
	// refers to, is referred to. nil: all content is written.
	Parent *Parent

	// Elder is an image of another process that is being written to the same folder: what it has, or refers to, at an
	// address is referred to where memory has the same there. nil: there is none.
	Elder *Elder

	// Unwritten is memory that is as it was when Parent was made: it is not read. Ascending; ranges may meet.
	Unwritten []Extent
}

// Options are the options of Write. The zero value is ready for use.
type Options struct {
	Compress Compression // none unless given
	Model    *Model      // what other writes measured, for CompressAuto; a new one unless given
	Workers  int         // goroutines; at most 4 and at most GOMAXPROCS unless given
	Helpers  int         // threads beside them, for processors that are idle; none unless given
	Limit    int64       // bytes of content that are written in a second; 0: as fast as it goes
	Chunk    int         // most bytes of memory that a chunk covers; DefaultChunk unless given

	// Track has Summary.Parent know the pages of this image by their digests, so that the next one finds out what
	// changed without reading this one. It costs 8 bytes for each page with data.
	Track bool

	// Tell is called with what an Elder of the same image takes in, in that order, by one goroutine at a time; it may not
	// wait. When Write fails, the elders have to be told that otherwise.
	Tell func(told []byte)

	// NoSync leaves out both fsyncs, for tests and measurements: after a power cut the file may have any
	// content.
	NoSync bool

	// ReadSoon says that the image is to be in the page cache when it is written: somebody is about to copy it.
	ReadSoon bool

	directFrom int // the least memory for which raw chunks go past the page cache; 0: the constant

	// Progress is called with the bytes of memory that are done and their total, by one goroutine at a time.
	Progress func(done, total uint64)
}

// Summary says what was written.
type Summary struct {
	Bytes   int64  // length of the file
	Digest  Digest // covers the whole file
	Regions int
	Chunks  int

	RegionBytes  uint64 // memory that the regions span
	PayloadBytes uint64 // memory content in the file, before compression
	StoredBytes  uint64 // the same in the file
	SharedBytes  uint64 // memory content in images that this one refers to
	SameBytes    uint64 // of it, by Input.Elder
	ZeroBytes    uint64 // memory with data that turned out to be zero, not stored
	UnreadBytes  uint64 // memory of Input.Unwritten that was not read

	WriteTime time.Duration // reading, compressing and writing
	SyncTime  time.Duration // fsync and rename

	Sources []Source // images that this one refers to
	Parent  *Parent  // for the next image, with Options.Track
}

// Write makes the image of in at path.
//
// On success the file at path is complete and, with its name, on stable storage; a file that was
// there before is replaced. The image grows under another name in the same directory, so after a failure
// path is as before and no other file is left. One failure is different: when the directory cannot be
// synced after the rename, the new file is in place but may be gone after a power cut, so the caller must
// not rely on the file. After a crash a file named path.*.tmp may remain, and can be removed. Write may be
// tried again after any error. When the disk is full the error wraps ENOSPC (or EDQUOT).
func Write(ctx context.Context, path string, in Input, opt Options) (_ Summary, err error) {
	err = check(&in)
	if err == nil {
		err = in.Parent.beside(path)
	}
	if err != nil {
		return Summary{}, fmt.Errorf("image %s: %w", path, err)
	}
	fail := func(what string, err error) (Summary, error) {
		return Summary{}, fmt.Errorf("image %s: %s: %w%s", path, what, err, remedy(err))
	}
	begun := time.Now()
	f, err := createTemp(path)
	if err != nil {
		return fail("create", err)
	}
	renamed := false
	defer func() {
		if err != nil && !renamed {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	w := &writer{file: f, in: &in, opt: opt.withDefaults(), pace: pace{limit: opt.Limit}}
	defer w.parent.close()
	err = w.run(ctx)
	w.flusher.stop() // it uses the file
	if err != nil {
		return fail("write", err)
	}
	w.out.WriteTime = time.Since(begun)
	if w.teller != nil {
		name, err := SourceName(path)
		if err != nil {
			return fail("write", err)
		}
		w.teller.end(Source{name, w.out.Bytes, w.out.Digest})
	}
	begun = time.Now()
	if err := fault.Point("image.write.sync"); err != nil {
		return fail("fsync", err)
	}
	if !opt.NoSync {
		if err := f.Sync(); err != nil {
			return fail("fsync", err)
		}
	}
	if err := f.Close(); err != nil {
		return fail("close", err)
	}
	if err := fault.Point("image.write.rename"); err != nil {
		return fail("rename", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fail("rename", err)
	}
	renamed = true
	if err := syncDir(filepath.Dir(path), opt.NoSync); err != nil {
		return fail("fsync of the directory", err)
	}
	w.out.SyncTime = time.Since(begun)
	if w.opt.Track {
		w.out.Parent = w.asParent(path)
	}
	return w.out, nil
}

// remedy is what to do about a file that cannot grow.
func remedy(err error) string {
	switch {
	case errors.Is(err, unix.EFBIG):
		return "; files of this job may not become so large (ulimit -f), or those of the file system: raise the limit, or compress more"
	case errors.Is(err, unix.ENOSPC):
		return "; make room there (ckptctl gc), or have the job save elsewhere"
	case errors.Is(err, unix.EDQUOT):
		return "; your quota there is used up: make room (ckptctl gc), or have the job save elsewhere"
	}
	return ""
}

func (o Options) withDefaults() Options {
	if o.Workers <= 0 {
		o.Workers = min(4, runtime.GOMAXPROCS(0))
	}
	if o.Chunk == 0 {
		o.Chunk = DefaultChunk
	}
	o.Chunk = min(max(o.Chunk-o.Chunk%PageSize, PageSize), MaxChunk)
	if o.Compress == "" {
		o.Compress = CompressNone
	}
	if o.Model == nil {
		o.Model = &Model{}
	}
	return o
}

// check looks for mistakes of the caller before any file is created.
func check(in *Input) error {
	if err := checkRegions(in.Regions); err != nil {
		return err
	}
	for i := range in.Regions {
		r := &in.Regions[i]
		if r.Copied == nil && in.Memory == nil && r.Flags&FlagNoData == 0 {
			return fmt.Errorf("region %v: no memory to read it from", r)
		}
		if err := errors.Join(r.Copied.check(r), checkHeld(r.Held, r)); err != nil {
			return err
		}
	}
	seen := map[string]bool{metaSection: true, regionsSection: true}
	for _, s := range in.Sections {
		if !validName(s.Name) || seen[s.Name] {
			return fmt.Errorf("section name %q is taken or not well formed", s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}

// createTemp makes the file in which the image grows.
func createTemp(path string) (*os.File, error) {
	if err := fault.Point("image.write.create"); err != nil {
		return nil, err
	}
	// CreateTemp uses O_EXCL and mode 0600.
	return os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
}

func syncDir(dir string, skip bool) error {
	if err := fault.Point("image.write.syncdir"); err != nil {
		return err
	}
	if skip {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
