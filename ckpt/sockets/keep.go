// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Keep describes the socket behind a descriptor for an image: its index in the table. If it cannot be kept, there is an
// obstacle; the nil obstacle with ok false says that it leads out of the job, or is of a kind that is not kept.
func (h *Here) Keep(fd int) (index int, o *Obstacle, ok bool) {
	if h == nil {
		return 0, nil, false
	}
	i, known := h.byFD[fd]
	if !known {
		return 0, nil, false
	}
	s := h.sockets[i]
	if s.obstacle != nil {
		return 0, s.obstacle, false
	}
	return i, nil, s.tcp() && !s.outside() || s.pair()
}

// outside tells whether the connection leads out of the job.
func (s *socket) outside() bool { return s.connection() && s.other == nil && !s.closed }

// pair tells whether it is a Unix socket whose other end is in this process, or gone.
func (s *socket) pair() bool { return s.family == unix.AF_UNIX && (s.other != nil || s.closed) }

// Table describes all sockets that can be kept, by index. Called after Words. Those that cannot are found by Keep: the
// table is of use only when there is none.
func (h *Here) Table() (Table, error) {
	h.pairUnix()
	t := Table{Sockets: make([]Socket, len(h.sockets))}
	for i, s := range h.sockets {
		t.Sockets[i] = Socket{State: Fresh, Family: unix.AF_INET, Type: unix.SOCK_STREAM} // a place for what is not kept
		if s.obstacle != nil || !(s.tcp() && !s.outside() || s.pair()) {
			h.turnAway(s)
			continue
		}
		one, err := h.describe(s)
		if errors.Is(err, errPassing) {
			h.turnAway(s)
			continue
		}
		if err != nil {
			return Table{}, fmt.Errorf("descriptor %d: %w", s.fd, err)
		}
		if s.visits >= 0 {
			one.Visits = &s.visits
		}
		t.Sockets[i] = one
	}
	return t, nil
}

// errPassing: an obstacle was found.
var errPassing = errors.New("cannot be kept now")

func (s *socket) passing(what, hint string) error {
	s.obstacle = &Obstacle{What: what, Hint: hint, Passing: true}
	return errPassing
}

func (h *Here) describe(s *socket) (Socket, error) {
	d := Socket{Family: s.family, Type: s.kind, Other: s.other}
	events := ready(s.fd, unix.POLLIN|unix.POLLPRI|unix.POLLRDHUP)
	if s.family == unix.AF_UNIX {
		return s.describeUnix(d, events)
	}
	var info *unix.TCPInfo
	s.state, info = tcpState(s.fd)
	d.Local, d.Peer = h.names.of(s.ino, s.local, s.peer)
	d.Options = optionsOf(s.fd, s.family)
	if ulp(s.fd) {
		s.obstacle = &Obstacle{What: "a TCP socket with a protocol of the kernel's on it (TCP_ULP)", Hint: "close it before the checkpoint"}
		return d, errPassing
	}
	switch {
	case s.state == tcpListen:
		// The kernel gives both numbers in fields that mean something else for connections.
		if info.Unacked > 0 { // it cannot be asked (admit), or one has come since
			return d, s.passing(fmt.Sprintf("a listening TCP socket at %v, with %d connections that wait to be accepted", d.Local, info.Unacked),
				"they are waited for until the program accepts them")
		}
		d.State, d.Backlog = Listening, int(info.Sacked)
		return d, nil
	case s.state == tcpSynSent || s.state == tcpSynRecv:
		return d, s.passing("a TCP socket that is being connected", "it is waited for until the connection is there")
	case events&unix.POLLPRI != 0:
		return d, s.passing("a TCP socket with urgent data", "it is waited for until the program reads them")
	}
	shutWrite := s.state == tcpFinWait1 || s.state == tcpFinWait2 || s.state == tcpClosing || s.state == tcpLastAck || s.state == tcpTimeWait
	theirs := s.state == tcpCloseWait || s.state == tcpClosing || s.state == tcpLastAck || s.state == tcpTimeWait
	switch {
	case s.state == tcpClose:
		return s.describeOver(d, events)
	case s.other != nil:
		d.State = Connected
		d.NoRead = events&unix.POLLRDHUP != 0 && !theirs
	case !theirs: // closed there, and the end of the stream is not here
		return d, s.passing("a TCP socket whose other end is closed, with its last bytes under way", "they are waited for")
	default:
		d.State, d.Other = Alone, nil
	}
	d.NoWrite = shutWrite
	var err error
	d.data, _, err = peek(s.fd)
	return d, err
}

// describeOver is for a socket without a connection: there was none, or it is over.
func (s *socket) describeOver(d Socket, events int16) (Socket, error) {
	d.Other = nil
	if events&unix.POLLERR != 0 { // a look beyond what can be read would take the error
		d.State, d.Reset = Alone, true
		if n := unread(s.fd); n > 0 {
			d.data = make([]byte, n)
			got, _, err := peekAt(s.fd, d.data)
			d.data = d.data[:max(got, 0)]
			return d, err
		}
		return d, nil
	}
	data, _, err := peek(s.fd)
	if errors.Is(err, unix.ENOTCONN) {
		d.State, d.Peer = Fresh, netip.AddrPort{}
		return d, nil
	}
	d.State, d.NoWrite, d.data = Alone, true, data
	return d, err
}

// ulp tells whether a protocol such as TLS is on the socket.
func ulp(fd int) bool {
	name, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_ULP)
	return err == nil && name != ""
}

// ---- options -----------------------------------------------------------------------------------

// kept are the options that a program may have set. Of those with another value than a new socket has, the value is set.
var kept = []struct {
	level, name, family int  // family 0: any
	bound               bool // is to be set before the socket has an address
}{
	{unix.SOL_SOCKET, unix.SO_REUSEADDR, 0, true},
	{unix.SOL_SOCKET, unix.SO_REUSEPORT, 0, true},
	{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, unix.AF_INET6, true},
	{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0, false},
	{unix.SOL_SOCKET, unix.SO_OOBINLINE, 0, false},
	{unix.SOL_SOCKET, unix.SO_LINGER, 0, false},
	{unix.SOL_SOCKET, unix.SO_RCVTIMEO, 0, false},
	{unix.SOL_SOCKET, unix.SO_SNDTIMEO, 0, false},
	{unix.SOL_SOCKET, unix.SO_RCVLOWAT, 0, false},
	{unix.SOL_SOCKET, unix.SO_PRIORITY, 0, false},
	{unix.SOL_SOCKET, unix.SO_DONTROUTE, 0, false},
	{unix.SOL_SOCKET, unix.SO_BROADCAST, 0, false},
	{unix.IPPROTO_TCP, unix.TCP_NODELAY, 0, false},
	{unix.IPPROTO_TCP, unix.TCP_CORK, 0, false},
	{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 0, false},
	{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 0, false},
	{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 0, false},
	{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 0, false},
	{unix.IPPROTO_TCP, unix.TCP_SYNCNT, 0, false},
	{unix.IPPROTO_TCP, unix.TCP_LINGER2, 0, false},
	{unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 0, false},
	{unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, 0, false},
	{unix.IPPROTO_TCP, unix.TCP_INQ, 0, false},
	{unix.IPPROTO_TCP, unix.TCP_CONGESTION, 0, false},
	{unix.IPPROTO_IP, unix.IP_TOS, unix.AF_INET, false},
	{unix.IPPROTO_IP, unix.IP_TTL, unix.AF_INET, false},
	{unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.AF_INET6, false},
	{unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.AF_INET6, false},
	// Set only where the program has chosen a size: else the kernel goes on choosing.
	{unix.SOL_SOCKET, unix.SO_SNDBUF, 0, false},
	{unix.SOL_SOCKET, unix.SO_RCVBUF, 0, false},
}

func rawOption(fd, level, name int) ([]byte, error) {
	b := make([]byte, 128)
	n := uint32(len(b))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name), uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&n)), 0)
	if e != 0 {
		return nil, e
	}
	return b[:n], nil
}

func setRawOption(fd, level, name int, value []byte) error {
	if len(value) == 0 {
		return nil
	}
	_, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name), uintptr(unsafe.Pointer(&value[0])), uintptr(len(value)), 0)
	if e != 0 {
		return e
	}
	return nil
}

func optionsOf(fd, family int) (out []Option) {
	lock, lockErr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, soBufLock)
	for _, k := range kept {
		if k.family != 0 && k.family != family {
			continue
		}
		if k.level == unix.SOL_SOCKET && (k.name == unix.SO_SNDBUF && (lockErr != nil || lock&1 == 0) || k.name == unix.SO_RCVBUF && (lockErr != nil || lock&bufLockReceive == 0)) {
			continue
		}
		if v, err := rawOption(fd, k.level, k.name); err == nil {
			out = append(out, Option{k.level, k.name, v})
		}
	}
	return out
}
