// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	"github.com/libckpt/libckpt/internal/handshake"
)

// The smaller of two ranks always makes their connection, so that two ranks which want each other at the same
// time do not make two connections. The larger rank asks for a connection over the ring.
//
//	smaller                            larger
//	   handshake            ◄──────►
//	   ping: number, count  ──────►    the link takes the connection, which replaces an older one
//	   the link takes it    ◄──────    ping: count
//
// The counts are of the frames that have arrived on this link before. An attempt that ends halfway
// is tried again. Connections are numbered, so that a late connection does not replace a newer one.
//
// When a connection ends, both ranks notice, or only one of them. The smaller rank makes another connection.
// The larger rank, which may be the only one to know, calls the smaller: it connects, proves who it is, names
// the connection that it has lost, and disconnects. When the other's host refuses connections for a while, the
// other's process has ended, and the rank is lost.

// want is a link that somebody waits for.
type want struct {
	done chan struct{} // closed when the link is up, or when it failed
	err  error         // why the link failed; valid after done
}

// want asks for a link to peer. n.mu is held. The caller has checked that there is no such link.
func (n *Network) want(peer int) *want {
	if w := n.wanted[peer]; w != nil {
		return w
	}
	w := &want{done: make(chan struct{})}
	n.wanted[peer] = w
	switch {
	case n.closed:
		n.giveUp(peer, ErrClosed)
	case n.rank < peer:
		n.wg.Add(1)
		go n.makeShortcut(peer)
	default:
		n.route(&frame{typ: frameLink, from: n.rank, to: peer})
	}
	return w
}

// peerWants answers a larger rank that asks for a link. n.mu is held.
func (n *Network) peerWants(peer int) {
	switch {
	case peer < n.rank || n.links[peer] != nil || n.closed:
	case n.noLink[peer]:
		n.route(&frame{typ: frameNoLink, from: n.rank, to: peer, payload: []byte("it was tried before")})
	default:
		n.want(peer)
	}
}

// settle tells those who wait for a link to peer that it is up. n.mu is held.
func (n *Network) settle(peer int) {
	delete(n.noLink, peer)
	if w := n.wanted[peer]; w != nil {
		delete(n.wanted, peer)
		close(w.done)
	}
}

// giveUp tells those who wait for a link to peer that there will be none. n.mu is held.
func (n *Network) giveUp(peer int, err error) {
	if n.links[peer] != nil {
		return
	}
	n.noLink[peer] = true
	if w := n.wanted[peer]; w != nil {
		delete(n.wanted, peer)
		w.err = err
		close(w.done)
	}
}

// makeShortcut connects to peer, or tells peer that this cannot be done.
func (n *Network) makeShortcut(peer int) {
	defer n.wg.Done()
	ctx, cancel := context.WithTimeout(n.ctx, shortcutTimeout)
	defer cancel()
	c, err := n.connect(ctx, peer)
	if err == nil {
		n.join(c)
		return
	}
	n.cfg.Log.Info("no direct link; messages take the ring", "peer", peer, "error", err)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.giveUp(peer, err)
	n.route(&frame{typ: frameNoLink, from: n.rank, to: peer, payload: []byte(clip(err.Error()))})
}

// errGone says that nobody listens any more at the addresses of a rank.
var errGone = errors.New("its process is gone: nobody listens there any more")

// made is a connection on which both sides have sent their first frame.
type made struct {
	conn   *handshake.Conn
	peer   int
	number uint64
	has    uint64 // frames of this rank that the peer has
}

// connect tries all addresses of peer, again and again, until one works or ctx is done.
func (n *Network) connect(ctx context.Context, peer int) (made, error) {
	var c made
	err := n.insist(ctx, peer, false, func(ctx context.Context, way string) (err error) {
		c, err = n.dial(ctx, way, peer)
		return err
	})
	return c, err
}

// insist calls f with all addresses of peer, again and again, until f succeeds or ctx is done. When gone is
// set, insist also ends, with errGone, once it is certain that the peer's process has ended.
func (n *Network) insist(ctx context.Context, peer int, gone bool, f func(ctx context.Context, way string) error) error {
	ways := n.cards[peer].ways(n.cards[n.rank].host)
	if len(ways) == 0 {
		return fmt.Errorf("rank %d is on another host and has no address there that could be tried", peer)
	}
	pause, most := 5*time.Millisecond, 500*time.Millisecond
	var refused time.Time // since when
	for {
		var errs []error
		all := true
		for _, way := range ways {
			err := f(ctx, way.String())
			if err == nil {
				return nil
			}
			errs = append(errs, err)
			all = all && errors.Is(err, syscall.ECONNREFUSED)
		}
		switch {
		case !all || !gone:
			refused = time.Time{}
		case n.parted(): // a peer that refuses has left as agreed
			return errGone
		case refused.IsZero():
			refused = time.Now()
		case time.Since(refused) > min(refusedFor, n.cfg.Silence/4):
			return errGone
		}
		// Jitter, so that ranks that were refused together do not come back together.
		select {
		case <-time.After(pause + rand.N(pause)):
		case <-ctx.Done():
			return fmt.Errorf("connect to rank %d: %w (last attempt: %w)", peer, context.Cause(ctx), errors.Join(errs...))
		}
		pause = min(2*pause, most)
	}
}

// parted tells whether all ranks have agreed on the end.
func (n *Network) parted() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.agreed
}

func (n *Network) dial(ctx context.Context, addr string, peer int) (made, error) {
	conn, err := n.greet(ctx, addr, peer, protocol)
	if err != nil {
		return made{}, err
	}
	c := made{conn: conn, peer: peer}
	n.mu.Lock()
	n.dials++
	c.number = n.dials
	has := uint64(0)
	if l := n.links[peer]; l != nil {
		has = l.received // this does not change, since the link is down
	}
	n.mu.Unlock()
	f := &frame{typ: framePing, from: n.rank, to: peer, seq: has, payload: binary.BigEndian.AppendUint64(nil, c.number)}
	err = conn.WriteRecord(f.encode())
	if err == nil {
		err = conn.Flush()
	}
	if err == nil {
		f, err = n.firstFrame(conn)
	}
	if err == nil && f.typ != framePing {
		err = fmt.Errorf("first frame has type %d, want %d", f.typ, framePing)
	}
	if err != nil {
		n.abandon(conn, peer)
		return made{}, fmt.Errorf("%v closed the link before its first frame: %w", conn.RemoteAddr(), err)
	}
	c.has = f.seq
	return c, nil
}

// greet connects to an address of peer. Both ends prove who they are.
func (n *Network) greet(ctx context.Context, addr string, peer int, protocol [8]byte) (*handshake.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if n.cfg.wrap != nil {
		conn = n.cfg.wrap(conn)
	}
	return handshake.Client(ctx, conn, n.keys.hello(peer, protocol), n.keys.me, n.cards[peer].public)
}

// firstFrame waits for the other end's first frame, until the network ends or firstTimeout has passed.
func (n *Network) firstFrame(c *handshake.Conn) (*frame, error) {
	_ = c.SetReadDeadline(time.Now().Add(firstTimeout))
	stop := context.AfterFunc(n.ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	b, err := c.ReadRecord()
	if !stop() {
		return nil, ErrClosed
	}
	if err != nil {
		return nil, err
	}
	f, err := decodeFrame(b, n.size)
	if err != nil {
		return nil, err
	}
	return f, c.SetReadDeadline(time.Time{})
}

// abandon closes a connection that the other end may have in its link already. When this rank has closed its
// network, abandon tells the other end so.
func (n *Network) abandon(c *handshake.Conn, peer int) {
	n.mu.Lock()
	closed := n.closed
	n.mu.Unlock()
	f := &frame{typ: frameBye, flags: flagQuiet, from: n.rank, to: peer}
	if closed && c.WriteRecord(f.encode()) == nil {
		_ = c.Flush()
	}
	_ = c.Close()
}

// join attaches a connection that this rank has made to its link.
func (n *Network) join(c made) bool {
	n.mu.Lock()
	l, ok := n.attach(c.peer, c.conn, c.number, c.has)
	if ok {
		l.wire.poke()
	}
	n.mu.Unlock()
	if !ok {
		n.abandon(c.conn, c.peer)
	}
	return ok
}

// accepted takes a connection whose other end has proved who it is.
func (n *Network) accepted(conn *handshake.Conn, h handshake.Hello) {
	peer := int(h.From)
	if h.Protocol == bulkProtocol {
		n.connected(peer, conn)
		return
	}
	f, err := n.firstFrame(conn)
	if err == nil && h.Protocol == callProtocol {
		if f.typ == frameLink {
			n.called(peer, f.seq)
		}
		_ = conn.Close()
		return
	}
	if err != nil || f.typ != framePing || len(f.payload) != numberSize {
		_ = conn.Close()
		return
	}
	n.mu.Lock()
	l, ok := n.attach(peer, conn, binary.BigEndian.Uint64(f.payload), f.seq)
	if ok {
		l.wire.word()
	}
	n.mu.Unlock()
	if !ok {
		n.abandon(conn, peer)
	}
}

// called hears from a larger rank that a connection to this one has ended.
func (n *Network) called(peer int, number uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.links[peer]; l != nil && l.wire != nil && l.last == number {
		l.wire.cut()
	}
}

// call tells a smaller rank that this one has lost the connection of a link.
func (n *Network) call(ctx context.Context, addr string, l *link) error {
	conn, err := n.greet(ctx, addr, l.peer, callProtocol)
	if err != nil {
		return err
	}
	n.mu.Lock()
	f := &frame{typ: frameLink, from: n.rank, to: l.peer, seq: l.last}
	n.mu.Unlock()
	if err = conn.WriteRecord(f.encode()); err == nil {
		err = conn.Flush()
	}
	_ = conn.Close()
	return err
}

// remake makes a new connection for a link, unless the link or the network ends.
func (n *Network) remake(l *link, cause string) {
	defer n.wg.Done()
	up := errors.New("the link is up")
	state := func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		switch {
		case l.wire != nil:
			return up
		case n.over(l):
			return ErrClosed
		}
		return nil
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer context.AfterFunc(n.ctx, func() { cancel(ErrClosed) })()
	next := time.Now().Add(callAfter) // when a call may be of use
	err := n.insist(ctx, l.peer, true, func(ctx context.Context, way string) error {
		if err := state(); err != nil {
			cancel(err)
			return err
		}
		if n.rank > l.peer {
			if time.Now().After(next) {
				if err := n.call(ctx, way, l); err != nil {
					return err
				}
				next = time.Now().Add(callAgain)
			}
			return errors.New("it knows, and has not connected yet")
		}
		c, err := n.dial(ctx, way, l.peer)
		if err == nil && !n.join(c) {
			err = errors.New("the connection came too late")
		}
		return err
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err == nil, l.wire != nil: // the peer may have connected at this moment
	case errors.Is(err, errGone) && !n.agreed && !l.bye:
		n.lose(&LostError{Rank: l.peer, By: n.rank, Cause: cause + ", and " + errGone.Error()})
		n.drop(l)
	case errors.Is(err, errGone), errors.Is(err, ErrClosed):
		l.bye = true // all ranks have agreed to end, or the peer has said goodbye
		n.drop(l)
	default: // the peer has no address here, or ctx has ended: this rank can only wait for it
	}
}

// buildRing makes the links to both neighbours.
func (n *Network) buildRing(ctx context.Context) error {
	peers := ringPeers(n.rank, n.size)
	results := make(chan error, len(peers))
	for _, peer := range peers {
		n.mu.Lock()
		w := n.ringWant(ctx, peer)
		n.mu.Unlock()
		go func() {
			select {
			case <-w.done:
				results <- w.err
			case <-n.failed:
				results <- n.Err()
			case <-ctx.Done():
				results <- fmt.Errorf("rank %d did not connect: %w", peer, context.Cause(ctx))
			}
		}()
	}
	for range peers {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}

// ringWant is want for a link that the ring needs: nothing can be routed yet, and the link is tried for as
// long as ctx lasts. n.mu is held.
func (n *Network) ringWant(ctx context.Context, peer int) *want {
	w := n.wanted[peer]
	if w == nil {
		w = &want{done: make(chan struct{})}
		if n.links[peer] != nil {
			close(w.done)
			return w
		}
		n.wanted[peer] = w
	}
	if n.rank < peer {
		n.wg.Add(1)
		go func() {
			defer n.wg.Done()
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(n.ctx, cancel)()
			c, err := n.connect(ctx, peer)
			if err == nil {
				n.join(c)
				return
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			n.giveUp(peer, err)
		}()
	}
	return w
}
