// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/libckpt/libckpt/internal/fault"
	"github.com/libckpt/libckpt/internal/handshake"
)

// A link is a pipe of frames to a rank. Connections come and go under it:
//
//	          attach                      the connection ends, or is silent
//	(made) ------------> [up] --------------------------------------------> [down]
//	                       ^                                                  |
//	                       +--------------------------------------------------+
//	                         attach: a new connection, or one that replaces the old
//
//	[down]  the smaller rank dials, again and again; the larger waits, and calls the smaller (dial.go)
//	        frames are queued. The link ends when both have said goodbye, or the peer is lost for good
//
// Frames arrive once and in order whatever happens to connections, because both ends count them. The first
// frame on a connection, a ping, says how many have arrived. The other end forgets these and sends the rest,
// again if it has sent them before. Pings themselves are not counted.
type link struct {
	n    *Network
	peer int

	// Under Network.mu.
	wire     *wire  // nil: down
	last     uint64 // number of the newest connection, given by the smaller rank
	received uint64 // frames of the peer that were dispatched
	told     uint64 // of these, how many the peer was told of
	bye      bool   // the peer said goodbye, so its end is not a loss
	quiet    int    // for the watchdog: looks in a row at which nothing had arrived
	missing  bool   // this rank has said that the peer cannot be reached

	mu     sync.Mutex
	queue  [][]byte // frames that the peer is not known to have; the first is number acked
	acked  uint64
	finish bool // nothing is queued any more
}

// tellEvery is the number of frames after which the receiver says that they have arrived.
const tellEvery = 64

// send queues f; it never blocks.
func (l *link) send(f *frame) {
	l.mu.Lock()
	if !l.finish {
		l.queue = append(l.queue, f.encode())
	}
	l.mu.Unlock()
	if l.wire != nil {
		l.wire.poke()
	}
}

// end closes the link once everything queued is written and the peer has closed its side. (If a connection
// with unread bytes is closed, the kernel resets it and drops what the peer has not read yet.) n.mu is held.
func (l *link) end() {
	l.mu.Lock()
	l.finish = true
	l.mu.Unlock()
	if l.wire != nil {
		l.wire.poke()
	}
}

// arrived forgets the frames that the peer has: the first count of all.
func (l *link) arrived(count uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if count < l.acked {
		return nil // an older ping
	}
	if count-l.acked > uint64(len(l.queue)) {
		return errors.New("it says that it has frames which were not sent")
	}
	clear(l.queue[:count-l.acked])
	l.queue = l.queue[count-l.acked:]
	l.acked = count
	return nil
}

// unwritten returns the frames from number next on, and whether none will follow.
func (l *link) unwritten(next uint64) ([][]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = max(next, l.acked)
	return append([][]byte(nil), l.queue[next-l.acked:]...), l.finish
}

// wire is one connection of a link. Two goroutines serve it: one reads and dispatches, one writes what is
// queued.
type wire struct {
	l     *link
	conn  *handshake.Conn
	wake  chan struct{} // one token: look at the queue
	heard bool          // something arrived since the watchdog looked; under Network.mu
	spoke bool          // no ping is due before the next look; under Network.mu
	words chan []byte   // a ping that is to be written; a newer ping replaces it
	gone  chan struct{} // closed by cut
	once  sync.Once
}

func (w *wire) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// word queues a ping that says what has arrived. n.mu is held.
func (w *wire) word() {
	l := w.l
	l.told, w.spoke = l.received, true
	b := (&frame{typ: framePing, from: l.n.rank, to: l.peer, seq: l.received}).encode()
	select {
	case <-w.words:
	default:
	}
	w.words <- b
	w.poke()
}

// cut closes the connection at once; both goroutines end.
func (w *wire) cut() {
	_ = w.conn.Close()
	w.once.Do(func() { close(w.gone) })
}

// write writes the frames from number next on.
func (w *wire) write(next uint64) {
	defer w.l.n.wg.Done()
	for {
		select {
		case <-w.wake:
		case <-w.gone:
			return
		}
		batch, last := w.l.unwritten(next)
		next += uint64(len(batch))
		select {
		case b := <-w.words:
			batch = append([][]byte{b}, batch...)
		default:
		}
		if err := w.writeAll(batch); err != nil {
			_ = w.conn.Close() // the reader reads what has arrived, then sees the end and reports it
			return
		}
		if last {
			_ = w.conn.CloseWrite()
			return
		}
	}
}

func (w *wire) writeAll(batch [][]byte) error {
	for _, b := range batch {
		if err := w.conn.WriteRecord(b); err != nil {
			return err
		}
	}
	return w.conn.Flush()
}

func (w *wire) read() {
	defer w.l.n.wg.Done()
	for {
		b, err := w.record()
		if err != nil {
			w.l.n.ended(w, err)
			return
		}
		if err := w.l.n.take(w, b); err != nil {
			w.l.n.nonsense(w, err)
			return
		}
	}
}

// record reads the next frame.
func (w *wire) record() ([]byte, error) {
	b, err := w.conn.ReadRecord()
	if err == nil {
		err = fault.Point("signaling.read") // a connection that breaks before the frame counts
	}
	return b, err
}

func causeOf(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "its connection was closed"
	}
	return err.Error()
}

// take handles a record that arrived over w. An error is the peer's fault: the record breaks the protocol.
func (n *Network) take(w *wire, b []byte) error {
	f, err := decodeFrame(b, n.size)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l := w.l
	if l.wire != w {
		return nil // another connection has replaced this one, and the frame comes again there
	}
	n.hear(w)
	if f.typ == framePing {
		return l.arrived(f.seq)
	}
	if l.received++; l.received-l.told >= tellEvery {
		w.word()
	}
	return n.dispatch(l, f)
}

// attach gives a link a connection, whose number the smaller rank has chosen. It is known how many of this
// rank's frames the peer has; this rank's first ping was sent or is still to be sent. attach returns false
// when the connection is of no use. n.mu is held.
func (n *Network) attach(peer int, conn *handshake.Conn, number, has uint64) (*link, bool) {
	l := n.links[peer]
	if n.closed || l != nil && (number <= l.last || l.arrived(has) != nil) || l == nil && has != 0 {
		return nil, false
	}
	if l == nil {
		l = n.newLink(peer)
	}
	old := l.wire
	w := &wire{l: l, conn: conn, wake: make(chan struct{}, 1), words: make(chan []byte, 1), gone: make(chan struct{})}
	l.wire, l.last = w, number
	if old != nil {
		old.cut()
	}
	n.hear(w)
	n.wg.Add(2)
	go w.read()
	go w.write(has)
	n.settle(peer)
	n.cfg.Log.Debug("link up", "peer", peer, "address", conn.RemoteAddr())
	return l, true
}

// newLink makes a link on which nothing was sent yet. n.mu is held.
func (n *Network) newLink(peer int) *link {
	l := &link{n: n, peer: peer}
	n.links[peer] = l
	for _, e := range n.lost {
		l.send(&frame{typ: frameLost, from: n.rank, to: peer, payload: encodeLost(e)})
	}
	for _, f := range n.news() {
		l.send(f)
	}
	if n.agreed {
		l.send(&frame{typ: frameBye, flags: flagQuiet, from: n.rank, to: peer})
	}
	parked := n.parked
	n.parked = nil
	for _, f := range parked {
		n.route(f)
	}
	return l
}

// ended removes a connection from its link. Unless the link has ended, another connection is made.
func (n *Network) ended(w *wire, err error) {
	w.cut()
	n.mu.Lock()
	defer n.mu.Unlock()
	l := w.l
	if l.wire != w {
		return
	}
	l.wire = nil
	if n.over(l) {
		n.drop(l)
		return
	}
	n.cfg.Log.Info("a link is down", "peer", l.peer, "cause", causeOf(err))
	n.wg.Add(1)
	go n.remake(l, causeOf(err))
}

// over tells whether a link needs no other connection. When the peer has said goodbye, the link still needs a
// connection until the peer has this rank's goodbye. Otherwise the peer might wait for this goodbye while this
// rank waits, in a circle, for others that wait. n.mu is held.
func (n *Network) over(l *link) bool {
	return n.links[l.peer] != l || n.closed || n.lost[l.peer] != nil || l.bye && n.agreed && l.delivered()
}

// delivered tells whether the peer is known to have all frames.
func (l *link) delivered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue) == 0
}

// drop removes a link that is down. n.mu is held.
func (n *Network) drop(l *link) {
	if n.links[l.peer] == l {
		delete(n.links, l.peer)
	}
	n.signalBye()
}

// nonsense ends the network for a peer that breaks the protocol: a new connection would not help.
func (n *Network) nonsense(w *wire, err error) {
	n.mu.Lock()
	n.lose(&LostError{Rank: w.l.peer, By: n.rank, Cause: err.Error()})
	n.mu.Unlock()
	n.ended(w, err)
}

// hear notes a sign of life. n.mu is held.
func (n *Network) hear(w *wire) {
	w.heard = true
	if w.l.missing {
		w.l.missing = false
		n.found(w.l.peer)
	}
}

// watch looks at all links, several times in Config.Silence. It sends a ping where nothing was sent since the
// last look, and closes connections that were silent at that many looks in a row. It counts looks, not
// time: for a process that was stopped for an hour, this hour is one look.
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
	w := l.wire
	if w != nil {
		if !w.spoke {
			w.word()
		}
		w.spoke = false
		if w.heard {
			w.heard, l.quiet = false, 0
			return
		}
	}
	if l.quiet++; l.quiet <= ticks || l.bye {
		return
	}
	l.quiet = 0
	if !l.missing {
		l.missing = true
		n.miss(l.peer)
	}
	if w != nil {
		w.cut() // the connection may be half open; a peer that was only paused takes a new one
	}
}
