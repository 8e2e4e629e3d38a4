// SPDX-License-Identifier: Apache-2.0

package tap

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// SocketsOf lists the sockets that a process has, by inode: /proc names their descriptors.
func SocketsOf(pid int) (map[uint64]bool, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[uint64]bool{}
	for _, d := range list {
		name, err := os.Readlink(filepath.Join(dir, d.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if text, ok := strings.CutPrefix(name, "socket:["); ok {
			if n, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64); err == nil {
				out[n] = true
			}
		}
	}
	return out, nil
}

// goPoll is what Go's runtime waits for on each descriptor: EPOLLIN, OUT, RDHUP, edge by edge, and what the kernel adds.
const goPoll = 0x8000201d

// GoSocketsOf lists those sockets of a process that Go's runtime in it waits for: what it polls is for it alone.
func GoSocketsOf(pid int) (map[uint64]bool, error) {
	dir := fmt.Sprintf("/proc/%d/fdinfo", pid)
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[uint64]bool{}
	for _, d := range list {
		b, err := os.ReadFile(filepath.Join(dir, d.Name()))
		if err != nil || !strings.Contains(string(b), "tfd:") {
			continue
		}
		for line := range strings.Lines(string(b)) {
			var fd int
			var events, data uint64
			var at int64
			var inode uint64
			if n, _ := fmt.Sscanf(line, "tfd: %d events: %x data: %x pos:%d ino:%x", &fd, &events, &data, &at, &inode); n == 5 && events == goPoll {
				out[inode] = true
			}
		}
	}
	return out, nil
}
