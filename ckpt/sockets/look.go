// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/hostaddr"
)

// States of TCP, of <netinet/tcp.h>.
const (
	tcpEstablished = 1
	tcpSynSent     = 2
	tcpSynRecv     = 3
	tcpFinWait1    = 4
	tcpFinWait2    = 5
	tcpTimeWait    = 6
	tcpClose       = 7
	tcpCloseWait   = 8
	tcpLastAck     = 9
	tcpListen      = 10
	tcpClosing     = 11
)

// Any tells whether one of these descriptors is a socket.
func Any(fds []int) bool {
	for _, fd := range fds {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
			return true
		}
	}
	return false
}

// End is a TCP socket with a connection, as its process sees it.
type End struct {
	Index  int            `json:"index"`
	State  int            `json:"state"` // of TCP
	Local  netip.AddrPort `json:"local"` // real ones
	Peer   netip.AddrPort `json:"peer"`
	Queued int            `json:"queued,omitempty"` // bytes that were sent and not acknowledged
}

// Report is what a process tells the others of its sockets.
type Report struct {
	Host  string       `json:"host"`  // boot and network namespace
	Addrs []netip.Addr `json:"addrs"` // of that
	Ends  []End        `json:"ends"`
}

// socket is one of this process.
type socket struct {
	fd       int
	ino      uint64
	family   int
	kind     int // SOCK_STREAM, ...
	protocol int
	state    int // of TCP
	local    netip.AddrPort
	peer     netip.AddrPort
	queued   int
	visits   int // index of the socket at which it waits to be accepted; -1: it is the program's
	visitor  *Visitor
	other    *Ref // after Match
	closed   bool // the other end is closed, after Words
	obstacle *Obstacle
	size     int // of the receive buffer, and which buffers' sizes the program has chosen, while it is larger; else 0
	lock     int
}

// Obstacle is why a socket cannot be saved.
type Obstacle struct {
	What, Hint string
	Passing    bool
}

// Here is the sockets of this process while it is stopped.
type Here struct {
	rank    int
	sockets []*socket // by index
	byFD    map[int]int
	byIno   map[uint64]int
	report  Report
	reports []Report // of all, after Match
	names   *Names
}

// Look finds the sockets among these descriptors. names are those that the program sees for some of them; was are the
// connections that an earlier Look has accepted. After Look, Welcome must be called before the program goes on.
func Look(fds []int, names *Names, was []Visitor) (*Here, error) {
	h := &Here{byFD: map[int]int{}, byIno: map[uint64]int{}, names: names}
	for _, fd := range fds {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, fmt.Errorf("descriptor %d: %w", fd, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
			continue
		}
		if i, again := h.byIno[st.Ino]; again {
			h.byFD[fd] = i
			continue
		}
		h.byFD[fd], h.byIno[st.Ino] = len(h.sockets), len(h.sockets)
		s := &socket{fd: fd, ino: st.Ino, visits: -1}
		s.look()
		h.sockets = append(h.sockets, s)
	}
	id, err := hostaddr.Here()
	if err != nil {
		return nil, err
	}
	h.report = Report{Host: hex.EncodeToString(id[:])}
	if addrs, err := net.InterfaceAddrs(); err == nil {
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				h.report.Addrs = append(h.report.Addrs, p.Addr().Unmap())
			}
		}
	}
	h.admit(was)
	for i, s := range h.sockets {
		if s.tcp() && s.connection() {
			h.report.Ends = append(h.report.Ends, End{i, s.state, s.local, s.peer, s.queued})
		}
	}
	return h, nil
}

// Report is what the others are to know.
func (h *Here) Report() Report { return h.report }

// Len is how many sockets there are.
func (h *Here) Len() int { return len(h.sockets) }

func (s *socket) tcp() bool {
	return (s.family == unix.AF_INET || s.family == unix.AF_INET6) && s.kind == unix.SOCK_STREAM && s.protocol == unix.IPPROTO_TCP
}

// connection tells whether there is another end.
func (s *socket) connection() bool {
	switch s.state {
	case tcpClose, tcpListen, tcpSynSent, 0:
		return false
	}
	return true
}

func (s *socket) look() {
	s.family, _ = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	s.kind, _ = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_TYPE)
	s.protocol, _ = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if !s.tcp() {
		return
	}
	// When the program is killed, the kernel keeps its connections for a while. With this option, a restart may have their
	// ports again at once. It changes nothing for a socket that has a name.
	_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	s.state, _ = tcpState(s.fd)
	s.local, _ = nameOf(unix.Getsockname(s.fd))
	s.peer, _ = nameOf(unix.Getpeername(s.fd))
	s.queued = unacknowledged(s.fd)
}

// tcpState is the state of a TCP socket. Of one that listens, waiting is how many connections wait to be accepted, and
// backlog how many may.
func tcpState(fd int) (state int, info *unix.TCPInfo) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, &unix.TCPInfo{}
	}
	return int(info.State), info
}

// unacknowledged is how many bytes, and an end of the stream counts as one, the other end's kernel has not taken.
func unacknowledged(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}

// unread is how many bytes the program has not read.
func unread(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

func nameOf(sa unix.Sockaddr, err error) (netip.AddrPort, error) {
	if err != nil {
		return netip.AddrPort{}, err
	}
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), nil
	case *unix.SockaddrInet6:
		ip := netip.AddrFrom16(a.Addr)
		if a.ZoneId != 0 && !ip.Is4In6() {
			ip = ip.WithZone(fmt.Sprint(a.ZoneId))
		}
		return netip.AddrPortFrom(ip, uint16(a.Port)), nil
	}
	return netip.AddrPort{}, errors.New("no address of the Internet")
}

// sockaddrOf is the address for a socket of that family.
func sockaddrOf(family int, a netip.AddrPort) unix.Sockaddr {
	if family == unix.AF_INET {
		return &unix.SockaddrInet4{Addr: a.Addr().Unmap().As4(), Port: int(a.Port())}
	}
	sa := &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	if zone := a.Addr().Zone(); zone != "" {
		_, _ = fmt.Sscan(zone, &sa.ZoneId)
	}
	return sa
}

// ready is what poll says of a socket, without waiting.
func ready(fd int, events int16) int16 {
	p := []unix.PollFd{{Fd: int32(fd), Events: events}}
	if n, err := unix.Poll(p, 0); err != nil || n == 0 {
		return 0
	}
	return p[0].Revents
}

// peek copies what a stream has received and leaves it there. end says that nothing will follow.
func peek(fd int) (data []byte, end bool, err error) {
	data = make([]byte, unread(fd)+1) // one more, to see an end
	for at := 0; ; {
		n, flags, err := peekAt(fd, data)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return nil, false, nil
		case err != nil:
			return nil, false, err
		case flags&unix.MSG_CTRUNC != 0:
			return nil, false, errRights
		case n == 0:
			return nil, true, nil
		case n == len(data) && at < 3: // more has come
			at++
			data = make([]byte, 2*len(data))
			continue
		}
		return data[:n], false, nil
	}
}

var errRights = errors.New("descriptors or credentials are under way")

func peekAt(fd int, b []byte) (n, flags int, err error) {
	iov := unix.Iovec{Base: unsafe.SliceData(b)}
	iov.SetLen(len(b))
	msg := unix.Msghdr{Iov: &iov, Iovlen: 1}
	r, _, e := unix.Syscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if e != 0 {
		return 0, 0, e
	}
	return int(r), int(msg.Flags), nil
}
