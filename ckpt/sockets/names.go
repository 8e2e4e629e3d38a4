// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// Name is what the program is to see for a socket that was made again.
type Name struct {
	Inode       uint64
	Family      int
	Local, Peer netip.AddrPort
}

// Names has the names of the sockets that were made again in this process.
type Names struct {
	mu    sync.Mutex
	byIno map[uint64]Name
}

// of is what the program sees: the names are local and peer, unless the socket was made again.
func (n *Names) of(ino uint64, local, peer netip.AddrPort) (netip.AddrPort, netip.AddrPort) {
	if n == nil {
		return local, peer
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if one, ok := n.byIno[ino]; ok {
		return one.Local, one.Peer
	}
	return local, peer
}

// List has all of them.
func (n *Names) List() []Name {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []Name
	for _, one := range n.byIno {
		out = append(out, one)
	}
	return out
}

func (n *Names) add(fd int, s *Socket) {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || s.Family == unix.AF_UNIX || !s.Local.IsValid() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byIno == nil {
		n.byIno = map[uint64]Name{}
	}
	n.byIno[st.Ino] = Name{st.Ino, s.Family, s.Local, s.Peer}
}

// Sockaddr is a name as the kernel writes it: the address of getsockname, or of getpeername; nil when there is none.
func (n *Name) Sockaddr(peer bool) []byte {
	a := n.Local
	if peer {
		a = n.Peer
	}
	if !a.IsValid() {
		return nil
	}
	port := []byte{byte(a.Port() >> 8), byte(a.Port())}
	if n.Family == unix.AF_INET {
		ip := a.Addr().Unmap().As4()
		b := append([]byte{unix.AF_INET, 0}, port...)
		return append(append(b, ip[:]...), make([]byte, 8)...)
	}
	ip := a.Addr().As16()
	b := append([]byte{unix.AF_INET6, 0}, port...)
	b = append(append(b, 0, 0, 0, 0), ip[:]...) // no flow
	sa, _ := sockaddrOf(unix.AF_INET6, a).(*unix.SockaddrInet6)
	z := sa.ZoneId
	return append(b, byte(z), byte(z>>8), byte(z>>16), byte(z>>24))
}
