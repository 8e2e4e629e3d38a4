// SPDX-License-Identifier: Apache-2.0

package ckpt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/ckpt/attributes"
	"github.com/libckpt/libckpt/ckpt/control"
	"github.com/libckpt/libckpt/ckpt/files"
	"github.com/libckpt/libckpt/ckpt/image"
	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/ckpt/sockets"
	"github.com/libckpt/libckpt/ckpt/store"
	_ "github.com/libckpt/libckpt/internal/keepout" // Go's heap is none of the program's memory
)

var errHost = errors.New("the host could not")

// testHost is a Host whose program is this test: nothing of it is stopped, but its memory is saved,
// out of a frozen child like that of a real host. It checks that its methods are called in turn.
type testHost struct {
	t  *testing.T
	fd int // the program's only descriptor

	// Set by tests, before a checkpoint.
	failAt    int    // which of the calls that may fail does; 0: none
	onRelease func() // the program goes on
	onThaw    func() // the frozen child is not needed any more
	onFreeze  func(pid int)
	onSay     func()
	mute      bool // there is no standard error

	said []string

	mu       sync.Mutex
	calls    int
	failed   string // name of the call that failed
	parked   bool
	parks    int
	releases int
	frozen   map[int]bool
	ends     []int
}

// threads is what State says.
const threads = "two threads, neatly parked"

func newTestHost(t *testing.T) *testHost {
	f, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	h := &testHost{t: t, fd: int(f.Fd()), frozen: map[int]bool{}}
	t.Cleanup(func() {
		if len(h.frozen) > 0 {
			t.Errorf("frozen children are left: %v", h.frozen)
		}
	})
	return h
}

// arm has the n-th call from now on fail.
func (h *testHost) arm(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failAt, h.calls, h.failed = n, 0, ""
}

func (h *testHost) step(name string, parked bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.parked != parked {
		h.t.Errorf("%s is called with the program stopped: %v", name, h.parked)
	}
	h.calls++
	if h.calls == h.failAt {
		h.failed = name
		return fmt.Errorf("%s: %w", name, errHost)
	}
	return nil
}

func (h *testHost) Park(time.Duration) error {
	err := h.step("Park", false)
	if err == nil {
		h.mu.Lock()
		h.parked = true
		h.parks++
		h.mu.Unlock()
	}
	return err
}

func (h *testHost) Release() {
	h.mu.Lock()
	if !h.parked {
		h.t.Error("Release without Park")
	}
	h.parked = false
	h.releases++
	h.mu.Unlock()
	if h.onRelease != nil {
		h.onRelease()
	}
}

func (h *testHost) Errand(f func()) error {
	f()
	return nil
}

func (h *testHost) State() ([]byte, error) { return []byte(threads), h.step("State", true) }

// fork makes a child that does nothing. It may not touch anything of the Go runtime's, which is not
// whole in the child.
//
//go:norace
func fork() (int, syscall.Errno) {
	parent, _, _ := syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
	pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 || pid != 0 {
		return int(pid), e
	}
	// Not PR_SET_PDEATHSIG: that would end the copy with the thread that made it, and Go's threads end.
	for pause := (syscall.Timespec{Nsec: 20e6}); ; {
		if now, _, _ := syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0); now != parent {
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
		}
		syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
	}
}

func (h *testHost) Freeze() (int, error) {
	if err := h.step("Freeze", true); err != nil {
		return 0, err
	}
	pid, e := fork()
	if e != 0 {
		return 0, e
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.frozen[pid] = true
	if h.onFreeze != nil {
		h.onFreeze(pid)
	}
	return pid, nil
}

func (h *testHost) Thaw(pid int) {
	h.mu.Lock()
	if !h.frozen[pid] {
		h.t.Errorf("process %d is not frozen", pid)
	}
	delete(h.frozen, pid)
	h.mu.Unlock()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		h.t.Error(err)
	}
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			break
		}
	}
	if h.onThaw != nil {
		h.onThaw()
	}
}

// Descriptors fails by a number that no program can have.
func (h *testHost) Descriptors() []int {
	if h.step("Descriptors", true) != nil {
		return []int{-1}
	}
	return []int{h.fd}
}

func (h *testHost) Closed() []files.Closed { return nil }

func (h *testHost) ClosedSafe(uint64) {}

func (h *testHost) Original(int) int { return -1 }

func (h *testHost) Say(line string) bool {
	h.said = append(h.said, line)
	if h.onSay != nil {
		h.onSay()
	}
	return !h.mute
}

func (h *testHost) Place(int, int, bool) error { return errors.New("nothing is restored here") }

func (h *testHost) SetTables(uintptr) {}

func (h *testHost) Limit(int, *unix.Rlimit) (unix.Rlimit, error) { return unix.Rlimit{}, nil }
func (h *testHost) Asked(attributes.Asked) attributes.Asked      { return 0 }
func (h *testHost) Threads() []attributes.ThreadID               { return nil }
func (h *testHost) Outside() (start, end uint64, is bool)        { return 0, 0, false }

func (h *testHost) Made(int, int, int64, int64) {}

func (h *testHost) Foreign(start, end uint64) bool { return false }

func (h *testHost) Stands([]byte) []uint64 { return nil }

func (h *testHost) Lazy(bool) {}

func (h *testHost) Name([]sockets.Name) {}

func (h *testHost) Fail(status int) { h.End(status) }

func (h *testHost) Load([]byte, uint64) error { return errors.New("nothing is restored here") }

// End ends the goroutine in place of the process.
func (h *testHost) End(status int) {
	h.mu.Lock()
	h.ends = append(h.ends, status)
	h.mu.Unlock()
	runtime.Goexit()
}

// wantRunning checks that the program was released as often as it was stopped.
func (h *testHost) wantRunning() {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.parked || h.parks != h.releases {
		h.t.Errorf("stopped %d times, released %d times", h.parks, h.releases)
	}
}

// memory maps two pages in the arena, which every image of this process holds until the test ends.
const (
	privateAt = 0x102000000000
	sharedAt  = 0x102000100000
)

func memory(t *testing.T, at uintptr, flags int) []byte {
	t.Helper()
	const n = 2 * image.PageSize
	addr, _, e := unix.Syscall6(unix.SYS_MMAP, at, n, unix.PROT_READ|unix.PROT_WRITE,
		uintptr(flags|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE), ^uintptr(0), 0)
	if e != 0 || addr != at {
		t.Fatalf("mmap at 0x%x: 0x%x, %v", at, addr, e)
	}
	t.Cleanup(func() {
		if _, _, e := unix.Syscall(unix.SYS_MUNMAP, addr, n, 0); e != 0 {
			t.Error(e)
		}
	})
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
}

func testOptions(dir string) launch.Options {
	return launch.Options{Dir: dir, Keep: 2, Compress: image.CompressSnappy, Snapshot: "cow", Files: "restore",
		Trap: "seccomp", Log: "warn", Control: "local", ExitCode: 7}
}

// start is a job of one process without MPI.
func start(t *testing.T, h *testHost, o launch.Options) *Job {
	t.Helper()
	for _, name := range []string{"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_FD"} {
		t.Setenv(name, "")
	}
	j, err := Start(h, o, launch.Program{Exe: "/bin/program", Argv: []string{"program", "-x"}, Comm: "program"}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

// last is how the last attempt ended.
func last(t *testing.T, j *Job) control.Outcome {
	t.Helper()
	j.settle()
	s := (*controlled)(j).Status()
	if s.Last == nil {
		t.Fatal("no attempt has ended")
	}
	if s.State != control.Running || s.Phase != "" || s.Pending != 0 {
		t.Errorf("state %v, phase %q, pending %d after the attempt", s.State, s.Phase, s.Pending)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.frozen) > 0 { // their numbers will be other processes'
		t.Errorf("still known as frozen children: %v", j.frozen)
	}
	return *s.Last
}

// checkpoint makes one that must be committed, and returns its epoch.
func checkpoint(t *testing.T, j *Job) int {
	t.Helper()
	if state, err := j.Cooperative(); state != StateCheckpoint || err != nil {
		t.Fatalf("state %d, %v", state, err)
	}
	o := last(t, j)
	if o.Error != "" || o.Epoch == 0 {
		t.Fatalf("the epoch was not committed: %+v", o)
	}
	return o.Epoch
}

// wantEpochs checks that these epochs, and no others, are in the directory: committed and whole.
func wantEpochs(t *testing.T, s *store.Store, want ...int) {
	t.Helper()
	epochs, err := s.Epochs()
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for i := range epochs {
		e := &epochs[i]
		got = append(got, e.Number)
		if !e.Committed() {
			t.Errorf("epoch %d is not committed", e.Number)
		} else if err := s.Verify(t.Context(), e.Number, nil); err != nil {
			t.Errorf("epoch %d: %v", e.Number, err)
		}
	}
	if !slices.Equal(want, got) {
		t.Errorf("epochs %v, expected %v", got, want)
	}
}

// names checks that an error names all the words.
func names(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
}

func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s: %s", what, d)
	}
}
