// SPDX-License-Identifier: Apache-2.0

package shm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/fault"
)

// Dir is where segments are made.
const Dir = "/dev/shm"

// Node is where a process is: processes with equal Boot, Device and Inode share Dir.
type Node struct {
	Host   string `json:"host"`
	Boot   string `json:"boot"` // of the kernel: device numbers are its own
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"` // a folder of the same file system may be mounted as Dir elsewhere
}

// Here is the node of this process.
func Here() (Node, error) {
	n := Node{}
	n.Host, _ = os.Hostname()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return n, fmt.Errorf("tell this host from others: %w", err)
	}
	n.Boot = strings.TrimSpace(string(boot))
	var st unix.Stat_t
	if err := unix.Stat(Dir, &st); err != nil {
		return n, fmt.Errorf("%s: %w", Dir, err)
	}
	n.Device, n.Inode = st.Dev, st.Ino
	return n, nil
}

// apart is the error of a process that does not share the memory of the leader's node, nil when it does.
func apart(s *Spec, leader int, lead Node, process int, node Node) error {
	a, b := lead, node
	a.Host, b.Host = "", ""
	if a == b {
		return nil
	}
	why := fmt.Sprintf("process %d is on host %s, process %d on host %s", leader, lead.Host, process, node.Host)
	if lead.Host == node.Host {
		why = fmt.Sprintf("processes %d and %d, both on host %s, have different file systems at %s", leader, process, lead.Host, Dir)
	}
	return failed(ErrNodes, s.Name, "%s: its processes, %s, must run on one node", why, list(s.Processes))
}

// nonce tells files of one name apart.
func nonce() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func path(nonce, name string) string { return Dir + "/libckpt-" + nonce + "-" + name }

// create makes the file, of zeros, with all its memory: afterwards nobody is killed for lack of it. It gets its name
// last, so that what is killed before leaves nothing. The caller removes the name.
func create(s *Spec, file string) (*os.File, error) {
	fail := func(err error) error {
		if errors.Is(err, unix.ENOSPC) {
			return failed(ErrSystem, s.Name, "%s has no room for its %d bytes (%v): make that file system larger, or free some", Dir, s.Bytes, err)
		}
		return failed(ErrSystem, s.Name, "its file %s: %v", file, err)
	}
	fd, err := unix.Open(Dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fail(err)
	}
	defer unix.Close(fd)
	if err = fault.Point("shm.allocate"); err == nil {
		err = ignoringEINTR(func() error { return unix.Fallocate(fd, 0, 0, int64(s.mapped())) })
	}
	if err == nil {
		err = unix.Fchmod(fd, 0o600) // whatever the umask
	}
	if err == nil {
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, file, unix.AT_SYMLINK_FOLLOW)
	}
	if err != nil {
		return nil, fail(err)
	}
	f, err := open(s, file) // what is mapped of it has its name; of fd it would have none
	if err != nil {
		remove(file)
	}
	return f, err
}

func ignoringEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// open opens the file that the leader made.
func open(s *Spec, file string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, failed(ErrSystem, s.Name, "the file that process %d has made: %v", s.Processes[0], err)
	}
	return f, nil
}

// remove takes the name away. It is the same whoever does it, and how often.
func remove(file string) { _ = os.Remove(file) }
