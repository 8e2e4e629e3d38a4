// SPDX-License-Identifier: Apache-2.0

package hostaddr

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sort"
	"strings"
)

// ID tells hosts apart: two processes with the same ID reach each other over loopback.
type ID [16]byte

// Here is the ID of this process: of this boot of the machine and this network namespace, since two
// containers of one machine do not share their loopback.
func Here() (ID, error) {
	var id ID
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, fmt.Errorf("tell this host from others: %w", err)
	}
	netns, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return id, fmt.Errorf("tell this network namespace from others: %w", err)
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(string(boot)) + "\n" + netns))
	copy(id[:], sum[:])
	return id, nil
}

// Published returns the addresses of this host that other hosts may be able to use, IPv4 first, in
// the order of the interfaces, each once. Loopback, link-local and multicast addresses are left out.
func Published() ([]netip.Addr, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	var out []netip.Addr
	seen := make(map[netip.Addr]bool)
	for _, i := range ifs {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // the interface went away meanwhile
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			ip := p.Addr().Unmap()
			if !ip.IsGlobalUnicast() || ip.IsLoopback() || seen[ip] {
				continue
			}
			seen[ip] = true
			out = append(out, ip)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Is4() && !out[j].Is4() })
	return out, nil
}

// ListenLoopback listens on a free port of the loopback interface.
func ListenLoopback() (net.Listener, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err == nil {
		return ln, nil
	}
	ln, err6 := net.Listen("tcp6", "[::1]:0")
	if err6 == nil {
		return ln, nil
	}
	return nil, fmt.Errorf("listen on loopback: %w", errors.Join(err, err6))
}

// ListenAll listens on a free port of all interfaces.
func ListenAll() (net.Listener, error) {
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, fmt.Errorf("listen on all interfaces: %w", err)
	}
	return ln, nil
}

// Of returns the address and port that ln listens on.
func Of(ln net.Listener) netip.AddrPort {
	a, ok := ln.Addr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := a.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
