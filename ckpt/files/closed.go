// SPDX-License-Identifier: Apache-2.0

package files

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Closed is a file that the application could write to and has closed. Nothing of it is in the table, but an epoch
// relies on it: the program that is continued has written it.
type Closed struct {
	Dev, Ino uint64
	Number   uint64 // grows from one closed file to the next
	AndAll   bool   // it stands for all files of its file system
	Path     string // when it was closed
}

// Remember has Sync make these durable, too.
func (h *Held) Remember(list []Closed) { h.closed = list }

// syncClosed makes the files durable, with their names. It runs on a keeper.
func syncClosed(list []Closed, dirs *folders) (highest uint64, err error) {
	whole := map[uint64]bool{} // file systems that were synced
	for _, c := range list {
		highest = max(highest, c.Number)
		found, err := c.sync(dirs)
		if err != nil {
			return 0, fmt.Errorf("make %s durable: %w", c.Path, err)
		}
		if found && !c.AndAll || whole[c.Dev] {
			continue
		}
		whole[c.Dev] = true
		if err := c.syncAll(); err != nil {
			return 0, fmt.Errorf("make the file system of %s durable: %w", c.Path, err)
		}
	}
	return highest, nil
}

// sync is for the file alone; false: it is not to be found.
func (c *Closed) sync(dirs *folders) (bool, error) {
	path := c.Path
	fd := c.open(path)
	if fd < 0 { // a new file is often given its name once it is written
		if name := c.named(); name != "" {
			path = filepath.Join(filepath.Dir(path), name)
			fd = c.open(path)
		}
	}
	if fd < 0 {
		return false, nil
	}
	defer unix.Close(fd)
	err := syncFD(fd)
	if err == nil {
		err = dirs.sync(filepath.Dir(path), fd)
	}
	return true, err
}

// open opens the path if it is the file, else it returns -1.
func (c *Closed) open(path string) int {
	for _, mode := range []int{unix.O_RDONLY, unix.O_WRONLY} {
		fd, err := openPath(Path(path), mode|unix.O_NONBLOCK|unix.O_NOFOLLOW)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && c.is(&st) {
			return fd
		}
		unix.Close(fd)
	}
	return -1
}

func (c *Closed) is(st *unix.Stat_t) bool { return st.Dev == c.Dev && st.Ino == c.Ino }

// folderBytes bounds how much of a folder is looked through.
const folderBytes = 4 << 20

// named is the name that the file has in its folder, "" for none.
func (c *Closed) named() string {
	fd, err := unix.Open(filepath.Dir(c.Path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	const inoAt, lengthAt, nameAt = 0, 16, 19 // struct linux_dirent64
	b := make([]byte, 64<<10)
	for seen := 0; seen < folderBytes; {
		n, err := unix.Getdents(fd, b)
		if err != nil || n <= 0 {
			return ""
		}
		seen += n
		for at := b[:n]; len(at) > nameAt; {
			length := int(binary.LittleEndian.Uint16(at[lengthAt:]))
			if length <= nameAt || length > len(at) {
				return ""
			}
			if binary.LittleEndian.Uint64(at[inoAt:]) == c.Ino {
				return unix.ByteSliceToString(at[nameAt:length])
			}
			at = at[length:]
		}
	}
	return ""
}

// syncAll is for the whole file system. One that is not mounted there any more has been made durable.
func (c *Closed) syncAll() error {
	for dir := filepath.Dir(c.Path); ; dir = filepath.Dir(dir) {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == nil {
			var st unix.Stat_t
			err = unix.Fstat(fd, &st)
			if err == nil && st.Dev == c.Dev {
				err = unix.Syncfs(fd)
				unix.Close(fd)
				return err
			}
			unix.Close(fd)
			return nil
		}
		if errors.Is(err, unix.EACCES) {
			unix.Sync()
			return nil
		}
		if dir == "/" || dir == "." || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			return nil
		}
	}
}
