// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/internal/regular"
)

// bytesAt is the memory from addr on. It is not Go's: the collector neither scans nor moves it.
func bytesAt(addr, n uint64) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
}

// Children lists the children of this process, those in known left out.
func Children(known map[int]bool) ([]int, error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, t := range tasks {
		b, err := os.ReadFile("/proc/self/task/" + t.Name() + "/children")
		if err != nil {
			if os.IsNotExist(err) {
				continue // the thread is gone
			}
			return nil, fmt.Errorf("which children this process has: %w", err)
		}
		for _, f := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(f)
			if err == nil && !known[pid] {
				out = append(out, pid)
			}
		}
	}
	return out, nil
}

// hugeAt is the size of content from which a region gets huge pages while it is restored: filling 4 KiB
// pages is bound by page faults (docs/split-process.md, "Figures").
const hugeAt = 2 << 20

// Huge says whether region i gets huge pages while it is restored.
func Huge(f *image.File, i int) bool {
	var content uint64
	for _, c := range f.RegionChunks(i) {
		content += c.End() - c.Addr
	}
	r := &f.Regions()[i]
	return content >= hugeAt && content >= r.Bytes()/2
}

// Check refuses an image with a region where no program's memory can be: an image that is sound in itself may still
// have been written by somebody else.
func Check(f *image.File) error {
	regions := f.Regions()
	for i := range regions {
		r := &regions[i]
		if r.Start == 0 {
			return fmt.Errorf("%s: memory %s begins at address 0, where nothing can be put back: the program must leave that address alone", f.Name(), r)
		}
		if !upper(r.Start, r.End) {
			return fmt.Errorf("%s: memory %s lies outside a program's (0x%x to 0x%x, and below 0x%x): "+
				"no ckptrun with this layout of addresses has written this image",
				f.Name(), r, uint64(GatePageEnd), uint64(ArenaEnd), uint64(LowEnd))
		}
	}
	return nil
}

// Options of Map.
type Options struct {
	Workers  int // 0: as many as there are processors
	Progress func(done, total uint64)
	// Shared is the file that a shared anonymous region is a part of, from its offset on; nil: it is of none.
	Shared func(*image.Region) (*os.File, error)
	// Attach maps a shared anonymous region itself, or says that it is none of its own. nil: there are none such.
	Attach func(*image.Region) (bool, error)
	// Later says which regions are mapped only: others fill them. nil: none.
	Later func(*image.Region) bool
	// Made says which regions MapSome has made already. nil: none.
	Made func(*image.Region) bool
	// Aside has the content of some regions, and nothing afterwards.
	Aside *Aside
}

// Map makes the regions of the image in this process and fills them. Nothing may be mapped at
// their addresses yet. An image that Check refuses is refused before anything is mapped.
func Map(ctx context.Context, f *image.File, o Options) error {
	if err := Check(f); err != nil {
		return err
	}
	regions := f.Regions()
	made := func(r *image.Region) bool { return o.Made != nil && o.Made(r) }
	for i := range regions {
		if made(&regions[i]) {
			continue
		}
		if err := mapRegion(f, i, o.Shared, o.Attach); err != nil {
			return fmt.Errorf("%s: memory %s: %w", f.Name(), &regions[i], err)
		}
	}
	err := f.Read(ctx, func(i int, r *image.Region) []byte {
		if o.Later != nil && o.Later(r) || made(r) || o.Aside.has(i) {
			return nil
		}
		return bytesAt(r.Start, r.Bytes())
	},
		image.ReadOptions{Workers: o.Workers, Progress: o.Progress})
	if err == nil {
		err = o.Aside.put(f)
	}
	if err != nil {
		return err
	}
	for i := range regions {
		r := &regions[i]
		if err := clearRest(f, i); err != nil {
			return fmt.Errorf("%s: memory %s: %w", f.Name(), r, err)
		}
		if err := protect(r.Start, r.Bytes(), int(r.Prot)); err != nil {
			return fmt.Errorf("%s: memory %s: protection: %w", f.Name(), r, err)
		}
	}
	return nil
}

// MapSome makes and fills those regions of the image that want says yes to, or none of them. They are private memory;
// where they lie is the caller's matter.
func MapSome(ctx context.Context, f *image.File, want func(*image.Region) bool) (err error) {
	regions := f.Regions()
	made := map[int]bool{}
	defer func() {
		for i := range made {
			if err != nil {
				_ = drop(regions[i].Start, regions[i].Bytes())
			}
		}
	}()
	for i := range regions {
		if !want(&regions[i]) {
			continue
		}
		if err := mapRegion(f, i, nil, nil); err != nil {
			return fmt.Errorf("%s: memory %s: %w%s", f.Name(), &regions[i], err, taker(&regions[i]))
		}
		made[i] = true
	}
	return f.Read(ctx, func(i int, r *image.Region) []byte {
		if !made[i] {
			return nil
		}
		return bytesAt(r.Start, r.Bytes())
	}, image.ReadOptions{})
}

// Private tells whether a region is memory of this process alone, for which MapSome needs nothing but the image.
func Private(r *image.Region) bool { return r.Flags&image.FlagShared == 0 }

// Unmap takes back what MapSome has made.
func Unmap(f *image.File, want func(*image.Region) bool) error {
	var errs []error
	for _, r := range f.Regions() {
		if want(&r) {
			errs = append(errs, drop(r.Start, r.Bytes()))
		}
	}
	return errors.Join(errs...)
}

// taker says what lies at the addresses of a region in this process.
func taker(r *image.Region) string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(maps)) {
		if have, err := parseLine(strings.TrimSpace(line)); err == nil && have.Start < r.End && r.Start < have.End {
			return fmt.Sprintf(" (there is %s)", &have)
		}
	}
	return ""
}

func drop(addr, n uint64) error {
	if _, _, e := unix.Syscall(unix.SYS_MUNMAP, uintptr(addr), uintptr(n), 0); e != 0 {
		return e
	}
	return nil
}

func mapRegion(f *image.File, i int, shared func(*image.Region) (*os.File, error), attach func(*image.Region) (bool, error)) error {
	r := &f.Regions()[i]
	if attach != nil {
		if is, err := attach(r); err != nil || is {
			return err
		}
	}
	prot := unix.PROT_READ | unix.PROT_WRITE
	if shared != nil && r.Flags&image.FlagShared != 0 && r.Flags&image.FlagAnonymous != 0 {
		if file, err := shared(r); err != nil || file != nil {
			if err != nil {
				return err
			}
			return mapAt(r.Start, r.Bytes(), prot, unix.MAP_SHARED, int(file.Fd()), int64(r.Offset))
		}
	}
	if r.Flags&image.FlagShared == 0 || r.Flags&image.FlagAnonymous != 0 {
		flags := unix.MAP_PRIVATE
		if r.Flags&image.FlagShared != 0 {
			flags = unix.MAP_SHARED
		}
		// A mapping that is beside one of the program's joins it only if both are accounted for in the same way.
		flags |= unix.MAP_ANONYMOUS
		err := error(unix.ENOMEM)
		if r.Prot&unix.PROT_WRITE != 0 {
			err = mapAt(r.Start, r.Bytes(), prot, flags, -1, 0)
		}
		if errors.Is(err, unix.ENOMEM) { // the program had it without a reserve, too
			err = mapAt(r.Start, r.Bytes(), prot, flags|unix.MAP_NORESERVE, -1, 0)
		}
		if err != nil {
			return err
		}
		if Huge(f, i) {
			// Only advice; without huge pages it is slower, not wrong. The region as a whole: a part of it
			// would become a mapping of its own, and mremap does not work across two.
			_ = advise(r.Start, r.Bytes(), unix.MADV_HUGEPAGE)
		}
		return nil
	}
	if refers(r) {
		return mapReferred(r)
	}
	// A shared file: mapped again; its content goes back to what it was, like that of a file which
	// was being written.
	mode := os.O_RDONLY
	if r.Prot&unix.PROT_WRITE != 0 {
		mode = os.O_RDWR
	}
	file, err := openMapped(r, mode)
	if err != nil {
		return err
	}
	defer file.Close()
	if mode == os.O_RDONLY {
		// Not writable, so it cannot be filled: private pages with the saved content.
		return mapAt(r.Start, r.Bytes(), prot, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE, -1, 0)
	}
	st, err := file.Stat()
	if err != nil {
		return err
	}
	need := int64(0) // a mapping may go on behind the end of its file
	eachContent(f, i, func(c *image.Chunk) { need = max(need, int64(r.Offset+c.End()-r.Start)) })
	if st.Size() <= need-image.PageSize {
		return fmt.Errorf("shared file %s has %d bytes, %d are needed; put it back as it was", r.Path, st.Size(), need)
	}
	return mapAt(r.Start, r.Bytes(), prot, unix.MAP_SHARED, int(file.Fd()), int64(r.Offset))
}

func openMapped(r *image.Region, mode int) (*os.File, error) {
	file, err := regular.Open(r.Path, mode)
	if err != nil {
		return nil, fmt.Errorf("shared file: %w; put it back where it was", err)
	}
	return file, nil
}

func mapAt(addr, n uint64, prot, flags, fd int, offset int64) error {
	got, _, e := unix.Syscall6(unix.SYS_MMAP, uintptr(addr), uintptr(n), uintptr(prot),
		uintptr(flags|unix.MAP_FIXED_NOREPLACE), uintptr(fd), uintptr(offset))
	if e == unix.EEXIST {
		return fmt.Errorf("its addresses are taken in this process: %w; try again (addresses of libraries vary)", e)
	}
	if e != 0 {
		return e
	}
	if uint64(got) != addr {
		return fmt.Errorf("the kernel does not know MAP_FIXED_NOREPLACE (Linux 4.17 and later)")
	}
	return nil
}

func protect(addr, n uint64, prot int) error {
	if _, _, e := unix.Syscall(unix.SYS_MPROTECT, uintptr(addr), uintptr(n), uintptr(prot)); e != 0 {
		return e
	}
	return nil
}

func advise(addr, n uint64, advice int) error {
	if _, _, e := unix.Syscall(unix.SYS_MADVISE, uintptr(addr), uintptr(n), uintptr(advice)); e != 0 {
		return e
	}
	return nil
}
