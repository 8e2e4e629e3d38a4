// SPDX-License-Identifier: Apache-2.0

package hostaddr

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
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

// Select returns those of Published that the words choose: an address, a network ("10.1.0.0/16") or the name
// of an interface each. A word that chooses none is an error; so is a loopback address, which needs no choice.
func Select(words []string) ([]netip.Addr, error) {
	all, err := Published()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, w := range words {
		chosen, err := selectOne(all, w)
		if err != nil {
			return nil, err
		}
		if len(chosen) == 0 {
			return nil, fmt.Errorf("no address of this host is chosen by %q: it has %v", w, all)
		}
		for _, a := range chosen {
			if !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out, nil
}

func selectOne(all []netip.Addr, word string) ([]netip.Addr, error) {
	in := func(has func(netip.Addr) bool) []netip.Addr {
		return slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return !has(a) })
	}
	if a, err := netip.ParseAddr(word); err == nil {
		return in(func(b netip.Addr) bool { return a.Unmap() == b }), nil
	}
	if p, err := netip.ParsePrefix(word); err == nil {
		return in(p.Contains), nil
	}
	i, err := net.InterfaceByName(word)
	if err != nil {
		return nil, fmt.Errorf("%q is no address, no network and no interface of this host", word)
	}
	addrs, err := i.Addrs()
	if err != nil {
		return nil, fmt.Errorf("addresses of interface %s: %w", word, err)
	}
	return in(func(b netip.Addr) bool {
		return slices.ContainsFunc(addrs, func(a net.Addr) bool {
			p, err := netip.ParsePrefix(a.String())
			return err == nil && p.Addr().Unmap() == b
		})
	}), nil
}

// Listen listens on a free port of one address of this host.
func Listen(a netip.Addr) (net.Listener, error) {
	ln, err := known(net.Listen("tcp", netip.AddrPortFrom(a, 0).String()))
	if err != nil {
		return nil, fmt.Errorf("listen on %v: %w", a, err)
	}
	return ln, nil
}

// ListenLoopback listens on a free port of the loopback interface.
func ListenLoopback() (net.Listener, error) {
	ln, err := known(net.Listen("tcp4", "127.0.0.1:0"))
	if err == nil {
		return ln, nil
	}
	ln, err6 := known(net.Listen("tcp6", "[::1]:0"))
	if err6 == nil {
		return ln, nil
	}
	return nil, fmt.Errorf("listen on loopback: %w", errors.Join(err, err6))
}

// ListenAll listens on a free port of all interfaces.
func ListenAll() (net.Listener, error) {
	ln, err := known(net.Listen("tcp", ":0"))
	if err != nil {
		return nil, fmt.Errorf("listen on all interfaces: %w", err)
	}
	return ln, nil
}

// known is for what net.Listen returns: it passes over it when the kernel does not say which port it has chosen
// (getsockname), and nobody could be told where to connect to.
func known(ln net.Listener, err error) (net.Listener, error) {
	if err != nil {
		return nil, err
	}
	if Of(ln).Port() == 0 {
		return nil, errors.Join(errors.New("the kernel does not say which port was chosen"), ln.Close())
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
