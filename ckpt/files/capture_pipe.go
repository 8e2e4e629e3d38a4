// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// describePipe saves a pipe that only this process holds: then nobody else can put anything into it
// or wait for it. A pipe that lost its other end is such a pipe too.
func (c *capturer) describePipe(g *group, file *File) (bool, error) {
	fd := g.fds[0]
	if k := c.reopenedLauncher(&g.st); k >= 0 {
		file.Kind, file.Launcher, file.Reopened = KindLauncher, k, true
		return true, nil
	}
	if !strings.HasPrefix(string(file.Path), "pipe:[") {
		c.obstacle(fd, file.Path, "a named pipe", hintIgnore("close it before the checkpoint", fd))
		return false, nil
	}
	holder, err := c.holder(string(file.Path), g)
	if err != nil {
		return false, err
	}
	if holder != "" {
		c.passing(fd, file.Path, "a pipe to "+holder, hintIgnore("wait until that process has ended", fd))
		return false, nil
	}
	index, ok := c.pipes[keyOf(&g.st)]
	if !ok {
		p, err := c.readPipe(fd)
		if errors.Is(err, errPackets) {
			c.passing(fd, file.Path, "a pipe in packet mode (O_DIRECT) that is not empty", "read it empty before the checkpoint")
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("content of the pipe at descriptor %d: %w", fd, err)
		}
		index = len(c.table.Pipes)
		c.pipes[keyOf(&g.st)] = index
		c.table.Pipes = append(c.table.Pipes, p)
	}
	file.Kind, file.Pipe, file.Path = KindPipe, &index, ""
	return true, nil
}

var errPackets = errors.New("pipe in packet mode")

// readPipe copies what is in a pipe with tee(2), which leaves it there.
func (c *capturer) readPipe(fd int) (Pipe, error) {
	capacity, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		return Pipe{}, err
	}
	p := Pipe{Capacity: capacity}
	want, err := unix.IoctlGetInt(fd, unix.TIOCINQ) // FIONREAD
	if err != nil || want == 0 {
		return p, err
	}
	// A descriptor of our own, since the application may hold the writing end alone, or not this one.
	source, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return Pipe{}, err
	}
	defer unix.Close(source)
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return Pipe{}, err
	}
	if flags&unix.O_DIRECT != 0 {
		return Pipe{}, errPackets
	}
	var scratch [2]int
	if err := unix.Pipe2(scratch[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return Pipe{}, err
	}
	defer unix.Close(scratch[0])
	defer unix.Close(scratch[1])
	// As many slots as the source has, so that one tee can take all of them.
	if _, err := unix.FcntlInt(uintptr(scratch[1]), unix.F_SETPIPE_SZ, capacity); err != nil {
		return Pipe{}, fmt.Errorf("a copy of %d bytes: %w", capacity, err)
	}
	n, err := retry(func() (int64, error) {
		return unix.Tee(source, scratch[1], capacity, unix.SPLICE_F_NONBLOCK)
	})
	if err != nil {
		return Pipe{}, fmt.Errorf("tee: %w", err)
	}
	if n != int64(want) {
		return Pipe{}, fmt.Errorf("tee copied %d of %d bytes", n, want)
	}
	if c.bytes += n; c.bytes > maxContent {
		return Pipe{}, errTooMuch
	}
	p.data = make([]byte, 0, n)
	for int64(len(p.data)) < n {
		got, err := retry(func() (int, error) { return unix.Read(scratch[0], p.data[len(p.data):n]) })
		if err != nil {
			return Pipe{}, fmt.Errorf("read the copy: %w", err)
		}
		p.data = p.data[:len(p.data)+got]
	}
	p.Bytes = len(p.data)
	return p, nil
}

// holder names somebody beside the captured descriptors who holds the pipe: another process, or the
// lower half of this one; "" when there is nobody. Processes that may not be looked at are passed
// over: they belong to other users, who cannot have got the pipe but through a socket.
func (c *capturer) holder(pipe string, g *group) (string, error) {
	if c.foreign == nil {
		found, err := c.findForeignPipes()
		if err != nil {
			return "", err
		}
		c.foreign = found
	}
	return c.foreign[keyOf(&g.st)], nil
}

// findForeignPipes lists every pipe that is open anywhere but in the captured descriptors, with a
// description of who holds it.
func (c *capturer) findForeignPipes() (map[inodeKey]string, error) {
	self := os.Getpid()
	found := map[inodeKey]string{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	if len(dirs) == 0 {
		return nil, errors.New("/proc is not mounted: cannot find out who holds the application's pipes")
	}
	var pipeDev uint64
	for _, fd := range c.owned { // all pipes are in one file system
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
			if target, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); strings.HasPrefix(target, "pipe:[") {
				pipeDev = st.Dev
			}
		}
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		entries, err := os.ReadDir(dir + "/fd")
		if err != nil {
			continue // ended since, or another user's
		}
		for _, e := range entries {
			number, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			if pid == self {
				if _, owned := slices.BinarySearch(c.owned, number); owned || slices.Contains(c.ignored, number) {
					continue
				}
			}
			target, err := os.Readlink(dir + "/fd/" + e.Name())
			if err != nil {
				continue
			}
			ino, ok := strings.CutPrefix(target, "pipe:[")
			if !ok {
				continue
			}
			n, err := strconv.ParseUint(strings.TrimSuffix(ino, "]"), 10, 64)
			if err != nil {
				continue
			}
			if _, other := found[inodeKey{pipeDev, n}]; other && pid == self {
				continue // a process that can be waited for is the more useful answer
			}
			who := "process " + strconv.Itoa(pid)
			if name, err := os.ReadFile(dir + "/comm"); err == nil {
				who += " (" + strings.TrimSpace(string(name)) + ")"
			}
			if pid == self {
				if number <= MaxNumber {
					who = fmt.Sprintf("descriptor %d, which is not saved", number)
				} else {
					who = "libckpt's own half of this process"
				}
			}
			found[inodeKey{pipeDev, n}] = who
		}
	}
	return found, nil
}

// retry repeats a system call that a signal interrupted.
func retry[T any](call func() (T, error)) (T, error) {
	for {
		v, err := call()
		if !errors.Is(err, unix.EINTR) {
			return v, err
		}
	}
}
