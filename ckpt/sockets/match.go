// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"bufio"
	"encoding/hex"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// way is a direction of a connection: who sends to whom. Addresses of loopback mean something on one host alone.
type way struct {
	scope       string
	local, peer netip.AddrPort
}

func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

func (r *Report) way(e *End) way {
	w := way{"", plain(e.Local), plain(e.Peer)}
	if w.local.Addr().IsLoopback() || w.peer.Addr().IsLoopback() {
		w.scope = r.Host
	}
	return w
}

func (w way) back() way { return way{w.scope, w.peer, w.local} }

// pairs finds the other end of each socket that has one in the job. Two that claim to be the same end have none: networks
// with the same addresses are not told apart.
func pairs(all []Report) map[Ref]Ref {
	ends := map[way][]Ref{}
	for rank := range all {
		for i := range all[rank].Ends {
			e := &all[rank].Ends[i]
			w := all[rank].way(e)
			ends[w] = append(ends[w], Ref{rank, e.Index})
		}
	}
	out := map[Ref]Ref{}
	for w, mine := range ends {
		if other := ends[w.back()]; len(mine) == 1 && len(other) == 1 && mine[0] != other[0] {
			out[mine[0]] = other[0]
		}
	}
	return out
}

// Match learns from what all have told which connections are the job's own. rank is this process's.
func (h *Here) Match(rank int, all []Report) {
	h.rank, h.reports = rank, all
	pair := pairs(all)
	for i, s := range h.sockets {
		if other, ok := pair[Ref{rank, i}]; ok {
			s.other = &other
		}
	}
}

// Word is what a process tells the others once its connections are drained.
type Word struct {
	// Closed are ends, of other processes or of this one, whose other end would be on this host and is not held by any
	// process; Held are those that a process outside of the job holds.
	Closed []Ref `json:"closed,omitempty"`
	Held   []Ref `json:"held,omitempty"`
}

// strays looks for the other ends of connections that have none in the job.
func (h *Here) strays() (w Word) {
	pair := pairs(h.reports)
	var kernel map[way]bool
	for rank := range h.reports {
		r := &h.reports[rank]
		for i := range r.Ends {
			e := &r.Ends[i]
			ref := Ref{rank, e.Index}
			if _, ok := pair[ref]; ok || !h.here(r, e) {
				continue
			}
			if kernel == nil {
				kernel = kernelEnds(h.report.Host)
			}
			if held, known := kernel[r.way(e).back()]; known && held {
				w.Held = append(w.Held, ref)
			} else {
				w.Closed = append(w.Closed, ref)
			}
		}
	}
	return w
}

// here tells whether the other end of e would be on this host.
func (h *Here) here(r *Report, e *End) bool {
	peer := plain(e.Peer).Addr()
	if peer.IsLoopback() {
		return r.Host == h.report.Host
	}
	return slices.Contains(h.report.Addrs, peer)
}

// kernelEnds lists the TCP connections of this network namespace, and whether a process holds each.
func kernelEnds(host string) map[way]bool {
	out := map[way]bool{}
	r := Report{Host: host}
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 {
				continue
			}
			local, err1 := parseKernel(fields[1])
			peer, err2 := parseKernel(fields[2])
			if err1 != nil || err2 != nil {
				continue
			}
			out[r.way(&End{Local: local, Peer: peer})] = fields[9] != "0"
		}
		_ = f.Close()
	}
	return out
}

// parseKernel reads "0100007F:1F90", words in the byte order of the machine.
func parseKernel(s string) (netip.AddrPort, error) {
	a, p, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(a)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for i := 0; i+4 <= len(b); i += 4 {
		slices.Reverse(b[i : i+4])
	}
	port, err := strconv.ParseUint(p, 16, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	ip, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.AddrPort{}, strconv.ErrSyntax
	}
	return netip.AddrPortFrom(ip, uint16(port)), nil
}
