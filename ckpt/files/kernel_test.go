// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/needmpi"
)

func TestPipe(t *testing.T) {
	a := newApp(t)
	r, w := a.pipe(unix.O_NONBLOCK)
	if _, err := unix.FcntlInt(uintptr(w), unix.F_SETPIPE_SZ, 1<<18); err != nil {
		t.Fatal(err)
	}
	for range 60 { // more buffers than bytes would need
		write(t, w, "in the pipe ")
	}
	table := a.capture()
	if got := read(t, r, 12); got != "in the pipe " {
		t.Fatalf("capture took %q away", got)
	}
	a.mustRestart(table)
	if got := read(t, r, 1<<20); got != strings.Repeat("in the pipe ", 60) {
		t.Errorf("read %d bytes", len(got))
	}
	if _, err := unix.Read(r, make([]byte, 1)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("empty pipe: %v, expected EAGAIN", err)
	}
}

func TestPipeWithoutOtherEnd(t *testing.T) {
	a := newApp(t)
	r, w := a.pipe(0)
	write(t, w, "last words")
	unix.Close(w)
	a.fds = slices.DeleteFunc(a.fds, func(fd int) bool { return fd == w })
	a.mustRestart(a.capture())
	if got := read(t, r, 100) + read(t, r, 100); got != "last words" {
		t.Errorf("read %q, then the end", got)
	}
}

func TestForeignPipeIsAnObstacle(t *testing.T) {
	a := newApp(t)
	_, w := a.pipe(unix.O_CLOEXEC)
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	mine := a.keep(unix.FcntlInt(stdin.(*os.File).Fd(), unix.F_DUPFD_CLOEXEC, 100))
	_, obstacles, err := Capture(a.fds, a.inherited)
	if err != nil {
		t.Fatal(err)
	}
	if len(obstacles) != 1 || obstacles[0].FD != mine || !strings.Contains(obstacles[0].What, "(cat)") {
		t.Fatalf("obstacles %v, expected a pipe to cat at %d and none at %d", obstacles, mine, w)
	}
	if _, obstacles, err = Capture(a.fds, a.inherited, mine); err != nil || len(obstacles) != 0 {
		t.Fatalf("when ignored: %v, %v", obstacles, err)
	}
}

func TestSocketsAreObstacles(t *testing.T) {
	a := newApp(t)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	a.add(pair[0], err)
	a.add(pair[1], err)
	tcp := a.add(unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))
	if err := unix.Bind(tcp, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	table, obstacles, err := Capture(a.fds, a.inherited)
	if err != nil || len(obstacles) != 3 || len(table.Numbers) != 0 {
		t.Fatalf("obstacles %v, %v", obstacles, err)
	}
	if !strings.HasPrefix(obstacles[2].What, "a TCP socket at 127.0.0.1:") || !strings.Contains(obstacles[0].What, "a Unix socket") {
		t.Errorf("obstacles %v", obstacles)
	}
	if got := socketAddress(&unix.SockaddrInet6{Addr: [16]byte{15: 1}, Port: 5}); got != "[::1]:5" {
		t.Errorf("an address of IPv6 is written %s", got)
	}
}

func TestKernelObjects(t *testing.T) {
	a := newApp(t)
	event := a.add(unix.Eventfd(7, unix.EFD_SEMAPHORE|unix.EFD_NONBLOCK))
	big := a.add(unix.Eventfd(0, 0))
	write(t, big, "\x01\x00\x00\x00\x02\x00\x00\x00") // 0x200000001
	timer := a.add(unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK))
	hour := unix.ItimerSpec{Value: unix.Timespec{Sec: 3600}, Interval: unix.Timespec{Nsec: 5}}
	if err := unix.TimerfdSettime(timer, 0, &hour, nil); err != nil {
		t.Fatal(err)
	}
	gone := a.add(unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_NONBLOCK))
	if err := unix.TimerfdSettime(gone, 0, &unix.ItimerSpec{Value: unix.Timespec{Nsec: 1}}, nil); err != nil {
		t.Fatal(err)
	}
	waitReadable(t, gone)
	a.add(unix.Signalfd(-1, &unix.Sigset_t{Val: [16]uint64{1 << (unix.SIGUSR2 - 1)}}, unix.SFD_NONBLOCK))
	a.add(unix.InotifyInit1(0))
	set := a.add(unix.EpollCreate1(0))
	a.dup(set)
	if _, err := unix.FcntlInt(uintptr(set), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	if err := unix.EpollCtl(set, unix.EPOLL_CTL_ADD, event, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: -5, Pad: 99}); err != nil {
		t.Fatal(err)
	}
	outer := a.add(unix.EpollCreate1(0))
	if err := unix.EpollCtl(outer, unix.EPOLL_CTL_ADD, set, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: 3}); err != nil {
		t.Fatal(err)
	}
	for _, device := range []string{"/dev/null", "/dev/zero", "/dev/urandom", "/dev/full", "/dev/random"} {
		a.open(device, unix.O_RDONLY)
	}
	maps := a.open("/proc/self/maps", unix.O_RDONLY)
	a.open("/usr/bin", unix.O_PATH)

	a.mustRestart(a.capture())

	if got := read(t, event, 8); got != "\x01\x00\x00\x00\x00\x00\x00\x00" {
		t.Errorf("semaphore read %x", got)
	}
	if got := read(t, big, 8); got != "\x01\x00\x00\x00\x02\x00\x00\x00" {
		t.Errorf("counter read %x", got)
	}
	var left unix.ItimerSpec
	if err := unix.TimerfdGettime(timer, &left); err != nil || left.Value.Sec < 3500 || left.Interval.Nsec != 5 {
		t.Errorf("timer %+v, %v", left, err)
	}
	if got := read(t, gone, 8); got != "\x01\x00\x00\x00\x00\x00\x00\x00" {
		t.Errorf("expired timer read %x", got)
	}
	events := make([]unix.EpollEvent, 4)
	n, err := unix.EpollWait(outer, events, 1000)
	if err != nil || n != 1 || events[0].Fd != 3 {
		t.Errorf("outer set: %d %v %v", n, events, err)
	}
	n, err = unix.EpollWait(set, events, 1000)
	if err != nil || n != 1 || events[0].Fd != -5 || events[0].Pad != 99 {
		t.Errorf("set: %d %v %v", n, events, err)
	}
	if flags, err := unix.FcntlInt(uintptr(set), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("flags of the set: %#x, %v; it was not to be waited for", flags, err)
	}
	if flags, err := unix.FcntlInt(uintptr(outer), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("flags of the outer set: %#x, %v", flags, err)
	}
	if read(t, maps, 16) == "" {
		t.Error("/proc/self/maps is empty")
	}
}

// The events that a queue has of watches that are gone cannot be put into another one.
func TestInotifyWithEventsIsAnObstacle(t *testing.T) {
	a := newApp(t)
	queue := a.add(unix.InotifyInit1(unix.IN_NONBLOCK))
	expect := func(what string) {
		t.Helper()
		_, obstacles, err := Capture(a.fds, a.inherited)
		if err != nil || len(obstacles) != 1 || obstacles[0].FD != queue || !strings.Contains(obstacles[0].What, what) {
			t.Errorf("obstacles %v, %v, expected %q", obstacles, err, what)
		}
	}
	dir := filepath.Join(t.TempDir(), "watched")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.InotifyAddWatch(queue, dir, unix.IN_DELETE_SELF); err != nil {
		t.Fatal(err)
	}
	expect("with 1 watches")
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	expect("events that nobody has read")
	if n, err := unix.Read(queue, make([]byte, 4096)); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	a.mustRestart(a.capture())
}

func TestPeriodicTimerThatExpiredGoesOn(t *testing.T) {
	a := newApp(t)
	timer := a.add(unix.TimerfdCreate(unix.CLOCK_MONOTONIC, 0))
	every := unix.ItimerSpec{Value: unix.Timespec{Nsec: 1e6}, Interval: unix.Timespec{Nsec: 1e6}}
	if err := unix.TimerfdSettime(timer, 0, &every, nil); err != nil {
		t.Fatal(err)
	}
	waitReadable(t, timer) // expired, and nobody has read it
	table := a.capture()
	if got := table.Files[0].Timer; got.Ticks == 0 || got.Left == 0 || got.Interval != 1e6 {
		t.Errorf("timer %+v", got)
	}
	if err := a.restart(table, Options{}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		waitReadable(t, timer)
		read(t, timer, 8)
	}
}

// What is due and what has expired are read one after the other: a timer that expires meanwhile is
// either, never both.
func TestTimerThatExpiresWhileItIsRead(t *testing.T) {
	for _, clock := range []int{unix.CLOCK_MONOTONIC, unix.CLOCK_BOOTTIME} {
		fd, err := unix.TimerfdCreate(clock, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		var due, expired int
		for round := range 20000 {
			once := unix.ItimerSpec{Value: unix.Timespec{Nsec: int64(1 + round%400*100)}}
			if err := unix.TimerfdSettime(fd, 0, &once, nil); err != nil {
				t.Fatal(err)
			}
			got, err := readTimer(fd)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case got.Left > 0 && got.Ticks == 0:
				due++
			case got.Left == 0 && got.Ticks == 1:
				expired++
			default:
				t.Fatalf("clock %d, round %d: %+v", clock, round, *got)
			}
		}
		t.Logf("clock %d: %d due, %d expired", clock, due, expired)
	}
}

func waitReadable(t *testing.T, fd int) {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(p, 10000); err != nil || n != 1 {
		t.Fatalf("poll: %d, %v", n, err)
	}
}

func TestEpollOfClosedNumberIsAnObstacle(t *testing.T) {
	a := newApp(t)
	set := a.add(unix.EpollCreate1(0))
	event := a.add(unix.Eventfd(0, 0))
	a.dup(event)
	if err := unix.EpollCtl(set, unix.EPOLL_CTL_ADD, event, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		t.Fatal(err)
	}
	unix.Close(event)
	a.fds = slices.DeleteFunc(a.fds, func(fd int) bool { return fd == event })
	_, obstacles, err := Capture(a.fds, a.inherited)
	if err != nil || len(obstacles) != 1 || obstacles[0].FD != set {
		t.Fatalf("obstacles %v, %v", obstacles, err)
	}
}

func TestMemfd(t *testing.T) {
	a := newApp(t)
	fd := a.add(unix.MemfdCreate("shared", unix.MFD_ALLOW_SEALING))
	write(t, fd, "in memory")
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	a.mustRestart(a.capture())
	b := make([]byte, 9)
	if _, err := unix.Pread(fd, b, 0); err != nil || string(b) != "in memory" {
		t.Errorf("content %q, %v", b, err)
	}
	if err := unix.Ftruncate(fd, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("shrink a sealed file: %v, expected EPERM", err)
	}
}

// A program in memory can be executed while its descriptor is open for writing, as memfd_create made it; after a restart, too.
func TestMemfdIsExecuted(t *testing.T) {
	a := newApp(t)
	fd := a.add(unix.MemfdCreate("program", 0))
	write(t, fd, "#!/bin/sh\nexit 7\n")
	a.dup(fd)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_APPEND); err != nil {
		t.Fatal(err)
	}
	run := func() {
		t.Helper()
		err := exec.Command(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)).Run()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Errorf("%v, expected exit status 7", err)
		}
	}
	run()
	a.mustRestart(a.capture())
	run()
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_APPEND == 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
	write(t, fd, "exit 8\n")
	run()
}

// TestMappedIsUsed: a descriptor of a file that is mapped, and so made by somebody else, is one of that file.
func TestMappedIsUsed(t *testing.T) {
	a := newApp(t)
	fd := a.add(unix.MemfdCreate("ring", unix.MFD_ALLOW_SEALING))
	write(t, fd, "in memory")
	table := a.capture()
	if table.Sealed(table.Contents[0].Dev, table.Contents[0].Ino) {
		t.Error("it is sealed")
	}
	made, err := unix.MemfdCreate("ring", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(made), "ring")
	defer f.Close()
	if err := f.Truncate(4096); err != nil { // as it is mapped
		t.Fatal(err)
	}
	var asked [2]uint64
	if err := a.restart(table, Options{Unnamed: func(dev, ino uint64) *os.File { asked = [2]uint64{dev, ino}; return f }}); err != nil {
		t.Fatal(err)
	}
	if want := [2]uint64{table.Contents[0].Dev, table.Contents[0].Ino}; asked != want || want[1] == 0 {
		t.Errorf("asked for %v, it was %v", asked, want)
	}
	var mine, its unix.Stat_t
	if unix.Fstat(fd, &mine) != nil || unix.Fstat(made, &its) != nil || keyOf(&mine) != keyOf(&its) || mine.Size != 9 {
		t.Errorf("the descriptor is of %d:%d, %d bytes; the file is %d:%d", mine.Dev, mine.Ino, mine.Size, its.Dev, its.Ino)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != nil {
		t.Fatal(err)
	}
	if again := a.capture(); !again.Sealed(again.Contents[0].Dev, again.Contents[0].Ino) {
		t.Error("it is not sealed")
	}
}

func TestMessageQueueIsAnObstacle(t *testing.T) {
	a := newApp(t)
	name := append(fmt.Appendf(nil, "libckpt-test-%d", os.Getpid()), 0)
	fd, _, e := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_RDWR, 0o600, 0, 0, 0)
	if e != 0 {
		needmpi.Skip(t, "no message queues", e.Error())
	}
	defer unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name[0])), 0, 0)
	a.add(int(fd), nil)
	_, obstacles, err := Capture(a.fds, a.inherited)
	if err != nil || len(obstacles) != 1 || obstacles[0].What != "a POSIX message queue" {
		t.Errorf("obstacles %v, %v", obstacles, err)
	}
}
