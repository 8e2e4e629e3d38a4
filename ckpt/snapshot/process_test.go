// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/image"
	_ "github.com/libckpt/libckpt/internal/keepout" // the arena is for the tests, not for Go's heap
)

// free is where tests map: in the arena, which a process without ckptrun does not use.
const (
	page = image.PageSize
	free = uint64(ArenaStart + 200<<30)
)

// mapped maps n pages at addr until the test ends and returns their memory.
func mapped(t *testing.T, addr, n uint64, prot, flags, fd int) []byte {
	t.Helper()
	if err := mapAt(addr, n*page, prot, flags, fd, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unmap(t, addr, n) })
	return bytesAt(addr, n*page)
}

func unmap(t *testing.T, addr, n uint64) {
	t.Helper()
	if _, _, e := unix.Syscall(unix.SYS_MUNMAP, uintptr(addr), uintptr(n*page), 0); e != 0 {
		t.Error(e)
	}
}

// arena lists the regions of this process that lie in the arena; its program may lie below 2 GiB.
func arena(t *testing.T) []image.Region {
	t.Helper()
	all, err := Regions()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(r image.Region) bool { return r.Start < LowEnd })
}

func TestMapAt(t *testing.T) {
	mapped(t, free, 1, r|w, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1)
	err := mapAt(free, page, r, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1, 0)
	if !errors.Is(err, unix.EEXIST) || !strings.Contains(err.Error(), "taken") {
		t.Errorf("where something is mapped: %v", err)
	}
}

func TestRegions(t *testing.T) {
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "with blanks"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(page); err != nil {
		t.Fatal(err)
	}
	mapped(t, free, 3, r|w, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1)
	mapped(t, free+4*page, 1, r|w, unix.MAP_SHARED|unix.MAP_ANONYMOUS, -1)
	mapped(t, free+6*page, 1, r, unix.MAP_SHARED, int(f.Fd()))
	mapped(t, free+8*page, 1, r|x, unix.MAP_PRIVATE, int(f.Fd()))
	mapped(t, free+10*page, 1, 0, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1)
	mapped(t, GatePage, 1, r, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1)
	mapped(t, Tables, 2, r, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1)
	want := []image.Region{
		{Start: free, End: free + 3*page, Prot: r | w, Flags: anon},
		{Start: free + 4*page, End: free + 5*page, Prot: r | w, Flags: anon | shared},
		{Start: free + 6*page, End: free + 7*page, Prot: r, Flags: file | shared, Path: f.Name()},
		{Start: free + 8*page, End: free + 9*page, Prot: r | x, Flags: file, Path: f.Name()},
		{Start: free + 10*page, End: free + 11*page, Flags: anon},
	}
	if d := cmp.Diff(want, arena(t)); d != "" {
		t.Error(d)
	}
}

func TestCopyShared(t *testing.T) {
	private := mapped(t, free, 1, r|w, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1)
	both := mapped(t, free+2*page, 2, r|w, unix.MAP_SHARED|unix.MAP_ANONYMOUS, -1)
	private[0], both[0], both[page+7] = 1, 2, 3
	// Memory that the program cannot read now is saved as well.
	if err := protect(free+2*page, 2*page, 0); err != nil {
		t.Fatal(err)
	}
	regions := arena(t)
	if err := copyShared(regions, heap); err != nil {
		t.Fatal(err)
	}
	if err := protect(free+2*page, 2*page, r|w); err != nil {
		t.Fatal(err)
	}
	both[0] = 99 // the copy stays what it was
	if len(regions) != 2 || regions[0].Copied != nil {
		t.Fatalf("regions %v", regions)
	}
	want := make([]byte, 2*page)
	want[0], want[page+7] = 2, 3
	if !bytes.Equal(copyOf(t, &regions[1]), want) {
		t.Error("the copy is not what the memory was")
	}
	// The file ends before its mapping does.
	f, err := os.Create(filepath.Join(t.TempDir(), "short"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(3 * page); err != nil {
		t.Fatal(err)
	}
	short := mapped(t, free+20*page, 3, r|w, unix.MAP_SHARED, int(f.Fd()))
	short[5], short[page] = 1, 2
	if err := f.Truncate(page + 10); err != nil {
		t.Fatal(err)
	}
	ends := []image.Region{{Start: free + 20*page, End: free + 23*page, Flags: anon | shared}}
	want = make([]byte, 3*page)
	want[5], want[page] = 1, 2
	if err := copyShared(ends, heap); err != nil || !bytes.Equal(copyOf(t, &ends[0]), want) {
		t.Errorf("behind the end of a file: %v", err)
	}
	// All of the mapping is behind the end.
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if err := copyShared(ends, heap); err != nil || !bytes.Equal(copyOf(t, &ends[0]), make([]byte, 3*page)) {
		t.Errorf("of an empty file: %v", err)
	}
	// Nothing is there.
	gone := []image.Region{{Start: free + 10*page, End: free + 11*page, Flags: anon | shared}}
	if err := copyShared(gone, heap); err == nil || !strings.Contains(err.Error(), gone[0].String()) {
		t.Errorf("memory that is not mapped: %v", err)
	}
}

// TestMapAgain writes an image of some mappings, unmaps them and maps them from the image.
func TestMapAgain(t *testing.T) {
	dir := t.TempDir()
	f, err := os.OpenFile(filepath.Join(dir, "file"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(page); err != nil { // the mapping goes on behind it
		t.Fatal(err)
	}
	const n = 4
	private := mapped(t, free, n, r|w, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1)
	both := mapped(t, free+10*page, 1, r|w, unix.MAP_SHARED|unix.MAP_ANONYMOUS, -1)
	onFile := mapped(t, free+20*page, 3, r|w, unix.MAP_SHARED, int(f.Fd()))
	copy(private[page:], "private")
	copy(both, "shared")
	copy(onFile, "file")
	if err := protect(free, n*page, r); err != nil {
		t.Fatal(err)
	}
	regions := arena(t)
	if err := copyShared(regions, heap); err != nil {
		t.Fatal(err)
	}
	memory, err := image.OpenSelf()
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	path := filepath.Join(dir, "image")
	if _, err := image.Write(t.Context(), path, image.Input{Meta: []byte("{}"), Regions: regions, Memory: memory}, image.Options{}); err != nil {
		t.Fatal(err)
	}
	saved, err := image.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()

	if err := Map(context.Background(), saved, Options{}); !errors.Is(err, unix.EEXIST) {
		t.Errorf("over the mappings themselves: %v", err)
	}
	copy(onFile, "changed")
	// The mappings' clean-ups unmap what is mapped again.
	unmap(t, free, n)
	unmap(t, free+10*page, 1)
	unmap(t, free+20*page, 3)
	if err := Map(context.Background(), saved, Options{}); err != nil {
		t.Fatal(err)
	}
	for i := range regions {
		regions[i].Copied, regions[i].Held = nil, nil
	}
	if d := cmp.Diff(regions, arena(t)); d != "" {
		t.Errorf("mappings (-saved +restored):\n%s", d)
	}
	for addr, want := range map[uint64]string{free + page: "private\x00", free + 10*page: "shared\x00", free + 20*page: "file\x00"} {
		if got := bytesAt(addr, uint64(len(want))); string(got) != want {
			t.Errorf("0x%x: %q, expected %q", addr, got, want)
		}
	}
	unmap(t, free, n)
	unmap(t, free+10*page, 1)
	unmap(t, free+20*page, 3)
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	if err := Map(context.Background(), saved, Options{}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), f.Name()) {
		t.Errorf("without the shared file: %v", err)
	}
}

// imageOf writes an image of regions, which have their content, and opens it.
func imageOf(t *testing.T, regions []image.Region) *image.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "image")
	if _, err := image.Write(t.Context(), name, image.Input{Meta: []byte("{}"), Regions: regions}, image.Options{}); err != nil {
		t.Fatal(err)
	}
	f, err := image.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// leavesAlike maps an image of regions anew, and the file at path below one of them, which is as it was saved, is not written to.
func leavesAlike(t *testing.T, regions []image.Region, path string) {
	t.Helper()
	saved := imageOf(t, regions)
	long := time.Now().Add(-time.Hour)
	for i := range regions {
		unmap(t, regions[i].Start, regions[i].Bytes()/page)
	}
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	aside, err := ReadAside(t.Context(), saved, func(r *image.Region) bool { return !Private(r) })
	if err == nil {
		err = Map(t.Context(), saved, Options{Aside: aside})
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range regions {
		if got := bytesAt(regions[i].Start, regions[i].Bytes()); !bytes.Equal(got, copyOf(t, &regions[i])) {
			t.Errorf("memory %s is not what it was", &regions[i])
		}
	}
	if st, err := os.Stat(path); err != nil || !st.ModTime().Equal(long) {
		t.Errorf("a file with the same content was written to: %v, %v", st.ModTime(), err)
	}
}

// TestMapAside: the content of shared memory is read and checked before anything of it is touched, and filled in from there.
// A page of a file that was zeros is so again.
func TestMapAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(6 * page); err != nil {
		t.Fatal(err)
	}
	both := mapped(t, free+10*page, 4, r|w, unix.MAP_SHARED|unix.MAP_ANONYMOUS, -1)
	onFile := mapped(t, free+20*page, 6, r|w, unix.MAP_SHARED, int(f.Fd()))
	copy(both[2*page:], "shared")
	copy(onFile[page:], "file")
	regions := arena(t)
	if err := copyShared(regions, heap); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "image")
	for _, aside := range []bool{true, false} {
		_ = os.Remove(name)
		if _, err := image.Write(t.Context(), name, image.Input{Meta: []byte("{}"), Regions: regions}, image.Options{}); err != nil {
			t.Fatal(err)
		}
		saved, err := image.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer saved.Close()
		changed := bytes.Repeat([]byte("changed "), 3*page/8)
		if err := errors.Join(os.WriteFile(path, changed, 0o600), os.Truncate(path, 6*page)); err != nil {
			t.Fatal(err)
		}
		changed = append(changed, make([]byte, 3*page)...)
		var o Options
		shared := func(r *image.Region) bool { return !Private(r) }
		if aside {
			if n := AsideBytes(saved, shared); n != 2*page {
				t.Errorf("%d bytes are to be read aside", n)
			}
			if o.Aside, err = ReadAside(t.Context(), saved, shared); err != nil {
				t.Fatal(err)
			}
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, changed) {
				t.Errorf("reading has changed the file: %v", err)
			}
			if err := os.Truncate(name, 0); err != nil { // it is not read again
				t.Fatal(err)
			}
		}
		unmap(t, free+10*page, 4)
		unmap(t, free+20*page, 6)
		if err := Map(t.Context(), saved, o); err != nil {
			t.Fatal(err)
		}
		if at, err := unix.Seek(int(f.Fd()), 3*page, unix.SEEK_DATA); !errors.Is(err, unix.ENXIO) {
			t.Errorf("aside: %v: a hole of the file is filled at %d: %v", aside, at, err)
		}
		for i := range regions {
			if got := bytesAt(regions[i].Start, regions[i].Bytes()); !bytes.Equal(got, copyOf(t, &regions[i])) {
				t.Errorf("aside: %v: memory %s is not what it was", aside, &regions[i])
			}
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, copyOf(t, &regions[1])) {
			t.Errorf("aside: %v: the file is not what it was: %v", aside, err)
		}
		if aside {
			if n := len(o.Aside.memory); n != 0 {
				t.Errorf("%d regions are still aside", n)
			}
		}
	}
	leavesAlike(t, regions, path)
	// What is damaged is found before.
	b, err := os.ReadFile(name)
	if err == nil {
		b[bytes.Index(b, []byte("shared"))] ^= 1
		err = os.WriteFile(name, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	saved, err := image.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	var corrupt *image.CorruptError
	if a, err := ReadAside(t.Context(), saved, func(*image.Region) bool { return true }); !errors.As(err, &corrupt) || a != nil {
		t.Errorf("damaged: %v", err)
	}
}

// TestMapOutside: an image with memory where a program has none is refused as a whole.
func TestMapOutside(t *testing.T) {
	in := image.Region{Start: free, End: free + page, Prot: r | w, Flags: anon, Copied: image.CopiedAt(free, make([]byte, page))}
	for name, at := range map[string]uint64{
		"address 0":          0,
		"above 2 GiB":        LowEnd,
		"over 2 GiB":         LowEnd - page,
		"below the arena":    ArenaStart - 2*page,
		"gate page":          GatePage,
		"tables":             Tables,
		"over the last page": ArenaEnd - page,
		"behind the arena":   ArenaEnd,
		"libraries":          0x7f0000000000,
	} {
		t.Run(name, func(t *testing.T) {
			out := image.Region{Start: at, End: at + 2*page, Prot: r | w, Flags: anon, Copied: image.CopiedAt(at, make([]byte, 2*page))}
			regions := []image.Region{in, out}
			if at < free {
				regions = []image.Region{out, in}
			}
			f := imageOf(t, regions)
			if err := Map(t.Context(), f, Options{}); err == nil || !strings.Contains(err.Error(), "outside") && at != 0 || !strings.Contains(err.Error(), out.String()) {
				t.Errorf("%v", err)
			}
			// What could have been mapped is not.
			mapped(t, free, 1, r, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1)
		})
	}
}

// TestChildren: those of all threads, until they are waited for.
func TestChildren(t *testing.T) {
	before, err := Children(nil)
	if err != nil {
		t.Fatal(err)
	}
	var cmds []*exec.Cmd
	var pids []int
	for range 2 {
		started := make(chan error)
		c := exec.Command("cat")
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close(); _ = c.Wait() })
		go func() {
			runtime.LockOSThread() // the child belongs to the thread that made it
			defer runtime.UnlockOSThread()
			started <- c.Start()
		}()
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		cmds, pids = append(cmds, c), append(pids, c.Process.Pid)
	}
	list := func(known map[int]bool) []int {
		t.Helper()
		got, err := Children(known)
		if err != nil {
			t.Fatal(err)
		}
		got = slices.DeleteFunc(got, func(p int) bool { return slices.Contains(before, p) })
		slices.Sort(got)
		return got
	}
	slices.Sort(pids)
	if d := cmp.Diff(pids, list(nil)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(pids[1:], list(map[int]bool{pids[0]: true})); d != "" {
		t.Error(d)
	}
	// One that ended still counts while nobody has waited for it.
	first := cmds[0]
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	info := unix.Siginfo{}
	if err := unix.Waitid(unix.P_PID, first.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(pids, list(nil)); d != "" {
		t.Error(d)
	}
	_ = first.Wait()
	if got := list(nil); len(got) != 1 || got[0] != cmds[1].Process.Pid {
		t.Errorf("after the wait: %v", got)
	}
}

// Flags as virtual machines show them on Intel's Skylake, AMD's Zen 4 and Intel's Haswell.
const (
	skylake = `fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ss ht syscall nx
		pdpe1gb rdtscp lm constant_tsc arch_perfmon rep_good nopl xtopology nonstop_tsc cpuid tsc_known_freq pni pclmulqdq
		monitor ssse3 fma cx16 pcid sse4_1 sse4_2 x2apic movbe popcnt tsc_deadline_timer aes xsave avx f16c rdrand
		hypervisor lahf_lm abm 3dnowprefetch pti fsgsbase tsc_adjust bmi1 avx2 smep bmi2 erms invpcid mpx avx512f avx512dq
		rdseed adx smap clflushopt clwb avx512cd avx512bw avx512vl xsaveopt xsavec xgetbv1 xsaves ida arat pku ospke`
	zen4 = `fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ht syscall nx mmxext
		fxsr_opt pdpe1gb rdtscp lm constant_tsc rep_good nopl xtopology nonstop_tsc cpuid extd_apicid aperfmperf
		tsc_known_freq pni pclmulqdq monitor ssse3 fma cx16 pcid sse4_1 sse4_2 x2apic movbe popcnt aes xsave avx f16c
		rdrand hypervisor lahf_lm cmp_legacy cr8_legacy abm sse4a misalignsse 3dnowprefetch topoext perfctr_core ssbd
		perfmon_v2 ibrs ibpb stibp ibrs_enhanced vmmcall fsgsbase bmi1 avx2 smep bmi2 invpcid avx512f avx512dq rdseed
		adx smap avx512ifma clflushopt clwb avx512cd sha_ni avx512bw avx512vl xsaveopt xsavec xgetbv1 xsaves avx512_bf16
		clzero xsaveerptr rdpru wbnoinvd arat avx512vbmi pku ospke avx512_vbmi2 gfni vaes vpclmulqdq avx512_vnni
		avx512_bitalg avx512_vpopcntdq rdpid flush_l1d`
	haswell = `fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ht syscall nx
		rdtscp lm constant_tsc rep_good nopl xtopology cpuid tsc_known_freq pni pclmulqdq ssse3 fma cx16 pcid sse4_1
		sse4_2 x2apic movbe popcnt tsc_deadline_timer aes xsave avx f16c rdrand hypervisor lahf_lm abm 3dnowprefetch
		invpcid_single pti fsgsbase bmi1 avx2 smep bmi2 erms invpcid rdseed adx smap xsaveopt`
)

func TestFlags(t *testing.T) {
	here, err := CPUFlags()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(here) || !slices.Contains(here, "sse2") {
		t.Errorf("features of this processor: %q", here)
	}
	for _, c := range []struct{ saved, here, want []string }{
		{here, here, nil},
		{nil, here, nil},
		{[]string{"avx2", "avx512f", "sse2"}, []string{"avx2", "sse2"}, []string{"avx512f"}},
		{[]string{"avx2"}, nil, []string{"avx2"}},
		{[]string{"avx2"}, []string{"avx2", "avx512f"}, nil},
		// How the machine is run is of no interest to a program.
		{[]string{"hypervisor", "ht", "vmx", "sse2"}, []string{"sse2"}, nil},
		// Intel's of 2017 on AMD's of 2022: all that a program may use is there.
		{strings.Fields(skylake), strings.Fields(zen4), nil},
		// And the other way round.
		{strings.Fields(zen4), strings.Fields(skylake), strings.Fields(`avx512_bf16 avx512_bitalg avx512_vbmi2 avx512_vnni
			avx512_vpopcntdq avx512ifma avx512vbmi clzero gfni misalignsse rdpid rdpru sha_ni sse4a vaes vpclmulqdq`)},
		{strings.Fields(skylake), strings.Fields(haswell), strings.Fields(`avx512bw avx512cd avx512dq avx512f avx512vl clflushopt
			clwb ospke pku xgetbv1 xsavec`)},
		// Nor what none of 64 bits can use.
		{[]string{"de", "fsgsbase", "msr", "pge", "pse", "pse36", "sse2", "vme"}, []string{"sse2"}, nil},
	} {
		got := MissingFlags(c.saved, c.here)
		if d := cmp.Diff(slices.Sorted(slices.Values(c.want)), slices.Sorted(slices.Values(got))); d != "" {
			t.Errorf("%q on %q: %s", c.saved, c.here, d)
		}
	}
}

func TestStateComponents(t *testing.T) {
	for _, c := range []struct {
		flags string
		want  uint64
	}{
		{"", 0x3},
		{"sse2 fxsr xsave", 0x3},
		{"avx avx2 pku ospke", 0x7},
		{"avx avx2 avx512f avx512vl", 0xe7},
		{"amx_bf16 amx_int8 amx_tile avx avx512f", 0x600e7},
	} {
		if got := StateComponents(strings.Fields(c.flags)); got != c.want {
			t.Errorf("%q: %#x, expected %#x", c.flags, got, c.want)
		}
	}
}

func heap(bytes int) ([]byte, error) { return make([]byte, bytes), nil }
