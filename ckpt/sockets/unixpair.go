// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// pairUnix finds the other ends of Unix sockets.
func (h *Here) pairUnix() {
	for i, s := range h.sockets {
		if s.family != unix.AF_UNIX || s.other != nil {
			continue
		}
		if sa, err := unix.Getsockname(s.fd); err != nil || named(sa) {
			continue // it has a name, under which others may reach it
		}
		peer, err := unixPeer(s.ino)
		if err != nil {
			continue
		}
		if peer == 0 {
			s.closed = ready(s.fd, unix.POLLIN)&unix.POLLHUP != 0 && s.kind != unix.SOCK_DGRAM && !neverConnected(s.fd)
			continue
		}
		if j, ok := h.byIno[uint64(peer)]; ok && j != i {
			s.other = &Ref{h.rank, j}
		}
	}
}

// neverConnected tells a socket that had no other end yet from one whose other end is closed: poll does not.
func neverConnected(fd int) bool {
	_, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == unix.EINVAL || err == unix.ENOTCONN
}

func named(sa unix.Sockaddr) bool {
	u, ok := sa.(*unix.SockaddrUnix)
	return !ok || u.Name != "" && u.Name != "@" // the library's word for no name, as for one of no characters
}

// Of <linux/unix_diag.h> and <linux/sock_diag.h>.
const (
	sockDiagByFamily = 20
	udiagShowPeer    = 4
	unixDiagPeer     = 2
	diagBytes        = 24 // of a request
	diagMessage      = 16 // of the fixed part of an answer
)

// unixPeer asks the kernel for the inode of the other end; 0: there is none.
func unixPeer(ino uint64) (uint32, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	b := make([]byte, unix.NLMSG_HDRLEN+diagBytes)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	q := b[unix.NLMSG_HDRLEN:]
	q[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(q[4:], ^uint32(0)) // in any state
	binary.NativeEndian.PutUint32(q[8:], uint32(ino))
	binary.NativeEndian.PutUint32(q[12:], udiagShowPeer)
	binary.NativeEndian.PutUint64(q[16:], ^uint64(0)) // no cookie
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return 0, err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return 0, err
	}
	return parseDiag(answer[:n])
}

func parseDiag(b []byte) (peer uint32, err error) {
	if len(b) < unix.NLMSG_HDRLEN {
		return 0, errors.New("a short answer")
	}
	kind, n := binary.NativeEndian.Uint16(b[4:]), int(binary.NativeEndian.Uint32(b))
	if n < unix.NLMSG_HDRLEN || n > len(b) {
		return 0, errors.New("a short answer")
	}
	b = b[unix.NLMSG_HDRLEN:n]
	if kind == unix.NLMSG_ERROR {
		if len(b) < 4 {
			return 0, errors.New("a short answer")
		}
		return 0, unix.Errno(-int32(binary.NativeEndian.Uint32(b)))
	}
	if kind != sockDiagByFamily || len(b) < diagMessage {
		return 0, fmt.Errorf("an answer of type %d", kind)
	}
	for b = b[diagMessage:]; len(b) >= 4; {
		size, attr := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
		if size < 4 || size > len(b) {
			return 0, errors.New("a damaged answer")
		}
		if attr == unixDiagPeer && size >= 8 {
			return binary.NativeEndian.Uint32(b[4:]), nil
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return 0, nil
}

// describeUnix is for a Unix socket whose other end is in this process, or closed.
func (s *socket) describeUnix(d Socket, events int16) (Socket, error) {
	d.State = Connected
	if s.closed {
		d.State, d.Other = Alone, nil
	}
	d.Options = optionsOf(s.fd, s.family)
	if s.kind != unix.SOCK_STREAM {
		if events&unix.POLLIN != 0 && !(s.closed && unread(s.fd) == 0) {
			return d, s.passing("a Unix socket with messages under way", "it is waited for until the program reads them")
		}
		return d, nil
	}
	d.NoRead = events&unix.POLLRDHUP != 0
	var err error
	if d.data, _, err = peek(s.fd); errors.Is(err, errRights) {
		return d, s.passing("a Unix socket with descriptors or credentials under way", "it is waited for until the program reads them")
	}
	return d, err
}

// pairsUnix makes the pairs of Unix sockets of a table.
func (m *Made) pairsUnix() error {
	for i := range m.table.Sockets {
		s := &m.table.Sockets[i]
		if s.Family != unix.AF_UNIX || m.fds[i] >= 0 {
			continue
		}
		p, err := unix.Socketpair(unix.AF_UNIX, s.Type|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("a pair of Unix sockets: %w", err)
		}
		m.fds[i] = p[0]
		other := &Socket{}
		if s.State == Connected {
			if s.Other.Index == i || s.Other.Index >= len(m.table.Sockets) || m.fds[s.Other.Index] >= 0 {
				_ = unix.Close(p[1])
				return fmt.Errorf("socket %d: its other end is %d", i, s.Other.Index)
			}
			other = &m.table.Sockets[s.Other.Index]
			m.fds[s.Other.Index] = p[1]
		}
		m.options(p[0], s)
		m.options(p[1], other)
		err = errors.Join(sendAll(p[1], s.data), sendAll(p[0], other.data))
		if s.NoRead {
			err = errors.Join(err, unix.Shutdown(p[0], unix.SHUT_RD))
		}
		if other.NoRead {
			err = errors.Join(err, unix.Shutdown(p[1], unix.SHUT_RD))
		}
		if s.State == Alone {
			err = errors.Join(err, unix.Close(p[1]))
		}
		if err != nil {
			return fmt.Errorf("a pair of Unix sockets: %w", err)
		}
	}
	return nil
}

// sendAll fills a socket that does not wait; its buffer is made larger while it must be.
func sendAll(fd int, b []byte) error {
	size := 0
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		switch {
		case err == nil:
			b = b[n:]
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN) && size < 1<<30:
			if size == 0 {
				size = max(4*len(b), 1<<20)
			}
			size *= 2
			if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size) != nil {
				_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size)
			}
		default:
			return fmt.Errorf("fill it with %d bytes: %w", len(b), err)
		}
	}
	return nil
}
