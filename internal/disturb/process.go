// SPDX-License-Identifier: Apache-2.0

package disturb

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Site says whose code makes a call.
type Site int

// Sites.
const (
	Other   Site = iota // the program, MPI, C code, the runtime of Go, children
	Library             // Go code of libckpt-core.so
	Fork                // the call makes a copy of the process, not a thread
)

// Call is a system call that waits for an answer.
type Call struct {
	PID    int // of the thread
	Number int32
	Name   string
	Site   Site
	Args   [6]uint64
}

// Text is the name of the call, with the path or address if there is one.
func (c *Call) Text() string {
	what := c.Name
	switch c.Number {
	case unix.SYS_OPENAT, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_READLINKAT, unix.SYS_NEWFSTATAT:
		what += " " + short(c.text(c.Args[1]))
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT:
		what += " " + short(c.text(c.Args[1])) + " to " + short(c.text(c.Args[3]))
	case unix.SYS_READ, unix.SYS_WRITE, unix.SYS_FSTAT, unix.SYS_LSEEK, unix.SYS_FCNTL, unix.SYS_IOCTL, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_PWRITE64, unix.SYS_PREAD64, unix.SYS_FTRUNCATE, unix.SYS_GETDENTS64, unix.SYS_FALLOCATE:
		path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.PID, int32(c.Args[0])))
		what += " " + short(path)
	}
	return what
}

// short is the end of a path: where it lies differs from run to run.
func short(path string) string {
	if strings.HasPrefix(path, "/proc/") {
		return path
	}
	dir, file := filepath.Split(path)
	return filepath.Join(filepath.Base(dir), file)
}

func (c *Call) text(at uint64) string {
	b := make([]byte, 4096)
	n := 0
	for n < len(b) { // a page at a time: the next one need not be there
		piece := b[n:min(len(b), n+int(4096-(at+uint64(n))%4096))]
		local := []unix.Iovec{{Base: &piece[0], Len: uint64(len(piece))}}
		got, err := unix.ProcessVMReadv(c.PID, local, []unix.RemoteIovec{{Base: uintptr(at) + uintptr(n), Len: len(piece)}}, 0)
		if err != nil || got <= 0 {
			break
		}
		n += got
		if i := bytes.IndexByte(b[:n], 0); i >= 0 {
			return string(b[:i])
		}
	}
	return string(b[:n])
}

// port is the TCP port that connect goes to, 0 for other sockets.
func (c *Call) port() int {
	var b [4]byte
	local := []unix.Iovec{{Base: &b[0], Len: 4}}
	n, err := unix.ProcessVMReadv(c.PID, local, []unix.RemoteIovec{{Base: uintptr(c.Args[1]), Len: 4}}, 0)
	if family := int(b[0]) | int(b[1])<<8; err != nil || n < 4 || family != unix.AF_INET && family != unix.AF_INET6 {
		return 0
	}
	return int(b[2])<<8 | int(b[3])
}

// Process is one that was started to be disturbed, with its children.
type Process struct {
	Rank, PID int

	field  *Field
	fd     int
	code   code
	done   chan struct{} // closed when all have ended
	mu     sync.Mutex
	traps  []*Trap
	counts map[Site]int
}

// Done is closed when the process and its children have ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Trap is what happens at a call.
type Trap struct {
	// Want selects the calls of the trap; nil: all calls of the library.
	Want func(*Call) bool
	// At is the number of the call at which the trap acts, counted from 1; 0: at each.
	At int
	// Act is called for a system call, which waits as long as Act runs. Its error, a unix.Errno, becomes the
	// result of the call; with nil the call is made.
	Act func(*Process, *Call) error

	seen int
}

// Set adds a trap, until remove is called.
func (p *Process) Set(t *Trap) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traps = append(p.traps, t)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, have := range p.traps {
			if have == t {
				p.traps = append(p.traps[:i:i], p.traps[i+1:]...)
				return
			}
		}
	}
}

// Calls is the number of calls that the library has made.
func (p *Process) Calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[Library]
}

// act finds the traps that act at a call.
func (p *Process) act(c *Call) []*Trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[c.Site]++
	var now []*Trap
	for _, t := range p.traps {
		if t.Want == nil && c.Site != Library || t.Want != nil && !t.Want(c) {
			continue
		}
		if t.seen++; t.At == 0 || t.At == t.seen {
			now = append(now, t)
		}
	}
	return now
}

type notification struct {
	ID         uint64
	PID, Flags uint32
	Number     int32
	Arch       uint32
	At         uint64
	Args       [6]uint64
}

type response struct {
	ID    uint64
	Value int64
	Error int32
	Flags uint32
}

// serve answers the kernel until all that may ask have ended.
func (p *Process) serve() {
	defer close(p.done)
	defer unix.Close(p.fd)
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		poll := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		switch {
		case poll[0].Revents&unix.POLLIN != 0:
		case poll[0].Revents != 0:
			return // all have ended
		default:
			continue
		}
		var n notification
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(p.fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); e != 0 {
			continue // the caller was killed
		}
		c := &Call{PID: int(n.PID), Number: n.Number, Name: names[n.Number], Args: n.Args}
		switch {
		case n.Number == unix.SYS_CLONE && n.Args[0]&(unix.CLONE_VM|unix.CLONE_THREAD) == 0:
			c.Site = Fork
		case p.code.library(int(n.PID), n.At):
			c.Site = Library
		}
		traps := p.act(c)
		if len(traps) == 0 {
			p.answer(n.ID, nil)
			continue
		}
		calls.Go(func() {
			var err error
			for _, t := range traps {
				if e := t.Act(p, c); err == nil {
					err = e
				}
			}
			p.answer(n.ID, err)
		})
	}
}

func (p *Process) answer(id uint64, err error) {
	r := response{ID: id, Flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	var e unix.Errno
	if errors.As(err, &e) {
		r.Flags, r.Error = 0, -int32(e)
	}
	// It fails when the caller was killed meanwhile.
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(p.fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
}

// code is where the library's calls are made in a process: one function makes all of them, and another one
// those of the runtime.
type code struct{ from, to uint64 }

const callFunction = "internal/runtime/syscall/linux.Syscall6"

func (c *code) library(pid int, at uint64) bool {
	if c.to == 0 {
		c.find(pid)
	}
	return c.from <= at && at < c.to
}

// find does nothing as long as the library is not loaded.
func (c *code) find(pid int) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if len(f) < 6 || f[2] != "00000000" || filepath.Base(f[5]) != "libckpt-core.so" {
			continue
		}
		text, _, _ := strings.Cut(f[0], "-")
		base, err := strconv.ParseUint(text, 16, 64)
		from, size, serr := symbol(f[5])
		if err == nil && serr == nil {
			c.from, c.to = base+from, base+from+size
		}
		return
	}
}

var symbols sync.Map // by path

func symbol(path string) (at, size uint64, err error) {
	if s, ok := symbols.Load(path); ok {
		return s.(elf.Symbol).Value, s.(elf.Symbol).Size, nil
	}
	f, err := elf.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	all, err := f.Symbols()
	if err != nil {
		return 0, 0, err
	}
	for _, s := range all {
		if s.Name == callFunction {
			symbols.Store(path, s)
			return s.Value, s.Size, nil
		}
	}
	return 0, 0, fmt.Errorf("%s has no %s", path, callFunction)
}

// Field is a set of processes that are disturbed, for example those of one job.
type Field struct {
	// Started is called with each process before it runs what it is to run.
	Started func(*Process)

	listener *net.UnixListener
	address  string
	mu       sync.Mutex
	all      []*Process
	cuts     map[[2]int]bool // pairs of ranks: bytes from the first do not reach the second
}

// Listen makes a field. started may be nil.
func Listen(name string, started func(*Process)) (*Field, error) {
	f := &Field{Started: started, address: "@ckpt-disturb-" + name, cuts: map[[2]int]bool{}}
	var err error
	if f.listener, err = net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: f.address}); err != nil {
		return nil, err
	}
	go f.accept()
	return f, nil
}

// Variable is to be in the environment of processes that call Enter.
func (f *Field) Variable() string { return addressName + "=" + f.address }

// Close accepts no more processes. Living processes are served to their end.
func (f *Field) Close() { _ = f.listener.Close() }

// Processes are the living processes.
func (f *Field) Processes() []*Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	var live []*Process
	for _, p := range f.all {
		select {
		case <-p.done:
		default:
			live = append(live, p)
		}
	}
	return live
}

// Rank is the live process of a rank, nil when there is none.
func (f *Field) Rank(rank int) *Process {
	for _, p := range f.Processes() {
		if p.Rank == rank {
			return p
		}
	}
	return nil
}

func (f *Field) accept() {
	for {
		conn, err := f.listener.AcceptUnix()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			f.take(conn)
		}()
	}
}

func (f *Field) take(conn *net.UnixConn) {
	said, rights := make([]byte, 64), make([]byte, unix.CmsgSpace(4))
	n, rn, _, _, err := conn.ReadMsgUnix(said, rights)
	if err != nil {
		return
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rn])
	if err != nil || len(messages) != 1 {
		return
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return
	}
	unix.CloseOnExec(fds[0])
	p := &Process{field: f, fd: fds[0], done: make(chan struct{}), counts: map[Site]int{}}
	if _, err := fmt.Sscan(string(said[:n]), &p.Rank, &p.PID); err != nil {
		_ = unix.Close(p.fd)
		return
	}
	f.mu.Lock()
	f.all = append(f.all, p)
	f.mu.Unlock()
	p.Set(&Trap{Want: func(c *Call) bool { return c.Number == unix.SYS_CONNECT && c.Site == Library }, Act: f.connect})
	if f.Started != nil {
		f.Started(p)
	}
	go p.serve()
	_, _ = conn.Write([]byte{1})
}
