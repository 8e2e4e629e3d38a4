// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Made are the sockets of a table in this process.
type Made struct {
	table *Table
	rank  int
	fds   []int // by index; -1: not made, or taken
	names *Names
	warn  func(string)
}

// Gather gives all processes what each says. Collective.
type Gather func(mine []byte) ([][]byte, error)

// Make makes the sockets of a table again, and connects them with those of the other processes. Collective: every process
// calls it, also with an empty table. names gets what the program is to see. An error of one process is that of all.
func Make(ctx context.Context, t Table, rank int, gather Gather, names *Names, warn func(string)) (*Made, error) {
	m := &Made{table: &t, rank: rank, fds: make([]int, len(t.Sockets)), names: names, warn: warn}
	for i := range m.fds {
		m.fds[i] = -1
	}
	err := m.alone()
	err = m.together(ctx, gather, err)
	if err != nil {
		m.Close()
		return nil, err
	}
	for i := range t.Sockets {
		if s := &t.Sockets[i]; s.State != Fresh {
			names.add(m.fds[i], s)
		}
	}
	return m, nil
}

// Take is the descriptor of a socket; it is the caller's then.
func (m *Made) Take(index int) (int, error) {
	if m == nil || index < 0 || index >= len(m.fds) || m.fds[index] < 0 {
		return -1, fmt.Errorf("the image has no socket %d", index)
	}
	fd := m.fds[index]
	m.fds[index] = -1
	return fd, nil
}

// Close closes what nobody has taken. It may be called on nil.
func (m *Made) Close() {
	if m == nil {
		return
	}
	for i, fd := range m.fds {
		if fd >= 0 {
			_ = unix.Close(fd)
			m.fds[i] = -1
		}
	}
}

// alone makes what needs no other process.
func (m *Made) alone() error {
	if err := m.pairsUnix(); err != nil {
		return err
	}
	for i := range m.table.Sockets {
		s := &m.table.Sockets[i]
		var err error
		switch {
		case s.Family == unix.AF_UNIX:
		case s.State == Fresh || s.State == Listening:
			m.fds[i], err = m.makeBound(s)
		case s.State == Alone:
			m.fds[i], err = m.makeAlone(s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// options sets what the program had set. What this machine does not know is passed over.
func (m *Made) options(fd int, s *Socket) {
	for _, o := range s.Options {
		if o.Level == unix.SOL_SOCKET && (o.Name == unix.SO_SNDBUF || o.Name == unix.SO_RCVBUF) {
			m.bufferSize(fd, o)
			continue
		}
		if was, err := rawOption(fd, o.Level, o.Name); err == nil && string(was) != string(o.Value) {
			_ = setRawOption(fd, o.Level, o.Name, o.Value)
		}
	}
}

// bufferSize sets the size that the program has chosen: the kernel tells twice what is set.
func (m *Made) bufferSize(fd int, o Option) {
	if len(o.Value) != 4 {
		return
	}
	n := int(o.Value[0]) | int(o.Value[1])<<8 | int(o.Value[2])<<16 | int(o.Value[3])<<24
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, o.Name, n/2)
}

// early sets what must be set before a socket has an address.
func early(fd int, s *Socket) {
	for _, o := range s.Options {
		for _, k := range kept {
			if k.bound && k.level == o.Level && k.name == o.Name {
				_ = setRawOption(fd, o.Level, o.Name, o.Value)
			}
		}
	}
}

func newSocket(family int) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("a TCP socket: %w", err)
	}
	return fd, nil
}

// makeBound makes a socket that listens, or is not connected.
func (m *Made) makeBound(s *Socket) (fd int, err error) {
	if fd, err = newSocket(s.Family); err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
			fd = -1
		}
	}()
	early(fd, s)
	if s.Local.IsValid() && s.Local.Port() != 0 {
		reuse, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // connections of before may linger
		err = bindSoon(fd, sockaddrOf(s.Family, s.Local))
		if errors.Is(err, unix.EADDRNOTAVAIL) {
			any := netip.AddrPortFrom(netip.IPv6Unspecified(), s.Local.Port())
			if s.Family == unix.AF_INET {
				any = netip.AddrPortFrom(netip.IPv4Unspecified(), s.Local.Port())
			}
			m.warn(fmt.Sprintf("%v, at which the program had a socket, is no address of this host: it is at %v now", s.Local.Addr(), any))
			err = bindSoon(fd, sockaddrOf(s.Family, any))
		}
		if err != nil {
			return fd, fmt.Errorf("the program had a socket at %v: %w: end whoever has this port (`ss -ltnp`), wait a minute until the kernel forgets connections that a program had closed there, or restart on another host", s.Local, err)
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, reuse)
	}
	m.options(fd, s)
	if s.State == Listening {
		if err = unix.Listen(fd, s.Backlog); err != nil {
			return fd, fmt.Errorf("the program listened at %v: %w", s.Local, err)
		}
	}
	return fd, nil
}

// bindSoon waits for a port that the former job's processes, which are ending, still have.
func bindSoon(fd int, at unix.Sockaddr) error {
	for end := time.Now().Add(portTime); ; time.Sleep(lookLast) {
		if err := unix.Bind(fd, at); !errors.Is(err, unix.EADDRINUSE) || time.Now().After(end) {
			return err
		}
	}
}

// portTime is how long that may take.
const portTime = 3 * time.Second

// loopback is where a socket of that family meets another one on this host.
func loopback(family int) unix.Sockaddr {
	a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	return sockaddrOf(family, a) // for IPv6 mapped, so that it needs no address of its own
}

// makeAlone makes a socket whose other end is closed.
func (m *Made) makeAlone(s *Socket) (fd int, err error) {
	ln, err := newSocket(s.Family)
	if err != nil {
		return -1, err
	}
	defer unix.Close(ln)
	if s.Family == unix.AF_INET6 {
		_ = unix.SetsockoptInt(ln, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	other, err := newSocket(s.Family)
	if err != nil {
		return -1, err
	}
	defer unix.Close(other)
	if s.Family == unix.AF_INET6 {
		_ = unix.SetsockoptInt(other, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	err = unix.Bind(ln, loopback(s.Family))
	if err == nil {
		err = unix.Listen(ln, 1)
	}
	if err == nil {
		var at unix.Sockaddr
		if at, err = unix.Getsockname(ln); err == nil {
			err = unix.Connect(other, at)
		}
	}
	if err != nil {
		return -1, fmt.Errorf("a connection on this host: %w", err)
	}
	fd, from, err := acceptSoon(ln, time.Now().Add(patience))
	if err != nil {
		return -1, err
	}
	if mine, err := nameOf(unix.Getsockname(other)); err != nil || !sameName(from, mine) {
		return fd, errors.New("a connection on this host: somebody else was faster")
	}
	defer m.options(fd, s)
	defer room(fd, len(s.data))()
	if err := writeAll(other, s.data, time.Now().Add(patience)); err != nil {
		return fd, err
	}
	if err := arrived(fd, len(s.data), time.Now().Add(patience)); err != nil {
		return fd, err
	}
	if s.Reset {
		_ = unix.SetsockoptLinger(other, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	} else if err := unix.Shutdown(other, unix.SHUT_WR); err != nil {
		return fd, err
	}
	if s.NoWrite && !s.Reset {
		err = unix.Shutdown(fd, unix.SHUT_WR)
	}
	return fd, err
}

func sameName(sa unix.Sockaddr, a netip.AddrPort) bool {
	b, err := nameOf(sa, nil)
	return err == nil && plain(a) == plain(b)
}

// patience is how long another process may take for a step.
const patience = 30 * time.Second
