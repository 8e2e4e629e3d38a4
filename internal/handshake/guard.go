// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Guard accepts connections and hands on those that prove to belong here. Strangers cost at most
// Pending descriptors and goroutines, some ten thousand bytes and Patience seconds each; one who knows the
// number of the job, which is no secret, also has the server prove itself, 0.2 ms of a processor each time.
//
// When Pending connections are in their handshake and one more arrives, one of those is closed, picked by
// chance (Go's order of a map). So silent connections cannot keep others out. A client that belongs here and
// had bad luck gets in when it tries again; clients are expected to do so.
type Guard struct {
	// Me and KeyOf are those of Server.
	Me    *Identity
	KeyOf KeyOf
	// Accepted gets each connection that passed, on a goroutine of its own, and owns it. Close waits
	// until all calls have returned, so a long conversation is better continued elsewhere.
	Accepted func(*Conn, Hello)
	// Rejected, when not nil, is told of each connection that did not pass. It must not block.
	Rejected func(error)
	// Pending is how many connections may be in their handshake at once; 0 means 64.
	Pending int
	// Patience is how long one handshake may take; 0 means 10 seconds.
	Patience time.Duration

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
	pending   map[net.Conn]struct{}
	wg        sync.WaitGroup
}

// errEvicted explains to Rejected why a connection that did nothing wrong was closed.
var errEvicted = errors.New("too many connections in their handshake")

// Serve accepts connections from ln until ln or the guard is closed. It returns at once; several
// listeners share the limits of one guard. The guard owns ln from now on.
func (g *Guard) Serve(ln net.Listener) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_ = ln.Close()
		return
	}
	if g.listeners == nil {
		g.listeners = make(map[net.Listener]struct{})
		g.pending = make(map[net.Conn]struct{})
	}
	g.listeners[ln] = struct{}{}
	g.wg.Add(1)
	go g.accept(ln)
}

func (g *Guard) accept(ln net.Listener) {
	defer g.wg.Done()
	pause := time.Duration(0)
	for {
		conn, err := ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors, or a connection that was gone before it was accepted: neither is a
			// reason to stop listening, but the first must not become a busy loop.
			g.reject(err)
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			time.Sleep(pause)
			continue
		}
		pause = 0
		g.admit(conn)
	}
}

// admit starts the handshake of conn, at the expense of another when there are too many.
func (g *Guard) admit(conn net.Conn) {
	limit := g.Pending
	if limit <= 0 {
		limit = 64
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_ = conn.Close()
		return
	}
	for victim := range g.pending {
		if len(g.pending) < limit {
			break
		}
		delete(g.pending, victim)
		_ = victim.Close()
		g.reject(errEvicted)
	}
	g.pending[conn] = struct{}{}
	g.wg.Add(1)
	go g.greet(conn)
}

func (g *Guard) greet(conn net.Conn) {
	defer g.wg.Done()
	patience := g.Patience
	if patience <= 0 {
		patience = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, hello, err := serve(ctx, conn, g.Me, g.KeyOf, func() bool { return g.leave(conn) })
	switch {
	case err == nil:
		g.Accepted(c, hello)
	case g.leave(conn): // else it was evicted, and that was told
		g.reject(err)
	}
}

// leave takes conn out of those that are in their handshake. It returns false when another had to
// make room for it meanwhile, or the guard is closed: then conn is closed already.
func (g *Guard) leave(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, in := g.pending[conn]
	delete(g.pending, conn)
	return in && !g.closed
}

func (g *Guard) reject(err error) {
	if g.Rejected != nil {
		g.Rejected(err)
	}
}

// Retire closes one listener and goes on with the others.
func (g *Guard) Retire(ln net.Listener) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.listeners, ln)
	_ = ln.Close()
}

// Close closes the listeners and all connections that are in their handshake, and returns when no
// goroutine of the guard is left.
func (g *Guard) Close() {
	g.mu.Lock()
	g.closed = true
	for ln := range g.listeners {
		_ = ln.Close()
	}
	for conn := range g.pending {
		_ = conn.Close()
	}
	g.mu.Unlock()
	g.wg.Wait()
}
