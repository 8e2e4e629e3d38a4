// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Capture describes the descriptors fds of this process. inherited are descriptors above MaxNumber
// that share the open file descriptions which the launcher gave as 0, 1 and 2 (-1 where it gave
// none). ignored are numbers that the user gave up: they are left out of the table, so they are
// closed after a restart.
//
// Obstacles are descriptors that cannot be saved: when there are any, no checkpoint may be made of
// the table. The error is for what should not happen at all (no /proc, no memory).
//
// All threads of the application must be stopped. No descriptor is changed.
func Capture(fds []int, inherited [3]int, ignored ...int) (Table, []Obstacle, error) {
	return CaptureWith(nil, fds, inherited, ignored...)
}

// Sockets says of a descriptor that is a socket under which number others keep it. If they cannot, there is an obstacle
// without a number and a path, or none, when the socket leads to somebody else.
type Sockets func(fd int) (index int, o *Obstacle, ok bool)

// CaptureWith is Capture where some sockets are kept by others.
func CaptureWith(sockets Sockets, fds []int, inherited [3]int, ignored ...int) (Table, []Obstacle, error) {
	c := capturer{sockets: sockets, inherited: inherited, ignored: ignored, kcmp: true, contents: map[inodeKey]int{}, pipes: map[inodeKey]int{}}
	return c.capture(fds)
}

type inodeKey struct{ dev, ino uint64 }

func keyOf(st *unix.Stat_t) inodeKey { return inodeKey{st.Dev, st.Ino} }

// capturer holds what one Capture has found so far.
type capturer struct {
	sockets   Sockets // nil: no socket is kept
	inherited [3]int
	ignored   []int
	kcmp      bool
	table     Table
	obstacles []Obstacle
	contents  map[inodeKey]int // index into table.Contents
	pipes     map[inodeKey]int // index into table.Pipes
	bytes     int64            // saved content so far
	read      int64            // of files, for that
	owned     []int            // the descriptors that are captured, sorted
	foreign   map[inodeKey]string
}

// group is the numbers that share one description.
type group struct {
	fds []int // sorted
	st  unix.Stat_t
}

func (c *capturer) capture(fds []int) (Table, []Obstacle, error) {
	for _, fd := range fds {
		if fd < 0 || fd > MaxNumber {
			return Table{}, nil, fmt.Errorf("descriptor %d is not the application's (0 to %d)", fd, MaxNumber)
		}
		if !slices.Contains(c.ignored, fd) {
			c.owned = append(c.owned, fd)
		}
	}
	slices.Sort(c.owned)
	c.owned = slices.Compact(c.owned)

	groups, err := c.group()
	if err != nil {
		return Table{}, nil, err
	}
	for _, g := range groups {
		if err := c.captureGroup(g); err != nil {
			return Table{}, nil, err
		}
	}
	slices.SortFunc(c.table.Numbers, func(a, b Number) int { return a.FD - b.FD })
	slices.SortFunc(c.obstacles, func(a, b Obstacle) int { return a.FD - b.FD })
	if len(c.obstacles) > 0 {
		return c.table, c.obstacles, nil
	}
	return c.table, nil, c.table.validate()
}

// group sorts the descriptors by the description that they share.
func (c *capturer) group() ([]*group, error) {
	var groups []*group
	byInode := map[inodeKey][]*group{}
next:
	for _, fd := range c.owned {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, fmt.Errorf("look at descriptor %d: %w", fd, err)
		}
		for _, g := range byInode[keyOf(&st)] {
			if sameDescription(g.fds[0], fd, c.kcmp) {
				g.fds = append(g.fds, fd)
				continue next
			}
		}
		g := &group{fds: []int{fd}, st: st}
		groups = append(groups, g)
		byInode[keyOf(&st)] = append(byInode[keyOf(&st)], g)
	}
	return groups, nil
}

func (c *capturer) obstacle(fd int, path Path, what, hint string) {
	c.obstacles = append(c.obstacles, Obstacle{FD: fd, What: what, Path: string(path), Hint: hint})
}

// passing is an obstacle that goes away by itself.
func (c *capturer) passing(fd int, path Path, what, hint string) {
	c.obstacles = append(c.obstacles, Obstacle{FD: fd, What: what, Path: string(path), Hint: hint, Passing: true})
}

// number adds descriptor fd, which refers to the file with that index.
func (c *capturer) number(fd, file int, locks []Lock) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil {
		return fmt.Errorf("look at descriptor %d: %w", fd, err)
	}
	c.table.Numbers = append(c.table.Numbers,
		Number{FD: fd, File: file, Cloexec: flags&unix.FD_CLOEXEC != 0, Locks: locks})
	return nil
}

func (c *capturer) captureGroup(g *group) error {
	fd := g.fds[0]
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return fmt.Errorf("look at descriptor %d: %w", fd, err)
	}
	target, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return fmt.Errorf("look at descriptor %d: %w", fd, err)
	}
	info, err := readFdinfo(fd)
	if err != nil {
		return err
	}
	file := File{Flags: flags, Path: Path(target)}
	if flags&unix.O_PATH == 0 {
		if info.lease {
			c.obstacle(fd, file.Path, "a file with a lease", "give the lease up (F_SETLEASE) before the checkpoint")
			return nil
		}
		if flags&unix.O_ASYNC != 0 {
			c.obstacle(fd, file.Path, "set to send signals when it is ready (O_ASYNC)", "switch O_ASYNC off before the checkpoint")
			return nil
		}
		if launcher := c.launcher(fd); launcher >= 0 {
			return c.captureLauncher(g, file, info.locks)
		}
	}
	kept, err := c.describe(g, &file, &info)
	if err != nil || !kept {
		return err
	}
	index := len(c.table.Files)
	c.table.Files = append(c.table.Files, file)
	for i, n := range g.fds {
		var locks []Lock
		if i == 0 {
			locks = info.locks
		}
		if err := c.number(n, index, locks); err != nil {
			return err
		}
	}
	return nil
}

// launcher says which of the launcher's descriptors fd shares, -1 if none. 0, 1 and 2 prefer their
// own; others prefer stdout and stderr, since programs keep copies of these (a shell's redirections)
// and all three are often one terminal.
func (c *capturer) launcher(fd int) int {
	order := []int{1, 2, 0}
	if fd <= 2 {
		order = append([]int{fd}, order...)
	}
	for _, k := range order {
		if c.inherited[k] >= 0 && sameDescription(fd, c.inherited[k], c.kcmp) {
			return k
		}
	}
	return -1
}

// captureLauncher records the numbers of a group one by one, because the launcher's descriptors may
// be one description now and different ones after a restart.
func (c *capturer) captureLauncher(g *group, file File, locks []Lock) error {
	file.Kind = KindLauncher
	if g.st.Mode&unix.S_IFMT == unix.S_IFREG {
		offset, err := unix.Seek(g.fds[0], 0, unix.SEEK_CUR)
		if err != nil {
			return fmt.Errorf("offset of descriptor %d: %w", g.fds[0], err)
		}
		file.Offset = offset
		file.Inode = inodeOf(&g.st)
	}
	index := map[int]int{}
	for i, fd := range g.fds {
		k := c.launcher(fd)
		if _, ok := index[k]; !ok {
			file.Launcher = k
			index[k] = len(c.table.Files)
			c.table.Files = append(c.table.Files, file)
		}
		var own []Lock
		if i == 0 {
			own = locks
		}
		if err := c.number(fd, index[k], own); err != nil {
			return err
		}
	}
	return nil
}

// describe fills in file and tells whether it can be kept; if not, it has added an obstacle.
func (c *capturer) describe(g *group, file *File, info *fdinfo) (bool, error) {
	if file.Flags&unix.O_PATH != 0 {
		return c.describePath(g, file), nil
	}
	switch g.st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return c.describeRegular(g, file)
	case unix.S_IFDIR:
		return c.describeDirectory(g, file)
	case unix.S_IFCHR:
		return c.describeDevice(g, file), nil
	case unix.S_IFIFO:
		return c.describePipe(g, file)
	case unix.S_IFSOCK:
		return c.describeSocket(g, file), nil
	case unix.S_IFBLK:
		c.obstacle(g.fds[0], file.Path, "a block device", hintIgnore("close it before the checkpoint", g.fds[0]))
		return false, nil
	}
	return c.describeAnonymous(g, file, info)
}

// describeAnonymous is for descriptions without an inode of their own: eventfd, epoll, ...
func (c *capturer) describeAnonymous(g *group, file *File, info *fdinfo) (bool, error) {
	fd := g.fds[0]
	switch strings.TrimPrefix(string(file.Path), "anon_inode:") {
	case "[eventfd]":
		file.Kind, file.Counter, file.Semaphore = KindEventfd, info.counter, info.semaphore
	case "[timerfd]":
		timer, err := readTimer(fd)
		if err != nil {
			return false, err
		}
		file.Kind, file.Timer = KindTimerfd, timer
	case "[signalfd]":
		file.Kind, file.Signals = KindSignalfd, info.signals
	case "[eventpoll]":
		file.Kind = KindEpoll
		return c.describeEpoll(fd, file, info), nil
	case "inotify":
		if info.inotify > 0 {
			c.obstacle(fd, file.Path, fmt.Sprintf("an inotify queue with %d watches", info.inotify),
				hintIgnore("remove the watches before the checkpoint", fd))
			return false, nil
		}
		// Events outlive their watches: a program that has removed a directory still reads of it, or would wait for that.
		unread, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
		if err != nil {
			return false, fmt.Errorf("events of the inotify queue %d: %w", fd, err)
		}
		if unread > 0 {
			c.obstacle(fd, file.Path, "an inotify queue with events that nobody has read", hintIgnore("read them before the checkpoint", fd))
			return false, nil
		}
		file.Kind = KindInotify
	default:
		c.obstacle(fd, file.Path, "a kernel object that cannot be saved", hintIgnore("close it before the checkpoint", fd))
		return false, nil
	}
	file.Path = ""
	return true, nil
}

// timerLooks bounds how often a timer is read that expires faster than it can be.
const timerLooks = 100

// timerOverdue is how late a timer's interrupt is waited for.
const timerOverdue = time.Millisecond

// readTimer reads a timerfd. A periodic timer that expired is not wound up again until somebody asks:
// until then the kernel lists it as having no time left, like one that is switched off.
//
// The timer goes on meanwhile, and the kernel tells the time that is left and the count of expirations
// one after the other: one that expires in between would be saved as due, and again as having expired.
// Every expiration changes the count, so the same count before and after says that there was none.
// A timer that is overdue while its interrupt waits on another processor looks like one that is switched
// off, which is why that is believed at the second look only.
func readTimer(fd int) (*Timer, error) {
	before, err := readFdinfo(fd)
	if err != nil {
		return nil, err
	}
	for look := 1; ; look++ {
		var left unix.ItimerSpec
		if err := unix.TimerfdGettime(fd, &left); err != nil {
			return nil, fmt.Errorf("time of descriptor %d: %w", fd, err)
		}
		after, err := readFdinfo(fd) // how often it expired, the last winding up included
		if err != nil {
			return nil, err
		}
		after.timer.Left = left.Value.Nano()
		if off := after.timer.Left == 0 && after.timer.Ticks == 0; off && look == 1 {
			time.Sleep(timerOverdue)
		} else if after.timer.Ticks == before.timer.Ticks || look >= timerLooks {
			return &after.timer, nil
		}
		before = after
	}
}

func (c *capturer) describeEpoll(fd int, file *File, info *fdinfo) bool {
	for _, w := range info.watches {
		if slices.Contains(c.ignored, w.FD) {
			continue
		}
		var st unix.Stat_t
		_, owned := slices.BinarySearch(c.owned, w.FD)
		if !owned || unix.Fstat(w.FD, &st) != nil || st.Ino != w.ino {
			c.obstacle(fd, file.Path, fmt.Sprintf("an epoll set that still watches descriptor %d, which was closed while a copy of it is open", w.FD),
				"remove a descriptor from the set (EPOLL_CTL_DEL) before it is closed")
			return false
		}
		file.Watches = append(file.Watches, w.Watch)
	}
	file.Path = ""
	return true
}

func hintIgnore(first string, fd int) string {
	return fmt.Sprintf("%s, or use --ignore-fd %d to have it closed after a restart", first, fd)
}

// describeSocket has others keep a socket.
func (c *capturer) describeSocket(g *group, file *File) bool {
	fd := g.fds[0]
	if c.sockets != nil {
		index, o, ok := c.sockets(fd)
		if ok {
			file.Kind, file.Socket, file.Path = KindSocket, &index, ""
			return true
		}
		if o != nil {
			o := *o
			o.FD, o.Path = fd, string(file.Path)
			c.obstacles = append(c.obstacles, o)
			return false
		}
	}
	c.obstacle(fd, file.Path, socketText(fd), hintIgnore("close the connection before the checkpoint", fd))
	return false
}

// socketText says what kind of socket it is and where it leads, as far as that can be found out.
func socketText(fd int) string {
	what := "a socket"
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return what
	}
	peer, peerErr := unix.Getpeername(fd)
	own, _ := unix.Getsockname(fd)
	switch own.(type) {
	case *unix.SockaddrInet4, *unix.SockaddrInet6:
		what = map[int]string{unix.SOCK_STREAM: "a TCP socket", unix.SOCK_DGRAM: "a UDP socket"}[kind]
		if what == "" {
			what = "an Internet socket"
		}
	case *unix.SockaddrUnix:
		what = "a Unix socket"
	}
	if peerErr == nil {
		if a := socketAddress(peer); a != "" {
			return what + " connected to " + a
		}
		return what + " that is connected"
	}
	if !errors.Is(peerErr, unix.ENOTCONN) {
		return what
	}
	if a := socketAddress(own); a != "" {
		return what + " at " + a
	}
	return what
}

func socketAddress(sa unix.Sockaddr) string {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)).String()
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)).String()
	case *unix.SockaddrUnix:
		return a.Name
	}
	return ""
}
