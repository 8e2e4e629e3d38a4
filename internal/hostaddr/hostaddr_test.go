// SPDX-License-Identifier: Apache-2.0

package hostaddr

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestHereIsStable(t *testing.T) {
	a, err := Here()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Here()
	if err != nil || a != b || a == (ID{}) {
		t.Errorf("got %x, then %x, %v", a, b, err)
	}
}

func TestPublishedAreUsableElsewhere(t *testing.T) {
	addrs, err := Published()
	if err != nil {
		t.Fatal(err)
	}
	seen6 := false
	for i, a := range addrs {
		if a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || a.Is4In6() {
			t.Errorf("%v is published", a)
		}
		if a.Is4() && seen6 {
			t.Errorf("%v comes after an IPv6 address: %v", a, addrs)
		}
		seen6 = seen6 || a.Is6()
		for _, b := range addrs[:i] {
			if a == b {
				t.Errorf("%v is published twice", a)
			}
		}
	}
}

func TestListeners(t *testing.T) {
	for name, listen := range map[string]func() (net.Listener, error){"loopback": ListenLoopback, "all": ListenAll} {
		ln, err := listen()
		if err != nil {
			t.Fatal(err)
		}
		ap := Of(ln)
		if ap.Port() == 0 || name == "loopback" && !ap.Addr().IsLoopback() || name == "all" && !ap.Addr().IsUnspecified() {
			t.Errorf("%s listens on %v", name, ap)
		}
		_ = ln.Close()
	}
}

func TestSelect(t *testing.T) {
	all, err := Published()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		for _, word := range []string{a.String(), netip.PrefixFrom(a, a.BitLen()).String()} {
			if got, err := Select([]string{word, word}); err != nil || len(got) != 1 || got[0] != a {
				t.Errorf("%s: %v, %v", word, got, err)
			}
		}
	}
	ifs, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var byName []netip.Addr
	for _, i := range ifs {
		if got, err := Select([]string{i.Name}); err == nil {
			byName = append(byName, got...)
		}
	}
	for _, a := range all {
		if !slices.Contains(byName, a) {
			t.Errorf("%v is chosen by no interface's name", a)
		}
	}
	for _, word := range []string{"192.0.2.1", "198.51.100.0/24", "nosuch0", "127.0.0.1", "lo", ""} {
		if got, err := Select([]string{word}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", word)) {
			t.Errorf("%q: %v, %v", word, got, err)
		}
	}
}

// nowhere is a listener as net.Listen returns it where getsockname fails.
type nowhere struct {
	net.Listener
	closed bool
}

func (*nowhere) Addr() net.Addr { return nil }
func (n *nowhere) Close() error { n.closed = true; return nil }

// TestKnown: a listener of which nobody knows the port is an error, and closed.
func TestKnown(t *testing.T) {
	n := &nowhere{}
	if ln, err := known(n, nil); err == nil || ln != nil || !n.closed {
		t.Errorf("%v, %v, closed: %v", ln, err, n.closed)
	}
	ln, err := ListenLoopback()
	if err != nil || Of(ln).Port() == 0 {
		t.Fatalf("%v, %v", ln, err)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
}
