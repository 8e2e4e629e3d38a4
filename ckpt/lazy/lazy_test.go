// SPDX-License-Identifier: Apache-2.0

package lazy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/internal/fault"
	"github.com/libckpt/libckpt/internal/userfault"
)

const (
	page = image.PageSize
	base = uint64(0x100200000000) // nothing of Go's is near
	// patience bounds what must come at all.
	patience = time.Minute
)

const openEnv = "LAZY_TEST_OPEN"

func TestMain(m *testing.M) {
	if os.Getenv(openEnv) != "" {
		_, err := userfault.Open()
		if !errors.Is(err, userfault.ErrForbidden) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// bench is an image, its memory mapped in this process, and a loader.
type bench struct {
	*Loader
	t       *testing.T
	path    string
	content []byte // of the memory from base on
	mem     *os.File
	failed  chan error
	loaded  chan struct{}
}

// newBench makes memory of three regions: random and compressible pages with holes, a region that may only be read,
// and one whose second half was never touched.
func newBench(t *testing.T, compress image.Compression, change func(file []byte, f *image.File)) *bench {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	const a, b, c = 1500, 300, 600 // pages
	content := make([]byte, (a+b+c)*page)
	for p := range a + b + c {
		at := content[p*page : (p+1)*page]
		switch {
		case p >= a+b+c/2 || p >= 400 && p < 700: // zero
		case p%3 == 0:
			for i := range at {
				at[i] = byte(rng.Uint32())
			}
		default:
			for i := range at {
				at[i] = byte(p + i>>9)
			}
		}
	}
	region := func(from, pages int, prot uint32) image.Region {
		start := base + uint64(from)*page
		return image.Region{Start: start, End: start + uint64(pages)*page, Prot: prot, Flags: image.FlagAnonymous,
			Copied: image.CopiedAt(start, content[from*page:(from+pages)*page])}
	}
	regions := []image.Region{region(0, a, 3), region(a, b, 1), region(a+b, c, 3)}
	path := filepath.Join(t.TempDir(), "rank-00000.ckpt")
	if _, err := image.Write(context.Background(), path, image.Input{Meta: []byte("{}"), Regions: regions},
		image.Options{Compress: compress, Chunk: 64 << 10}); err != nil {
		t.Fatal(err)
	}
	f, err := image.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		change(whole, f)
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	x := &bench{t: t, path: path, content: content, failed: make(chan error, 1), loaded: make(chan struct{})}
	x.Loader, err = New(f, Options{Failed: func(err error) { x.failed <- err }, Loaded: func() { close(x.loaded) }, Huge: func(i int) bool { return i == 0 }})
	if errors.Is(err, userfault.ErrForbidden) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range regions {
		r := &regions[i]
		at := r.Start
		if _, err := unix.MmapPtr(-1, 0, *(*unsafe.Pointer)(unsafe.Pointer(&at)), uintptr(r.Bytes()), int(r.Prot),
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE); err != nil {
			t.Fatal(err)
		}
		if !x.Has(r) {
			t.Fatalf("region %v is left out", r)
		}
	}
	if x.mem, err = os.OpenFile("/proc/self/mem", os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, _, e := unix.Syscall(unix.SYS_MUNMAP, uintptr(base), uintptr(len(content)), 0); e != 0 {
			t.Error(e)
		}
		_ = x.mem.Close()
		_ = f.Close()
	})
	return x
}

// read reads memory as the kernel does it for a process: the goroutine is in a system call.
func (x *bench) read(from, n int) []byte {
	p := make([]byte, n)
	if _, err := unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{{Base: &p[0], Len: uint64(n)}},
		[]unix.RemoteIovec{{Base: uintptr(base) + uintptr(from), Len: n}}, 0); err != nil {
		x.t.Error(err)
	}
	return p
}

func (x *bench) want(from, n int) {
	x.t.Helper()
	if got := x.read(from, n); !bytes.Equal(got, x.content[from:from+n]) {
		x.t.Errorf("the %d bytes from page %d on are not those of the image", n, from/page)
	}
}

// begin starts the loader, without its background unless that is wanted.
func (x *bench) begin(background bool) {
	x.t.Helper()
	if !background {
		disarm, err := fault.Arm("lazy.background=error")
		if err != nil {
			x.t.Fatal(err)
		}
		x.t.Cleanup(disarm)
	}
	if err := x.Begin([]uint64{base + 30*page, 12, 12, 12, 12, 12, 12, 12, base + 100*page}); err != nil {
		x.t.Fatal(err)
	}
}

func (x *bench) finish() {
	x.t.Helper()
	if err := x.Finish(context.Background()); err != nil {
		x.t.Fatal(err)
	}
	<-x.loaded
}

func madvise(t *testing.T, from, pages, advice int) {
	t.Helper()
	if _, _, e := unix.Syscall(unix.SYS_MADVISE, uintptr(base)+uintptr(from*page), uintptr(pages*page), uintptr(advice)); e != 0 {
		t.Fatal(e)
	}
}

func TestOnTouch(t *testing.T) {
	for name, c := range map[string]image.Compression{"raw": image.CompressNone, "snappy": image.CompressSnappy, "zstd": image.CompressZstd} {
		t.Run(name, func(t *testing.T) {
			x := newBench(t, c, nil)
			x.begin(false)
			for _, p := range []int{0, 399, 500, 699, 1499, 1500, 1700, 2200} {
				x.want(p*page+100, 50)
			}
			done, total := x.Progress()
			if done == 0 || done >= total {
				t.Errorf("%d bytes of %d are there after a few pages were touched", done, total)
			}
			b := []byte("new")
			if _, err := unix.ProcessVMWritev(os.Getpid(), []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}},
				[]unix.RemoteIovec{{Base: uintptr(base) + 450*page, Len: len(b)}}, 0); err != nil { // in a hole
				t.Fatal(err)
			}
			copy(x.content[450*page:], "new")
			x.finish()
			x.want(0, len(x.content))
			if done, total := x.Progress(); done != total {
				t.Errorf("%d bytes of %d are there at the end", done, total)
			}
		})
	}
}

func TestBackground(t *testing.T) {
	x := newBench(t, image.CompressSnappy, nil)
	x.begin(true)
	select {
	case <-x.loaded:
	case <-time.After(patience):
		t.Fatal("the background does not bring everything")
	}
	x.want(0, len(x.content))
}

// Memory that may have huge pages has some when all is there.
func TestHuge(t *testing.T) {
	enabled, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil || bytes.Contains(enabled, []byte("[never]")) {
		t.Skip("this machine has no huge pages")
	}
	x := newBench(t, image.CompressNone, nil)
	x.begin(true)
	<-x.Closed()
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(base), hugePage, unix.MADV_COLLAPSE); errno == unix.EINVAL {
		t.Skip("this kernel does not collapse pages (Linux 6.1 and later)")
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if hugeKiB(t, base) >= 2*hugePage>>10 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d KiB of huge pages", hugeKiB(t, base))
		}
	}
	x.want(0, len(x.content))
}

// hugeKiB is what of the mapping at addr is huge pages.
func hugeKiB(t *testing.T, addr uint64) (kib int) {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, mapping, found := strings.Cut(string(smaps), fmt.Sprintf("\n%x-", addr))
	_, value, also := strings.Cut(mapping, "AnonHugePages:")
	if _, err := fmt.Sscan(value, &kib); !found || !also || err != nil {
		t.Fatalf("no mapping at 0x%x: %v", addr, err)
	}
	return kib
}

// Threads touch everything at once, in different orders.
func TestThreads(t *testing.T) {
	x := newBench(t, image.CompressNone, nil)
	x.begin(true)
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			for _, p := range rng.Perm(len(x.content) / page) {
				x.want(p*page, page)
			}
		})
	}
	wg.Wait()
	x.finish()
}

// Memory that was given back is zero, however much of it was there.
func TestDrop(t *testing.T) {
	x := newBench(t, image.CompressNone, nil)
	x.begin(false)
	x.want(30*page, page)
	const from, pages = 5, 200
	madvise(t, from, pages, unix.MADV_DONTNEED)
	if err := x.Drop(base+from*page, base+(from+pages)*page); err != nil {
		t.Fatal(err)
	}
	madvise(t, from, pages, unix.MADV_DONTNEED) // as missing.c does it
	clear(x.content[from*page : (from+pages)*page])
	x.want(0, 300*page)
	x.finish()
	x.want(0, len(x.content))
}

// A part is unmapped, a part is mapped anew, and a part has another protection: the rest comes all the same.
func TestChangedMappings(t *testing.T) {
	x := newBench(t, image.CompressNone, nil)
	x.begin(false)
	at := base + 20*page
	if _, err := unix.MmapPtr(-1, 0, *(*unsafe.Pointer)(unsafe.Pointer(&at)), 3*page, 3,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED); err != nil {
		t.Fatal(err)
	}
	clear(x.content[20*page : 23*page])
	if _, _, e := unix.Syscall(unix.SYS_MPROTECT, uintptr(base+40*page), 5*page, 0); e != 0 {
		t.Fatal(e)
	}
	if _, _, e := unix.Syscall(unix.SYS_MUNMAP, uintptr(base+100*page), 7*page, 0); e != 0 {
		t.Fatal(e)
	}
	x.finish()
	if _, _, e := unix.Syscall(unix.SYS_MPROTECT, uintptr(base+40*page), 5*page, unix.PROT_READ); e != 0 {
		t.Fatal(e)
	}
	x.want(0, 100*page)
	x.want(107*page, len(x.content)-107*page)
}

// Filled memory may move: nothing of it stays behind.
func TestFill(t *testing.T) {
	x := newBench(t, image.CompressZstd, nil)
	x.begin(false)
	const from, pages = 1500, 300 // a whole region
	if err := x.Fill(base+from*page, base+(from+pages)*page); err != nil {
		t.Fatal(err)
	}
	to := base + 1<<30
	if _, _, e := unix.Syscall6(unix.SYS_MREMAP, uintptr(base+from*page), pages*page, pages*page,
		unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, uintptr(to), 0); e != 0 {
		t.Fatal(e)
	}
	got := make([]byte, pages*page)
	if _, err := x.mem.ReadAt(got, int64(to)); err != nil || !bytes.Equal(got, x.content[from*page:(from+pages)*page]) {
		t.Errorf("moved memory is not that of the image (%v)", err)
	}
	if _, _, e := unix.Syscall(unix.SYS_MUNMAP, uintptr(to), pages*page, 0); e != 0 {
		t.Error(e)
	}
	x.finish()
}

// Whoever touches a page of a damaged chunk gets nothing, not even zeros, and the damage is told.
func TestDamaged(t *testing.T) {
	const bad = 301 // page
	x := newBench(t, image.CompressNone, func(file []byte, f *image.File) {
		for _, c := range f.Chunks() {
			if at := base + bad*page; c.Addr <= at && at < c.End() {
				file[uint64(c.Offset)+at-c.Addr+17] ^= 4
			}
		}
	})
	x.begin(false)
	x.want(0, 100*page)
	seen := make(chan []byte, 1)
	go func() { seen <- x.read(bad*page, page) }()
	select {
	case err := <-x.failed:
		var corrupt *image.CorruptError
		if !errors.As(err, &corrupt) || corrupt.File != x.path {
			t.Errorf("%v", err)
		}
	case <-time.After(patience):
		t.Fatal("nobody is told")
	}
	if err := x.Fill(base, base+uint64(len(x.content))); err == nil {
		t.Error("memory of which a part is damaged counts as filled")
	}
	if err := x.Finish(context.Background()); err == nil {
		t.Error("loading ends well")
	}
	select {
	case p := <-seen:
		t.Errorf("the page was read: %x...", p[:32])
	default:
	}
	one := [8]byte{1} // the end of the process, as far as a test can have it
	_, _ = unix.Write(x.stop, one[:])
	x.wg.Wait()
	_ = unix.Close(x.fd)
	_ = unix.Close(x.stop)
	<-seen
}

// The file may be removed as soon as it is open.
func TestRemoved(t *testing.T) {
	x := newBench(t, image.CompressSnappy, nil)
	x.begin(false)
	if err := os.Remove(x.path); err != nil {
		t.Fatal(err)
	}
	x.want(0, len(x.content))
	x.finish()
}

// A limit of time ends the wait, and nothing else.
func TestFinishInTime(t *testing.T) {
	x := newBench(t, image.CompressSnappy, nil)
	x.begin(false)
	x.claim(0) // somebody's disk does not answer
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := x.Finish(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	w := x.worker()
	w.bring(0)
	x.finish()
	x.want(0, len(x.content))
}

// What was touched says what comes next: first what lies behind it, then the order of the beginning.
func TestOrder(t *testing.T) {
	x := newBench(t, image.CompressNone, nil)
	x.begin(false)
	if i := x.choose(); i != x.find(base+100*page) {
		t.Errorf("first comes chunk %d, not that of a stack", i)
	} else {
		x.worker().bring(i)
	}
	x.want(800*page, 1)
	for n := range 3 {
		i := x.choose()
		if want := x.find(base+800*page) + 1 + n; i != want {
			t.Errorf("behind a page that was touched comes chunk %d, expected %d", i, want)
		}
		x.worker().bring(i)
	}
	x.finish()
}

func TestForbidden(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing the user needs root")
	}
	if b, err := os.ReadFile("/proc/sys/vm/unprivileged_userfaultfd"); err != nil || b[0] != '0' {
		t.Skip("this kernel allows everybody")
	}
	if st, err := os.Stat(userfault.Device); err == nil && st.Mode().Perm()&0o006 != 0 {
		t.Skip("everybody may open the device")
	}
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "lazy") // which others may enter
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "test"), exe, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "test"))
	cmd.Dir, cmd.Env = "/", append(os.Environ(), openEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// In an epoch with what changed, the memory that was written last comes first.
func TestNewestFirst(t *testing.T) {
	const windows, window = 6, 1 << 20
	dir := t.TempDir()
	content := make([]byte, windows*window)
	for i := 0; i < len(content); i += 8 {
		content[i] = byte(i/page) | 1
	}
	region := image.Region{Start: base, End: base + windows*window, Prot: 3, Flags: image.FlagAnonymous, Copied: image.CopiedAt(base, content)}
	var parent *image.Parent
	var path string
	for epoch, changed := range []int{-1, 4, 2} { // windows
		if changed >= 0 {
			content[changed*window+5]++
		}
		folder := filepath.Join(dir, fmt.Sprintf("epoch-%06d", epoch+9))
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(folder, "rank-00000.ckpt")
		sum, err := image.Write(t.Context(), path, image.Input{Meta: []byte("{}"), Regions: []image.Region{region}, Parent: parent},
			image.Options{Chunk: window, Track: true})
		if err != nil {
			t.Fatal(err)
		}
		parent = sum.Parent
	}
	f, err := image.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := plan(f, Options{})
	l.arrange(nil)
	var got []int // windows, each once
	for _, i := range l.order {
		if w := int(l.chunks[i].Addr-base) / window; len(got) == 0 || got[len(got)-1] != w {
			got = append(got, w)
		}
	}
	// The changed page of windows 2 and 4 first, then the rest as it lies.
	if len(got) < 2 || got[0] != 2 || got[1] != 4 {
		t.Errorf("windows come in the order %d", got)
	}
}
