// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libckpt/libckpt/internal/handshake"
)

// link is a connection to a rank. Two goroutines serve it: one reads and dispatches, one writes what
// is queued.
type link struct {
	n    *Network
	peer int
	conn *handshake.Conn

	heard atomic.Bool // something arrived since the watchdog looked
	spoke atomic.Bool // something was written since the watchdog looked
	quiet int         // looks at which nothing had arrived; the watchdog's own

	bye bool // the peer said goodbye: its end is no loss; under Network.mu

	mu    sync.Mutex
	queue [][]byte
	last  bool          // write what is queued, then close
	wake  chan struct{} // one token: look at the queue
}

// send queues f; it never blocks.
func (l *link) send(f *frame) {
	l.mu.Lock()
	if !l.last {
		l.queue = append(l.queue, f.encode())
	}
	l.mu.Unlock()
	l.poke()
}

// finish has the link closed once everything queued is written and the peer has closed its side. (To
// close with unread bytes would have the kernel reset the connection and drop what the peer has not
// read yet.)
func (l *link) finish() {
	l.mu.Lock()
	l.last = true
	l.mu.Unlock()
	l.poke()
}

// cut closes the link at once; both goroutines end.
func (l *link) cut() {
	_ = l.conn.Close()
	l.finish()
}

func (l *link) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *link) write() {
	defer l.n.wg.Done()
	for range l.wake {
		l.mu.Lock()
		batch, last := l.queue, l.last
		l.queue = nil
		l.mu.Unlock()
		if err := l.writeAll(batch); err != nil {
			_ = l.conn.Close() // the reader sees it and reports it, after what had arrived before
			return
		}
		if last {
			_ = l.conn.CloseWrite()
			return
		}
	}
}

func (l *link) writeAll(batch [][]byte) error {
	for _, b := range batch {
		if err := l.conn.WriteRecord(b); err != nil {
			return err
		}
		l.spoke.Store(true)
	}
	return l.conn.Flush()
}

func (l *link) read() {
	defer l.n.wg.Done()
	for {
		err := l.readOne()
		if err != nil {
			l.n.ended(l, err)
			return
		}
	}
}

func (l *link) readOne() error {
	b, err := l.conn.ReadRecord()
	if err != nil {
		return err
	}
	l.heard.Store(true)
	f, err := decodeFrame(b, l.n.size)
	if err != nil {
		return err
	}
	return l.n.dispatch(l, f)
}

// newLink makes the connection a link, unless the network is closed or has one to that rank.
func (n *Network) newLink(peer int, conn *handshake.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.links[peer] != nil {
		go abandon(conn, n.rank, peer)
		return
	}
	l := &link{n: n, peer: peer, conn: conn, wake: make(chan struct{}, 1)}
	n.links[peer] = l
	n.wg.Add(2)
	go l.read()
	go l.write()
	l.send(&frame{typ: framePing, from: n.rank, to: peer}) // must be the first: see dial.go
	for _, e := range n.lost {
		l.send(&frame{typ: frameLost, from: n.rank, to: peer, payload: encodeLost(e)})
	}
	if n.agreed {
		l.send(&frame{typ: frameBye, flags: flagQuiet, from: n.rank, to: peer})
	}
	n.settle(peer)
	parked := n.parked
	n.parked = nil
	for _, f := range parked {
		n.route(f)
	}
	n.cfg.Log.Debug("link up", "peer", peer, "address", conn.RemoteAddr())
}

// ended takes the link out; unless the end was announced, the peer is lost.
func (n *Network) ended(l *link, err error) {
	l.cut()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.links[l.peer] == l {
		delete(n.links, l.peer)
	}
	n.signalBye()
	if l.bye {
		return
	}
	cause := err.Error()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		cause = "its connection was closed"
	}
	n.lose(&LostError{Rank: l.peer, By: n.rank, Cause: cause})
}

// watch looks at all links, several times in Config.Silence: it says something where nothing was said
// lately, and ends links that were silent at so many looks in a row. It counts looks rather than time:
// a process that was stopped for an hour wakes up to one look, not to an hour of silence.
func (n *Network) watch() {
	defer n.wg.Done()
	t := time.NewTicker(max(n.cfg.Silence/ticks, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-n.ctx.Done():
			return
		}
		n.mu.Lock()
		for _, l := range n.links {
			n.look(l)
		}
		n.mu.Unlock()
	}
}

// look is one look of the watchdog at one link. n.mu is held.
func (n *Network) look(l *link) {
	if !l.spoke.Swap(false) {
		l.send(&frame{typ: framePing, from: n.rank, to: l.peer})
	}
	if l.heard.Swap(false) {
		l.quiet = 0
		return
	}
	if l.quiet++; l.quiet > ticks {
		n.lose(&LostError{Rank: l.peer, By: n.rank, Cause: fmt.Sprintf("nothing was heard of it for %v", n.cfg.Silence)})
		l.cut()
	}
}
