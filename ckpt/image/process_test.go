// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The child process of TestProcess makes mappings of all kinds in this range and then waits.
const (
	childBase = uint64(0x100200000000)
	childEnd  = childBase + 1<<30
	childEnv  = "IMAGE_TEST_CHILD"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		if err := childMain(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func mapAt(addr uint64, pages int, prot, flags int, fd int) ([]byte, error) {
	// An address from nowhere; written so that vet does not take it for arithmetic on a pointer.
	p, err := unix.MmapPtr(fd, 0, *(*unsafe.Pointer)(unsafe.Pointer(&addr)), uintptr(pages*PageSize), prot,
		flags|unix.MAP_FIXED_NOREPLACE)
	if err != nil {
		return nil, fmt.Errorf("mmap at 0x%x: %w", addr, err)
	}
	return unsafe.Slice((*byte)(p), pages*PageSize), nil
}

func childMain() error {
	const rw, anon = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	at := childBase
	rng := rand.New(rand.NewPCG(7, 7))
	next := func(pages, prot, flags, fd int) []byte {
		m, err := mapAt(at, pages, prot, flags, fd)
		if err != nil {
			panic(err)
		}
		at += uint64(pages+16) * PageSize
		return m
	}
	fill := func(m []byte) {
		for i := range m {
			m[i] = byte(rng.Uint32())
		}
	}
	// 0: written all over. 1: a few pages written, some only read, one written with zeros.
	fill(next(300, rw, anon, -1))
	m := next(5000, rw, anon, -1)
	for _, page := range []int{0, 7, 8, 1000, 4999} {
		fill(m[page*PageSize : (page+1)*PageSize])
	}
	var read byte
	for page := 2000; page < 2100; page++ {
		read += m[page*PageSize]
	}
	m[3000*PageSize] = read
	// 2: written, then made inaccessible. 3: never touched, inaccessible.
	m = next(20, rw, anon, -1)
	fill(m)
	if err := unix.Mprotect(m, unix.PROT_NONE); err != nil {
		return err
	}
	next(1000, unix.PROT_NONE, anon|unix.MAP_NORESERVE, -1)
	// 4: a private file mapping, one page changed, reaching behind the end of the file.
	f, err := os.CreateTemp("", "image-test")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	content := make([]byte, 10*PageSize+100)
	fill(content)
	if _, err := f.Write(content); err != nil {
		return err
	}
	m = next(14, rw, unix.MAP_PRIVATE, int(f.Fd()))
	m[3*PageSize] ^= 0xff
	// 5: read-only of the same file. 6: shared anonymous memory.
	next(5, unix.PROT_READ, unix.MAP_PRIVATE, int(f.Fd()))
	fill(next(9, rw, unix.MAP_SHARED|unix.MAP_ANONYMOUS, -1))
	// 7: guard pages (Linux 6.13; older kernels answer EINVAL and there are none).
	m = next(12, rw, anon, -1)
	fill(m)
	if err := unix.Madvise(m[4*PageSize:6*PageSize], 102); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	// 8: huge pages, where the machine gives them.
	m = next(2048, rw, anon, -1)
	_ = unix.Madvise(m, unix.MADV_HUGEPAGE)
	fill(m[:700*PageSize])
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin) // until the parent goes away
	return err
}

// readMaps reads the mappings of a process in the child's range.
func readMaps(t *testing.T, pid int) []Region {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	var list []Region
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		from, to, _ := strings.Cut(f[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("line %q", line)
		}
		if start < childBase || end > childEnd {
			continue
		}
		r := Region{Start: start, End: end}
		for i, bit := range []uint32{unix.PROT_READ, unix.PROT_WRITE, unix.PROT_EXEC} {
			if f[1][i] != '-' {
				r.Prot |= bit
			}
		}
		if f[1][3] == 's' {
			r.Flags |= FlagShared
		}
		if f[4] == "0" {
			r.Flags |= FlagAnonymous
		} else {
			r.Flags |= FlagFile
			r.Path = f[5]
		}
		list = append(list, r)
	}
	return list
}

func startChild(t *testing.T) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("child: %q, %v", line, err)
	}
	return cmd.Process.Pid
}

// TestProcess saves the memory of a child, restores it into memory of this process and compares it
// page by page with what the child has, in every way that the kernel's page map can be asked.
func TestProcess(t *testing.T) {
	pid := startChild(t)
	regions := readMaps(t, pid)
	if len(regions) < 9 {
		t.Fatalf("%d regions", len(regions))
	}
	raw, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	var payload []uint64
	for _, mode := range []int32{scanGuards, scanPlain, scanNone} {
		t.Run(fmt.Sprintf("mode%d", mode), func(t *testing.T) {
			mem, err := OpenProcess(pid)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = mem.Close() }()
			mem.presence.scan.Store(mode)
			path, s := mustWrite(t, Input{Regions: regions, Memory: mem}, Options{Compress: CompressSnappy})
			if got := mem.presence.scan.Load(); got != mode && mode != scanGuards {
				t.Fatalf("the kernel refuses mode %d, went on with %d", mode, got)
			}
			t.Logf("mode %d: %d chunks, payload %d KiB, zero %d KiB of %d KiB", mem.presence.scan.Load(),
				s.Chunks, s.PayloadBytes>>10, s.ZeroBytes>>10, s.RegionBytes>>10)
			f := mustOpen(t, path)
			restored := map[int][]byte{}
			err = f.Read(t.Context(), func(i int, r *Region) []byte {
				m, err := unix.Mmap(-1, 0, int(r.Bytes()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = unix.Munmap(m) })
				restored[i] = m
				return m
			}, ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			page, zero := make([]byte, PageSize), make([]byte, PageSize)
			for i, r := range f.Regions() {
				for at := r.Start; at < r.End; at += PageSize {
					want := page
					if _, err := raw.ReadAt(page, int64(at)); err != nil {
						want = zero // behind the end of a file, or a guard page
					}
					got := zero
					if restored[i] != nil {
						got = restored[i][at-r.Start:][:PageSize]
					}
					if !bytes.Equal(got, want) {
						t.Fatalf("region %v: the page at 0x%x differs", &r, at)
					}
				}
			}
			// Untouched memory costs nothing: the regions span much more than was written.
			if s.PayloadBytes > 8<<20 || s.PayloadBytes < 4<<20 {
				t.Errorf("payload of %d KiB", s.PayloadBytes>>10)
			}
			payload = append(payload, s.PayloadBytes)
		})
	}
	if len(slices.Compact(payload)) != 1 {
		t.Errorf("the ways of asking disagree: payloads %v", payload)
	}
}

func TestSelf(t *testing.T) {
	mem, err := OpenSelf()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mem.Close() }()
	m, err := unix.Mmap(-1, 0, 64*PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(m) }()
	copy(m[5*PageSize:], "hello")
	start := uint64(uintptr(unsafe.Pointer(&m[0])))
	list, err := mem.Present(start, start+64*PageSize)
	if err != nil || len(list) != 1 || list[0] != (Extent{Start: start + 5*PageSize, End: start + 6*PageSize}) {
		t.Errorf("present: %x, %v", list, err)
	}
	path, _ := mustWrite(t, Input{Regions: []Region{{Start: start, End: start + 64*PageSize}}, Memory: mem}, Options{})
	got := make([]byte, 64*PageSize)
	if err := mustOpen(t, path).ReadRegion(t.Context(), 0, got, 2); err != nil || !bytes.Equal(got, m) {
		t.Errorf("differs, error %v", err)
	}
}

// TestProcessGone: the process ends between opening and reading. That is an error, not zeros.
func TestProcessGone(t *testing.T) {
	pid := startChild(t)
	regions := readMaps(t, pid)
	mem, err := OpenProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mem.Close() }()
	child, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Kill(); err != nil {
		t.Fatal(err)
	}
	// Until its memory is gone: somebody who looks at its /proc files holds it for a moment longer.
	for page := make([]byte, PageSize); mem.ReadAt(page, regions[0].Start) == nil; {
	}
	dir := t.TempDir()
	_, err = Write(t.Context(), filepath.Join(dir, "x"), Input{Regions: regions, Memory: mem}, Options{})
	if err == nil {
		t.Error("the memory of a dead process was saved")
	}
	t.Log(err)
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	if _, err := OpenProcess(1 << 30); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such process: %v", err)
	}
}
