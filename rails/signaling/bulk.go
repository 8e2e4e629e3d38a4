// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"context"
	"errors"
	"fmt"

	"github.com/libckpt/libckpt/internal/handshake"
)

// A connection of its own, beside the links, is for bytes that must not delay messages. It is the caller's: the network
// does not look at what it carries, does not make it again when it ends, and cuts it when the network fails or is
// closed. Any rank connects to any other; there is no way over others.

// bulkProtocol names such connections.
var bulkProtocol = [8]byte{'c', 'k', 'p', 't', 'b', 'l', 'k', '1'}

// maxCallers bounds connections that wait for OnConnect.
const maxCallers = 256

// caller is a connection that another rank has made.
type caller struct {
	from int
	conn *Bulk
}

// Connect makes a connection to another rank, which gets it by OnConnect.
func (n *Network) Connect(ctx context.Context, peer int) (*Bulk, error) {
	if peer < 0 || peer >= n.size || peer == n.rank {
		return nil, fmt.Errorf("connect to rank %d: there are ranks 0 to %d, and this is rank %d", peer, n.size-1, n.rank)
	}
	if err := n.Err(); err != nil {
		return nil, fmt.Errorf("connect to rank %d: %w", peer, err)
	}
	var errs []error
	for _, way := range n.cards[peer].ways(n.cards[n.rank].host) {
		conn, err := n.greet(ctx, way.String(), peer, bulkProtocol)
		if err == nil {
			return n.lend(conn), nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("connect to rank %d: %w", peer, errors.Join(append(errs, n.Err())...))
}

// Bulk is a connection between two ranks. Close it.
type Bulk struct {
	*handshake.Conn
	end context.CancelFunc
}

// Close closes the connection.
func (b *Bulk) Close() error {
	b.end()
	return b.Conn.Close()
}

// lend cuts a connection when the network ends.
func (n *Network) lend(conn *handshake.Conn) *Bulk {
	ctx, end := context.WithCancel(n.ctx)
	go func() {
		select {
		case <-n.failed:
			_ = conn.Close()
		case <-ctx.Done():
			if n.ctx.Err() != nil {
				_ = conn.Close()
			}
		}
	}()
	return &Bulk{conn, end}
}

// OnConnect arranges that f is called, on a goroutine of its own, with each connection that other ranks make to this
// one by Connect, earlier ones too. f owns the connection. It is called once.
func (n *Network) OnConnect(f func(from int, conn *Bulk)) {
	n.mu.Lock()
	n.onConnect = f
	early := n.callers
	n.callers = nil
	n.mu.Unlock()
	for _, c := range early {
		go f(c.from, c.conn)
	}
}

// connected takes a connection that another rank has made.
func (n *Network) connected(from int, conn *handshake.Conn) {
	n.mu.Lock()
	f := n.onConnect
	if n.closed || f == nil && len(n.callers) >= maxCallers {
		n.mu.Unlock()
		_ = conn.Close()
		return
	}
	lent := n.lend(conn)
	if f == nil {
		n.callers = append(n.callers, caller{from, lent})
	}
	n.mu.Unlock()
	if f != nil {
		go f(from, lent)
	}
}
