// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Connections that wait to be accepted. The kernel gives what has come on them to nobody but who accepts them, and takes
// none back. So Look accepts them all, and Welcome has a connection of our own wait in the place of each, its token, in
// the same order: whoever answers the program's calls gives it the visitor for the token.

// Visitor is a connection that was accepted before the program did. Names are as the kernel writes them.
type Visitor struct {
	Listener uint64 // inode of the socket at which it waits
	FD       int
	Token    int    // the token's other end; -1: there is none
	Name     []byte // of that, as accept tells it
	Peer     []byte // of the visitor
}

// visitorsMost is how many a process keeps; others wait where they are, and are an obstacle.
const visitorsMost = 256

// tokenTime is how long a token may take to be there.
const tokenTime = 5 * time.Second

// admit accepts what waits at the sockets of this process.
func (h *Here) admit(was []Visitor) {
	known := map[string]Visitor{}
	for _, v := range was {
		known[fmt.Sprint(v.Listener, v.Name)] = v
	}
	count := 0
	for i, s := range slices.Clone(h.sockets) {
		if !s.tcp() || s.state != tcpListen || !s.mayAsk() {
			continue
		}
		for _, v := range was {
			if v.Listener == s.ino && v.Token < 0 { // they are before those with tokens
				h.visit(i, v)
				count++
			}
		}
		flags, err := unix.FcntlInt(uintptr(s.fd), unix.F_GETFL, 0)
		if err != nil || unix.SetNonblock(s.fd, true) != nil {
			continue
		}
		for count < visitorsMost {
			fd, from, err := unix.Accept4(s.fd, unix.SOCK_CLOEXEC)
			if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED) {
				continue
			}
			if err != nil {
				break
			}
			at, _ := nameOf(from, nil)
			v := Visitor{Listener: s.ino, FD: fd, Token: -1, Peer: rawName(s.family, at)}
			if old, ok := known[fmt.Sprint(s.ino, v.Peer)]; ok {
				_ = unix.Close(fd)
				_ = unix.Close(old.Token)
				old.Token = -1
				v = old
			}
			h.visit(i, v)
			count++
		}
		_, _ = unix.FcntlInt(uintptr(s.fd), unix.F_SETFL, flags)
	}
	for _, v := range was { // whose socket is closed: so are they
		if !slices.ContainsFunc(h.sockets, func(s *socket) bool { return s.visitor != nil && s.fd == v.FD }) {
			_ = unix.SetsockoptLinger(v.FD, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			_ = unix.Close(v.FD)
			if v.Token >= 0 {
				_ = unix.Close(v.Token)
			}
		}
	}
}

// mayAsk tells whether a token would come to this socket: others may listen at the same port, or it may hear one network
// alone.
func (s *socket) mayAsk() bool {
	shared, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT)
	device, derr := unix.GetsockoptString(s.fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE)
	return err == nil && shared == 0 && (derr != nil || device == "")
}

func (h *Here) visit(at int, v Visitor) {
	var st unix.Stat_t
	_ = unix.Fstat(v.FD, &st)
	s := &socket{fd: v.FD, ino: st.Ino, visits: at, visitor: &v}
	s.look()
	if !s.peer.IsValid() { // cut off by the other end
		s.peer = cookedName(v.Peer)
	}
	h.sockets = append(h.sockets, s)
}

// turnAway says at the listening socket that this one, which waits there, cannot be kept.
func (h *Here) turnAway(s *socket) {
	if s.visits < 0 {
		return
	}
	why := "which leads out of the job"
	if s.obstacle != nil {
		why = "which is " + s.obstacle.What
	}
	ln := h.sockets[s.visits]
	ln.obstacle = &Obstacle{Passing: true, What: fmt.Sprintf("a listening TCP socket at %v, where a connection from %v waits to be accepted, %s", ln.local, s.peer, why),
		Hint: "it is waited for until the program accepts it"}
}

// Welcome has tokens wait in the place of the visitors, which it returns. The error says that the program may not learn
// of some before it asks.
func (h *Here) Welcome() (out []Visitor, err error) {
	for _, s := range h.sockets {
		if s.visitor == nil {
			continue
		}
		ln := h.sockets[s.visits]
		terr := s.visitor.token(ln.fd, ln.family)
		if terr != nil {
			err = fmt.Errorf("a connection from %v, which waits to be accepted at %v: %w", s.peer, ln.local, terr)
		}
		out = append(out, *s.visitor)
	}
	return out, err
}

// Visitors are the connections that wait to be accepted, with tokens. They are the caller's then. Before any Take.
func (m *Made) Visitors() (out []Visitor, err error) {
	if m == nil {
		return nil, nil
	}
	for i := range m.table.Sockets {
		s := &m.table.Sockets[i]
		if s.Visits == nil {
			continue
		}
		ln := m.fds[*s.Visits]
		var st unix.Stat_t
		if err := unix.Fstat(ln, &st); err != nil {
			return out, err
		}
		v := Visitor{Listener: st.Ino, FD: m.fds[i], Token: -1, Peer: rawName(s.Family, s.Peer)}
		m.fds[i] = -1
		if terr := v.token(ln, s.Family); terr != nil {
			err = fmt.Errorf("a connection from %v, which waits to be accepted at %v: %w", s.Peer, m.table.Sockets[*s.Visits].Local, terr)
		}
		out = append(out, v)
	}
	return out, err
}

// token makes a token at a socket that listens.
func (v *Visitor) token(ln, family int) error {
	v.Token, v.Name = -1, nil
	at, err := nameOf(unix.Getsockname(ln))
	if err != nil {
		return err
	}
	var tries []netip.AddrPort
	if at.Addr().IsUnspecified() {
		if only, err := unix.GetsockoptInt(ln, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY); family == unix.AF_INET || err == nil && only == 0 {
			tries = append(tries, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port()))
		}
		if family == unix.AF_INET6 {
			tries = append(tries, netip.AddrPortFrom(netip.IPv6Loopback(), at.Port()))
		}
	} else {
		tries = append(tries, at)
	}
	for _, to := range tries {
		if err = v.tokenTo(family, to); err == nil {
			return nil
		}
	}
	return fmt.Errorf("connect to %v: %w", at, err)
}

func (v *Visitor) tokenTo(family int, to netip.AddrPort) error {
	fd, err := dialUntil(context.Background(), family, to, time.Now().Add(tokenTime))
	if err != nil {
		return err
	}
	_, _ = unix.Write(fd, []byte{0}) // a socket may tell of connections only when they have something to say
	name, err := nameOf(unix.Getsockname(fd))
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	v.Token, v.Name = fd, rawName(family, name)
	return nil
}

// rawName is a name as accept tells it at a socket of that family.
func rawName(family int, a netip.AddrPort) []byte {
	if !a.IsValid() {
		return nil
	}
	if family == unix.AF_INET6 && a.Addr().Is4() {
		a = netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
	}
	return (&Name{Family: family, Local: a}).Sockaddr(false)
}

// cookedName is what rawName was made from.
func cookedName(b []byte) netip.AddrPort {
	switch {
	case len(b) == unix.SizeofSockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), uint16(b[2])<<8|uint16(b[3]))
	case len(b) == unix.SizeofSockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), uint16(b[2])<<8|uint16(b[3]))
	}
	return netip.AddrPort{}
}
