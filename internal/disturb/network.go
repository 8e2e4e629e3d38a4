// SPDX-License-Identifier: Apache-2.0

package disturb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A connection between ranks of a field is one whose two ends are both descriptors of the field's processes.

// end is one end of a TCP connection.
type end struct {
	p           *Process
	fd          int
	here, there int // ports
	listens     bool
}

// Cut cuts the way from rank from to rank to, until Heal: bytes that are sent that way over an existing
// connection are lost, and no connection can be made in either direction.
func (f *Field) Cut(from, to int) error {
	f.mu.Lock()
	f.cuts[[2]int{from, to}] = true
	f.mu.Unlock()
	return f.filter(from, to, true)
}

// Heal undoes Cut. The kernel soon sends again what was lost.
func (f *Field) Heal(from, to int) error {
	f.mu.Lock()
	delete(f.cuts, [2]int{from, to})
	f.mu.Unlock()
	return f.filter(from, to, false)
}

// connect is the answer to a process that wants a connection to another.
func (f *Field) connect(p *Process, c *Call) error {
	f.mu.Lock()
	none := len(f.cuts) == 0
	f.mu.Unlock()
	if none {
		return nil
	}
	to, port := -1, c.port()
	if port == 0 {
		return nil
	}
	for _, e := range f.ends() {
		if e.listens && e.here == port {
			to = e.p.Rank
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cuts[[2]int{p.Rank, to}] || f.cuts[[2]int{to, p.Rank}] {
		return unix.EHOSTUNREACH
	}
	return nil
}

// drop is a filter that lets no packet in.
var drop = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}

// filter sets or takes away the filters on to's ends of its connections with from.
func (f *Field) filter(from, to int, set bool) error {
	return f.between(from, to, func(e end, fd int) error {
		if e.p.Rank != to {
			return nil
		}
		if set {
			return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); !errors.Is(err, unix.ENOENT) {
			return err
		}
		return nil
	})
}

// Reset breaks all connections between two ranks.
func (f *Field) Reset(a, b int) error {
	return f.between(a, b, func(_ end, fd int) error {
		unspecified := unix.RawSockaddr{Family: unix.AF_UNSPEC}
		_, _, e := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspecified)), unsafe.Sizeof(unspecified))
		if e != 0 && e != unix.ENOTCONN {
			return e
		}
		return nil
	})
}

// between calls do with a descriptor of our own for every end of the connections of two ranks.
func (f *Field) between(a, b int, do func(e end, fd int) error) error {
	var errs []error
	all := f.ends()
	for _, e := range all {
		if e.listens || e.p.Rank != a && e.p.Rank != b {
			continue
		}
		for _, o := range all {
			if o.here != e.there || o.there != e.here || o.listens || o.p.Rank+e.p.Rank != a+b || o.p.Rank == e.p.Rank {
				continue
			}
			fd, err := borrow(e)
			if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EBADF) || errors.Is(err, os.ErrNotExist) {
				continue // it has ended meanwhile
			}
			if err == nil {
				err = do(e, fd)
				_ = unix.Close(fd)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("rank %d, descriptor %d: %w", e.p.Rank, e.fd, err))
			}
		}
	}
	return errors.Join(errs...)
}

// borrow returns a descriptor of ours for the socket.
func borrow(e end) (int, error) {
	pidfd, err := unix.PidfdOpen(e.p.PID, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(pidfd)
	return unix.PidfdGetfd(pidfd, e.fd, 0)
}

// ends lists the TCP sockets of all processes.
func (f *Field) ends() []end {
	var all []end
	table := map[string]end{} // by inode
	for _, p := range f.Processes() {
		if len(table) == 0 {
			for _, name := range []string{"tcp", "tcp6"} {
				readTable(fmt.Sprintf("/proc/%d/net/%s", p.PID, name), table)
			}
		}
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID))
		for _, path := range fds {
			link, err := os.Readlink(path)
			inode, ok := strings.CutPrefix(link, "socket:[")
			if err != nil || !ok {
				continue
			}
			if e, ok := table[strings.TrimSuffix(inode, "]")]; ok {
				e.p = p
				e.fd, _ = strconv.Atoi(filepath.Base(path))
				all = append(all, e)
			}
		}
	}
	return all
}

// readTable reads the kernel's list of sockets.
func readTable(path string, table map[string]end) {
	text, err := os.ReadFile(path)
	if err != nil {
		return
	}
	port := func(s string) int {
		_, hex, _ := strings.Cut(s, ":")
		n, _ := strconv.ParseUint(hex, 16, 16)
		return int(n)
	}
	for line := range strings.Lines(string(text)) {
		w := strings.Fields(line)
		if len(w) < 10 || w[0] == "sl" || w[9] == "0" {
			continue
		}
		table[w[9]] = end{here: port(w[1]), there: port(w[2]), listens: w[3] == "0A"}
	}
}
