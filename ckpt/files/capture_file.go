// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tailBytes is how much of the end of a file is compared to see whether it changed.
const tailBytes = 4096

const deletedSuffix = " (deleted)"

// mqueueMagic is the file system of message queues (mq_open), whose names are not those of other files.
const mqueueMagic = 0x19800202

// kernelFS are file systems whose files have no content of their own.
var kernelFS = map[int64]bool{
	unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.CGROUP_SUPER_MAGIC: true,
	unix.CGROUP2_SUPER_MAGIC: true, unix.DEBUGFS_MAGIC: true, unix.TRACEFS_MAGIC: true,
	unix.SECURITYFS_MAGIC: true, unix.BPF_FS_MAGIC: true,
}

func (c *capturer) describeRegular(g *group, file *File) (bool, error) {
	fd := g.fds[0]
	if !strings.HasPrefix(string(file.Path), "/") { // pidfd, namespaces
		c.obstacle(fd, file.Path, "a kernel object that cannot be saved", hintIgnore("close it before the checkpoint", fd))
		return false, nil
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return false, fmt.Errorf("file system of descriptor %d (%s): %w", fd, file.Path, err)
	}
	offset, err := unix.Seek(fd, 0, unix.SEEK_CUR)
	if err != nil && !errors.Is(err, unix.ESPIPE) {
		return false, fmt.Errorf("offset of descriptor %d (%s): %w", fd, file.Path, err)
	}
	file.Offset = max(offset, 0)

	switch {
	case kernelFS[int64(fs.Type)]:
		return c.describeKernel(g, file), nil
	case fs.Type == mqueueMagic:
		c.obstacle(fd, file.Path, "a POSIX message queue", hintIgnore("close it (mq_close) before the checkpoint", fd))
		return false, nil
	case g.st.Nlink == 0 && fs.Type == unix.HUGETLBFS_MAGIC:
		c.obstacle(fd, file.Path, "memory in huge pages", hintIgnore("close it before the checkpoint", fd))
		return false, nil
	case g.st.Nlink == 0:
		return c.describeUnlinked(g, file)
	case !namesInode(string(file.Path), &g.st):
		c.obstacle(fd, file.Path, "a file whose name was removed while it has other names (hard links)",
			hintIgnore("close it, or open it under a name that stays", fd))
		return false, nil
	}
	file.Kind = KindRegular
	file.Inode = inodeOf(&g.st)
	return true, nil
}

// describeKernel is for files of /proc and the like. Those of the process itself are found under its
// new pid after a restart.
func (c *capturer) describeKernel(g *group, file *File) bool {
	file.Kind = KindKernel
	rest, ok := strings.CutPrefix(string(file.Path), "/proc/")
	if !ok {
		return true
	}
	first, rest, _ := strings.Cut(rest, "/")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return true
	}
	if pid != os.Getpid() {
		c.obstacle(g.fds[0], file.Path, "a file of another process", hintIgnore("close it before the checkpoint", g.fds[0]))
		return false
	}
	if rest == "mem" || rest == "pagemap" || strings.HasPrefix(rest, "task/") {
		c.obstacle(g.fds[0], file.Path, "a view of the process's own memory or threads", hintIgnore("close it before the checkpoint", g.fds[0]))
		return false
	}
	file.Path = Path("/proc/self/" + rest)
	return true
}

// describeUnlinked saves the content of a file without a name (also memfd), once for each inode.
func (c *capturer) describeUnlinked(g *group, file *File) (bool, error) {
	fd := g.fds[0]
	file.Kind = KindUnlinked
	name := strings.TrimSuffix(string(file.Path), deletedSuffix)
	seals := 0
	if memory, ok := strings.CutPrefix(name, "/memfd:"); ok {
		var err error
		if seals, err = unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err == nil {
			file.Kind, name = KindMemfd, memory
		}
	}
	index, ok := c.contents[keyOf(&g.st)]
	if !ok {
		extents, err := c.readExtents(fd, file.Flags, g.st.Size)
		if errors.Is(err, errTooMuch) {
			c.obstacle(fd, file.Path, fmt.Sprintf("a file without a name of %d bytes", g.st.Size),
				fmt.Sprintf("all such files together may have %d bytes, holes aside; keep the file under a name", int64(maxContent)))
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("content of descriptor %d (%s): %w", fd, file.Path, err)
		}
		index = len(c.table.Contents)
		c.contents[keyOf(&g.st)] = index
		c.table.Contents = append(c.table.Contents, Content{
			Name: Path(name), Mode: g.st.Mode & 0o7777, UID: g.st.Uid, GID: g.st.Gid, Changed: g.st.Mtim.Nano(),
			Size: g.st.Size, Seals: seals, Extents: extents, Dev: g.st.Dev, Ino: g.st.Ino,
		})
	}
	file.Content, file.Path = &index, Path(name)
	return true, nil
}

var errTooMuch = errors.New("too much content")

// extentBlock is the unit in which holes are left out.
const extentBlock = 64 << 10

// readExtents reads what a file holds, leaving out holes and blocks of zeros. The program is stopped: where a descriptor of its own
// is read, its offset is moved and comes back.
func (c *capturer) readExtents(fd, flags int, size int64) ([]Extent, error) {
	r, done, err := readable(fd, flags)
	if err != nil {
		return nil, err
	}
	defer done()
	if r == fd {
		offset, err := unix.Seek(fd, 0, unix.SEEK_CUR)
		if err != nil {
			return nil, err
		}
		defer func() { _, _ = unix.Seek(fd, offset, unix.SEEK_SET) }()
	}
	var extents []Extent
	zeros := make([]byte, extentBlock)
	block := make([]byte, extentBlock)
	dataEnd := int64(0)
	for at := int64(0); at < size; at += extentBlock {
		if at >= dataEnd {
			var data int64
			data, dataEnd = nextData(r, at, size)
			if at = data / extentBlock * extentBlock; at >= size {
				break
			}
		}
		b := block[:min(extentBlock, size-at)]
		if err := preadFull(r, b, at); err != nil {
			return nil, err
		}
		if c.read += int64(len(b)); c.read > maxRead {
			return nil, errTooMuch
		}
		if bytes.Equal(b, zeros[:len(b)]) {
			continue
		}
		if c.bytes += int64(len(b)); c.bytes > maxContent {
			return nil, errTooMuch
		}
		if n := len(extents); n == 0 || extents[n-1].Offset+extents[n-1].Bytes != at {
			extents = append(extents, Extent{Offset: at})
		}
		e := &extents[len(extents)-1]
		e.data = append(e.data, b...)
		e.Bytes = int64(len(e.data))
	}
	return extents, nil
}

// nextData is where the data at or behind an offset begin and end; size, size where there are none. A file system that does not tell
// has data everywhere.
func nextData(fd int, at, size int64) (data, end int64) {
	data, err := unix.Seek(fd, at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, size
	case err != nil:
		return at, size
	}
	end, err = unix.Seek(fd, data, unix.SEEK_HOLE)
	if err != nil || end <= data {
		end = size
	}
	return data, end
}

// readable returns a descriptor that reads the file behind fd. Where possible that is fd: opening
// and closing another one would take from the process its POSIX locks on the file.
func readable(fd, flags int) (int, func(), error) {
	if mode := flags & unix.O_ACCMODE; mode != unix.O_WRONLY && flags&unix.O_DIRECT == 0 {
		return fd, func() {}, nil
	}
	r, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return r, func() { unix.Close(r) }, err
}

func (c *capturer) describeDirectory(g *group, file *File) (bool, error) {
	if g.st.Nlink == 0 || strings.HasSuffix(string(file.Path), deletedSuffix) && !namesInode(string(file.Path), &g.st) {
		c.obstacle(g.fds[0], file.Path, "a directory that was removed", hintIgnore("close it before the checkpoint", g.fds[0]))
		return false, nil
	}
	offset, err := unix.Seek(g.fds[0], 0, unix.SEEK_CUR)
	if err != nil {
		return false, fmt.Errorf("offset of descriptor %d (%s): %w", g.fds[0], file.Path, err)
	}
	file.Kind, file.Offset = KindDirectory, offset
	return true, nil
}

func (c *capturer) describePath(g *group, file *File) bool {
	if !namesInode(string(file.Path), &g.st) {
		c.obstacle(g.fds[0], file.Path, "a reference (O_PATH) to something that was removed", hintIgnore("close it before the checkpoint", g.fds[0]))
		return false
	}
	file.Kind = KindPath
	return true
}

// statelessDevices are the character devices that hold nothing for who opened them.
var statelessDevices = map[uint64]bool{
	unix.Mkdev(1, 3): true, // null
	unix.Mkdev(1, 5): true, // zero
	unix.Mkdev(1, 7): true, // full
	unix.Mkdev(1, 8): true, // random
	unix.Mkdev(1, 9): true, // urandom
}

func (c *capturer) describeDevice(g *group, file *File) bool {
	fd := g.fds[0]
	if statelessDevices[g.st.Rdev] {
		if !namesInode(string(file.Path), &g.st) { // a device node elsewhere, gone since
			c.obstacle(fd, file.Path, "a device whose name was removed", hintIgnore("close it before the checkpoint", fd))
			return false
		}
		file.Kind = KindDevice
		return true
	}
	if _, err := unix.IoctlGetInt(fd, unix.TIOCGSID); err == nil {
		file.Kind, file.Path = KindTerminal, "/dev/tty"
		return true
	}
	if k := c.reopenedLauncher(&g.st); k >= 0 {
		file.Kind, file.Launcher, file.Reopened = KindLauncher, k, true
		return true
	}
	what := "a device"
	if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
		what = "a terminal that is not the controlling terminal"
	}
	c.obstacle(fd, file.Path, what, hintIgnore("close it before the checkpoint", fd))
	return false
}

// reopenedLauncher says which of the launcher's descriptors st was opened from (/dev/stdout), or -1.
func (c *capturer) reopenedLauncher(st *unix.Stat_t) int {
	for _, k := range []int{1, 2, 0} {
		var own unix.Stat_t
		if c.inherited[k] >= 0 && unix.Fstat(c.inherited[k], &own) == nil && keyOf(&own) == keyOf(st) {
			return k
		}
	}
	return -1
}

// namesInode tells whether path still leads to the inode.
func namesInode(path string, st *unix.Stat_t) bool {
	var now unix.Stat_t
	return strings.HasPrefix(path, "/") && unix.Fstatat(unix.AT_FDCWD, path, &now, unix.AT_SYMLINK_NOFOLLOW) == nil && keyOf(&now) == keyOf(st)
}

// inodeOf records what identifies a regular file. What is compared of its content comes with Held.Sample.
func inodeOf(st *unix.Stat_t) *Inode {
	return &Inode{Dev: st.Dev, Ino: st.Ino, Size: st.Size, Mtime: st.Mtim.Nano()}
}

// tailDigest is the SHA-256 of the last tailBytes bytes before size.
func tailDigest(fd int, size int64) (string, error) {
	block := make([]byte, min(size, tailBytes))
	if err := preadFull(fd, block, size-int64(len(block))); err != nil {
		return "", err
	}
	sum := sha256.Sum256(block)
	return hex.EncodeToString(sum[:]), nil
}

func preadFull(fd int, b []byte, offset int64) error {
	for len(b) > 0 {
		n, err := unix.Pread(fd, b, offset)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		b, offset = b[n:], offset+int64(n)
	}
	return nil
}
