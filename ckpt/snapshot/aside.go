// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/internal/regular"
)

// Aside has the content of shared regions, which was read and checked before they were made: others see at once what is
// filled in there. It takes as much memory as that content. A nil *Aside has nothing.
type Aside struct{ memory map[int][]byte }

// AsideBytes is how much memory ReadAside would take for those regions.
func AsideBytes(f *image.File, want func(*image.Region) bool) (total uint64) {
	regions := f.Regions()
	for i := range regions {
		if want(&regions[i]) {
			eachContent(f, i, func(c *image.Chunk) { total += uint64(c.Bytes) })
		}
	}
	return total
}

// ReadAside reads those regions.
func ReadAside(ctx context.Context, f *image.File, want func(*image.Region) bool) (*Aside, error) {
	a := &Aside{memory: map[int][]byte{}}
	regions := f.Regions()
	for i := range regions {
		r := &regions[i]
		if !want(r) || len(f.RegionChunks(i)) == 0 {
			continue
		}
		mem, err := unix.Mmap(-1, 0, int(r.Bytes()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			a.Drop()
			return nil, fmt.Errorf("%s: memory %s: %w", f.Name(), r, err)
		}
		a.memory[i] = mem
		if Huge(f, i) {
			_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
		}
	}
	err := f.Read(ctx, func(i int, _ *image.Region) []byte { return a.memory[i] }, image.ReadOptions{})
	if err != nil {
		a.Drop()
		return nil, err
	}
	return a, nil
}

// Drop gives back what is left.
func (a *Aside) Drop() {
	if a == nil {
		return
	}
	for i, mem := range a.memory {
		_ = unix.Munmap(mem)
		delete(a.memory, i)
	}
}

func (a *Aside) has(i int) bool { return a != nil && a.memory[i] != nil }

// put fills the regions that it has, which are made, and gives their memory back.
func (a *Aside) put(f *image.File) error {
	if a == nil {
		return nil
	}
	defer a.Drop()
	var g errgroup.Group
	g.SetLimit(4)
	for i, mem := range a.memory {
		r := &f.Regions()[i]
		fill := func(to, from []byte) { copy(to, from) }
		if r.Flags&image.FlagFile != 0 {
			fill = copyPages
		}
		eachContent(f, i, func(c *image.Chunk) {
			g.Go(func() error {
				fill(bytesAt(c.Addr, uint64(c.Bytes)), mem[c.Addr-r.Start:])
				return nil
			})
		})
	}
	return g.Wait()
}

// copyPages copies the pages that differ. A file that nobody has changed since is not written to, and keeps its times.
func copyPages(to, from []byte) {
	for at := 0; at < len(to); at += image.PageSize {
		end := min(at+image.PageSize, len(to))
		if !bytes.Equal(to[at:end], from[at:end]) {
			copy(to[at:end], from[at:end])
		}
	}
}

// eachContent calls do with the chunks of a region that are not zeros.
func eachContent(f *image.File, i int, do func(c *image.Chunk)) {
	chunks := f.RegionChunks(i)
	for k := range chunks {
		if chunks[k].Kind != image.KindZero {
			do(&chunks[k])
		}
	}
}

// clearRest has zeros where a file that the program writes to through its memory had them: other memory is new, and this
// is what the file has become since. Holes of the file stay holes.
func clearRest(f *image.File, i int) error {
	r := &f.Regions()[i]
	if r.Flags&image.FlagFile == 0 || r.Flags&image.FlagShared == 0 || r.Flags&image.FlagNoData != 0 || r.Prot&unix.PROT_WRITE == 0 {
		return nil
	}
	file, err := regular.Open(r.Path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer file.Close()
	at := r.Start
	clearTo := func(end uint64) {
		for at < end {
			data, err := unix.Seek(int(file.Fd()), int64(r.Offset+at-r.Start), unix.SEEK_DATA)
			if errors.Is(err, unix.ENXIO) { // there is none
				return
			}
			hole := int64(r.Offset + r.Bytes())
			if err == nil {
				at = max(at, r.Start+uint64(data)-r.Offset)
				if to, err := unix.Seek(int(file.Fd()), data, unix.SEEK_HOLE); err == nil {
					hole = to
				}
			}
			for at &^= image.PageSize - 1; at < min(end, r.Start+uint64(hole)-r.Offset); at += image.PageSize {
				if page := bytesAt(at, image.PageSize); !zero(page) {
					clear(page)
				}
			}
		}
	}
	eachContent(f, i, func(c *image.Chunk) {
		clearTo(c.Addr)
		at = c.End()
	})
	clearTo(r.End)
	return nil
}

func zero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}
