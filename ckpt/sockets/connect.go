// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/libckpt/libckpt/internal/hostaddr"
)

// card is what a process tells the others before they connect.
type card struct {
	Error  string         `json:"error,omitempty"`
	Host   string         `json:"host,omitempty"`
	Addrs  []netip.Addr   `json:"addrs,omitempty"`
	Near   map[int]uint16 `json:"near,omitempty"` // ports on loopback and on all interfaces, by family of the sockets that
	Far    map[int]uint16 `json:"far,omitempty"`  // accept there
	Secret []byte         `json:"secret,omitempty"`
	Ends   []cardEnd      `json:"ends,omitempty"`
}

type cardEnd struct {
	Index  int `json:"index"`
	Other  Ref `json:"other"`
	Family int `json:"family"`
}

// The first bytes on a new connection, from the end that connects: magic, the secret of the end that accepts, the index
// of that one, rank and index of the one that connects. Then both send the length of what the image has for them, in 8
// bytes, and that; each takes what the other one has sent, and sends it back as the first bytes of the stream.
const (
	greetMagic  = "ckptsock"
	secretBytes = 32
	greetBytes  = len(greetMagic) + secretBytes + 12
	// strangers bounds connections that have not proved anything.
	strangers = 64
	greetTime = 10 * time.Second
)

func (m *Made) connected() (out []cardEnd) {
	for i := range m.table.Sockets {
		if s := &m.table.Sockets[i]; s.State == Connected && s.Family != unix.AF_UNIX {
			out = append(out, cardEnd{i, *s.Other, s.Family})
		}
	}
	return out
}

// accepts tells whether the end is the one that waits for the other.
func (m *Made) accepts(e cardEnd) bool { return Ref{m.rank, e.Index}.less(e.Other) }

// doors are where this process listens for a moment.
type doors struct{ near, far map[int]int }

func (d *doors) close() {
	for _, l := range []map[int]int{d.near, d.far} {
		for f, fd := range l {
			_ = unix.Close(fd)
			delete(l, f)
		}
	}
}

func (m *Made) openDoors(c *card) (*doors, error) {
	d := &doors{map[int]int{}, map[int]int{}}
	c.Near, c.Far = map[int]uint16{}, map[int]uint16{}
	for _, e := range c.Ends {
		if _, open := d.near[e.Family]; open || !m.accepts(e) {
			continue
		}
		for _, far := range []bool{false, true} {
			fd, port, err := openDoor(e.Family, far)
			if err != nil {
				return d, fmt.Errorf("a port for the job's connections: %w", err)
			}
			if far {
				d.far[e.Family], c.Far[e.Family] = fd, port
			} else {
				d.near[e.Family], c.Near[e.Family] = fd, port
			}
		}
	}
	return d, nil
}

func openDoor(family int, far bool) (fd int, port uint16, err error) {
	if fd, err = newSocket(family); err != nil {
		return -1, 0, err
	}
	if family == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	sa := loopback(family)
	if far && family == unix.AF_INET {
		sa = &unix.SockaddrInet4{}
	} else if far {
		sa = &unix.SockaddrInet6{}
	}
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err == nil {
		err = unix.Listen(fd, 1024)
	}
	var at netip.AddrPort
	if err == nil {
		at, err = nameOf(unix.Getsockname(fd))
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, 0, err
	}
	return fd, at.Port(), nil
}

// together connects this process's sockets with those of others. failed is why this process cannot. Collective.
func (m *Made) together(ctx context.Context, gather Gather, failed error) error {
	c := card{Secret: make([]byte, secretBytes)}
	_, _ = rand.Read(c.Secret) // never fails
	d := &doors{}
	if failed == nil {
		c.Ends = m.connected()
		id, err := hostaddr.Here()
		c.Host = hex.EncodeToString(id[:])
		if err == nil {
			c.Addrs, err = hostaddr.Published()
		}
		if err == nil {
			d, err = m.openDoors(&c)
		}
		failed = err
	}
	defer func() { d.close() }()
	if failed != nil {
		c = card{Error: failed.Error()}
	}
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	all, err := gather(b)
	if failed != nil || err != nil {
		return errors.Join(failed, err)
	}
	cards := make([]card, len(all))
	for r, b := range all {
		if err := json.Unmarshal(b, &cards[r]); err != nil {
			return fmt.Errorf("what rank %d says of its sockets: %w", r, err)
		}
	}
	if err := checkCards(cards); err != nil {
		return err
	}
	return m.meet(ctx, cards, d)
}

// checkCards makes sure that both ends of each connection know each other. It finds the same on all processes.
func checkCards(cards []card) error {
	for r := range cards {
		if why := cards[r].Error; why != "" {
			return fmt.Errorf("rank %d: %s", r, why)
		}
	}
	for r := range cards {
		if len(cards[r].Secret) != secretBytes {
			return fmt.Errorf("rank %d has no secret for connections", r)
		}
		for _, e := range cards[r].Ends {
			if e.Other.Rank >= len(cards) || !slices.ContainsFunc(cards[e.Other.Rank].Ends, func(o cardEnd) bool {
				return o.Index == e.Other.Index && o.Other == Ref{r, e.Index}
			}) {
				return fmt.Errorf("socket %d of rank %d is connected to socket %d of rank %d, which knows nothing of it", e.Index, r, e.Other.Index, e.Other.Rank)
			}
		}
	}
	return nil
}

// meet makes all connections at once. The first error ends the others.
func (m *Made) meet(ctx context.Context, cards []card, d *doors) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	here := cards[m.rank].Host
	waiting := map[int]cardEnd{}
	far := false
	var wg sync.WaitGroup
	for _, e := range cards[m.rank].Ends {
		if m.accepts(e) {
			waiting[e.Index] = e
			far = far || cards[e.Other.Rank].Host != here
		}
	}
	if !far { // nobody comes from elsewhere
		for _, fd := range d.far {
			_ = unix.Close(fd)
		}
		clear(d.far)
	}
	g := &gate{m: m, secret: cards[m.rank].Secret, waiting: waiting, fail: cancel}
	if len(waiting) > 0 {
		for _, l := range []map[int]int{d.near, d.far} {
			for family, fd := range l {
				wg.Go(func() { g.serve(ctx, fd, family) })
			}
		}
	}
	for _, e := range cards[m.rank].Ends {
		if !m.accepts(e) {
			wg.Go(func() {
				if err := m.connect(ctx, e, &cards[e.Other.Rank], cards[m.rank].Host); err != nil {
					cancel(fmt.Errorf("connect again with rank %d: %w", e.Other.Rank, err))
				}
			})
		}
	}
	end := time.AfterFunc(connectTime, func() { cancel(fmt.Errorf("connections with other processes were not made in %v", connectTime)) })
	defer end.Stop()
	wg.Wait()
	g.wg.Wait()
	return context.Cause(ctx)
}

// connectTime bounds all of it.
const connectTime = 2 * time.Minute

// gate lets those in who know the secret.
type gate struct {
	m      *Made
	secret []byte
	fail   context.CancelCauseFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	waiting map[int]cardEnd // not come yet
	unknown int             // connections that have not proved anything
}

func (g *gate) left() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

func (g *gate) serve(ctx context.Context, ln, family int) {
	for g.left() > 0 && ctx.Err() == nil {
		fd, _, err := acceptSoon(ln, time.Now().Add(100*time.Millisecond))
		if err != nil {
			if !errors.Is(err, errLate) {
				g.fail(err)
			}
			continue
		}
		g.mu.Lock()
		if g.unknown++; g.unknown > strangers {
			g.unknown--
			g.mu.Unlock()
			_ = unix.Close(fd)
			continue
		}
		g.mu.Unlock()
		g.wg.Go(func() { g.let(ctx, fd, family) })
	}
}

// let serves one connection.
func (g *gate) let(ctx context.Context, fd, family int) {
	b := make([]byte, greetBytes)
	err := readAll(ctx, fd, b, time.Now().Add(greetTime))
	var e cardEnd
	g.mu.Lock()
	g.unknown--
	ok := err == nil && string(b[:len(greetMagic)]) == greetMagic &&
		subtle.ConstantTimeCompare(b[len(greetMagic):len(greetMagic)+secretBytes], g.secret) == 1
	if ok {
		n := b[len(greetMagic)+secretBytes:]
		index, from := int(binary.LittleEndian.Uint32(n)), Ref{int(binary.LittleEndian.Uint32(n[4:])), int(binary.LittleEndian.Uint32(n[8:]))}
		e, ok = g.waiting[index]
		ok = ok && e.Other == from && e.Family == family
		if ok {
			delete(g.waiting, index)
		}
	}
	g.mu.Unlock()
	if !ok {
		_ = unix.Close(fd)
		return
	}
	if err := g.m.finish(ctx, fd, e); err != nil {
		g.fail(fmt.Errorf("connect again with rank %d: %w", e.Other.Rank, err))
	}
}

// connect makes a connection to the process that waits for it.
func (m *Made) connect(ctx context.Context, e cardEnd, to *card, here string) error {
	i := slices.IndexFunc(to.Ends, func(o cardEnd) bool { return o.Index == e.Other.Index })
	family := to.Ends[i].Family
	var ways []netip.AddrPort
	if to.Host == here {
		ways = append(ways, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), to.Near[family]))
	} else {
		for _, a := range to.Addrs {
			if a.Is4() || family == unix.AF_INET6 && e.Family == unix.AF_INET6 {
				ways = append(ways, netip.AddrPortFrom(a, to.Far[family]))
			}
		}
	}
	err := errors.New("it has no address that leads there from this host")
	for _, w := range ways {
		var fd int
		if fd, err = dial(ctx, e.Family, w); err != nil {
			err = fmt.Errorf("%v: %w", w, err)
			continue
		}
		b := append([]byte(greetMagic), to.Secret...)
		b = binary.LittleEndian.AppendUint32(b, uint32(e.Other.Index))
		b = binary.LittleEndian.AppendUint32(b, uint32(m.rank))
		b = binary.LittleEndian.AppendUint32(b, uint32(e.Index))
		if err = writeAll(fd, b, time.Now().Add(patience)); err != nil {
			_ = unix.Close(fd)
			continue
		}
		return m.finish(ctx, fd, e)
	}
	return err
}

// finish fills both directions of a connection with what the images have for them. The descriptor is the socket's then.
func (m *Made) finish(ctx context.Context, fd int, e cardEnd) error {
	s := &m.table.Sockets[e.Index]
	m.fds[e.Index] = fd
	defer m.options(fd, s)
	defer room(fd, len(s.data))()
	end := time.Now().Add(patience)
	sent := make(chan error, 1)
	go func() {
		head := binary.LittleEndian.AppendUint64(nil, uint64(len(s.data)))
		sent <- errors.Join(writeAll(fd, head, end), writeAll(fd, s.data, end))
	}()
	theirs, err := readFrame(ctx, fd, end)
	if err = errors.Join(err, <-sent); err != nil {
		return err
	}
	if err := writeAll(fd, theirs, time.Now().Add(patience)); err != nil {
		return fmt.Errorf("send the %d bytes again that were under way: %w", len(theirs), err)
	}
	if err := arrived(fd, len(s.data), time.Now().Add(patience)); err != nil {
		return err
	}
	if s.NoWrite {
		err = unix.Shutdown(fd, unix.SHUT_WR)
	}
	if s.NoRead {
		err = errors.Join(err, unix.Shutdown(fd, unix.SHUT_RD))
	}
	return err
}
