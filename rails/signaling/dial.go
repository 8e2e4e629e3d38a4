// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/libckpt/libckpt/internal/handshake"
)

// Links are always made by the smaller of the two ranks, so that two that want each other at the same
// time do not make two. The larger asks for it over the ring.
//
// An attempt that is given up halfway must not look like the loss of a rank, on either side:
//
//	smaller                         larger
//	   handshake          ◄──────►
//	   ping               ──────►   the link counts
//	   the link counts    ◄──────   ping
//
// The end of the connection before the other's ping is a failed attempt. After its own ping the smaller
// rank gives up only when its network ends, or the larger is silent for too long, and says bye first.

// want is a link that somebody waits for.
type want struct {
	done chan struct{} // closed when the link is up, or will not be
	err  error         // why it will not be; valid after done
}

// want asks for a link to peer. n.mu is held. The caller has checked that there is none.
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

// makeShortcut connects to peer or tells it that this cannot be done.
func (n *Network) makeShortcut(peer int) {
	defer n.wg.Done()
	ctx, cancel := context.WithTimeout(n.ctx, shortcutTimeout)
	defer cancel()
	conn, err := n.connect(ctx, peer)
	if err == nil {
		n.newLink(peer, conn)
		return
	}
	n.cfg.Log.Info("no direct link; messages take the ring", "peer", peer, "error", err)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.giveUp(peer, err)
	n.route(&frame{typ: frameNoLink, from: n.rank, to: peer, payload: []byte(clip(err.Error()))})
}

// connect tries all addresses of peer, again and again, until one works or ctx is done.
func (n *Network) connect(ctx context.Context, peer int) (*handshake.Conn, error) {
	key, err := n.keys.with(peer)
	if err != nil {
		return nil, err
	}
	ways := n.cards[peer].ways(n.cards[n.rank].host)
	if len(ways) == 0 {
		return nil, fmt.Errorf("rank %d is on another host and has no address there that could be tried", peer)
	}
	pause := 5 * time.Millisecond
	for {
		var errs []error
		for _, way := range ways {
			conn, err := n.dial(ctx, way.String(), peer, key)
			if err == nil {
				return conn, nil
			}
			errs = append(errs, err)
		}
		// Jitter, so that ranks that were refused together do not come back together.
		select {
		case <-time.After(pause + rand.N(pause)):
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to rank %d: %w (last attempt: %w)", peer, context.Cause(ctx), errors.Join(errs...))
		}
		pause = min(2*pause, 500*time.Millisecond)
	}
}

func (n *Network) dial(ctx context.Context, addr string, peer int, key []byte) (*handshake.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c, err := handshake.Client(ctx, conn, n.keys.hello(peer), key)
	if err != nil {
		return nil, err
	}
	err = c.WriteRecord((&frame{typ: framePing, from: n.rank, to: peer}).encode())
	if err == nil {
		err = c.Flush()
	}
	if err == nil {
		err = n.firstFrame(c)
	}
	if err != nil {
		abandon(c, n.rank, peer)
		return nil, fmt.Errorf("%v closed the link before its first frame: %w", conn.RemoteAddr(), err)
	}
	return c, nil
}

// firstFrame waits for the other end's ping, until the network ends or patience does.
func (n *Network) firstFrame(c *handshake.Conn) error {
	_ = c.SetReadDeadline(time.Now().Add(n.cfg.Silence))
	stop := context.AfterFunc(n.ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	b, err := c.ReadRecord()
	if !stop() {
		return ErrClosed
	}
	if err != nil {
		return err
	}
	f, err := decodeFrame(b, n.size)
	if err != nil {
		return err
	}
	if f.typ != framePing {
		return fmt.Errorf("first frame has type %d, want %d", f.typ, framePing)
	}
	return c.SetReadDeadline(time.Time{})
}

// abandon closes a connection that the other end may take for a link already.
func abandon(c *handshake.Conn, self, peer int) {
	f := &frame{typ: frameBye, flags: flagQuiet, from: self, to: peer}
	if c.WriteRecord(f.encode()) == nil {
		_ = c.Flush()
	}
	_ = c.Close()
}

// accepted gets a connection whose other end has proved who it is.
func (n *Network) accepted(conn *handshake.Conn, h handshake.Hello) {
	if err := n.firstFrame(conn); err != nil {
		_ = conn.Close()
		return
	}
	n.newLink(int(h.From), conn)
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

// ringWant is want for a link that the ring cannot do without: nothing can be routed yet, and it is
// tried for as long as ctx lasts. n.mu is held.
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
			conn, err := n.connect(ctx, peer)
			if err == nil {
				n.newLink(peer, conn)
				return
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			n.giveUp(peer, err)
		}()
	}
	return w
}
