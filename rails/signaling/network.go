// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/libckpt/libckpt/internal/handshake"
)

// Network is one rank's end of the signaling network. All methods may be called concurrently.
type Network struct {
	cfg       Config
	rank      int
	size      int
	cards     []*card
	keys      *keyring
	guard     *handshake.Guard
	strangers *handshake.Strangers // with guard

	ctx    context.Context // ends with Close: for dials
	cancel context.CancelFunc
	wg     sync.WaitGroup // links, dials, watchdog

	mu         sync.Mutex
	links      map[int]*link
	wanted     map[int]*want // links that are being made
	noLink     map[int]bool  // ranks that cannot be reached directly: messages to them are routed
	asked      int           // shortcuts asked for because of traffic
	parked     []*frame      // frames that wait until the ring is closed
	out        map[streamID]*outStream
	in         map[streamID]*inStream
	queues     map[uint16]*queue
	span       span
	boxes      map[round]*box
	rounds     map[uint64]uint64 // number of collectives begun with a tag
	lost       map[int]*LostError
	onLost     []func(rank int, err error)
	dials      uint64 // how many connections this rank has tried to make: the number of the last
	sights     map[pair]sight
	onReach    []func([]Missing)
	reachNews  bool          // the handlers of onReach have not been told yet
	reachTells bool          // they are being told
	agreed     bool          // Shutdown: all ranks have agreed to end
	allBye     chan struct{} // replaced and closed whenever a link says bye or ends
	closed     bool
	err        error         // why the network failed
	failed     chan struct{} // closed when err is set
	closeOnce  sync.Once
	onConnect  func(from int, conn *Bulk)
	callers    []caller // until there is an onConnect
}

func newNetwork(cfg Config, rank, size int) *Network {
	n := &Network{
		cfg:    cfg,
		rank:   rank,
		size:   size,
		cards:  make([]*card, size),
		links:  make(map[int]*link),
		wanted: make(map[int]*want),
		noLink: make(map[int]bool),
		out:    make(map[streamID]*outStream),
		in:     make(map[streamID]*inStream),
		queues: make(map[uint16]*queue),
		boxes:  make(map[round]*box),
		rounds: make(map[uint64]uint64),
		lost:   make(map[int]*LostError),
		sights: make(map[pair]sight),
		allBye: make(chan struct{}),
		failed: make(chan struct{}),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// OneHost tells whether all ranks share this host.
func (n *Network) OneHost() bool {
	here := n.cards[n.rank].host
	return !slices.ContainsFunc(n.cards, func(c *card) bool { return c.host != here })
}

// listen starts to accept links, only on loopback when all ranks share this host.
func (n *Network) listen(loopback, outer net.Listener) {
	n.strangers = handshake.NewStrangers(n.cfg.Log, "signaling port")
	n.guard = &handshake.Guard{
		Me:       n.keys.me,
		KeyOf:    n.keys.of,
		Accepted: n.accepted,
		Rejected: n.strangers.Rejected,
	}
	elsewhere := !n.OneHost()
	if loopback != nil {
		if n.size > 1 {
			n.guard.Serve(loopback)
		} else {
			_ = loopback.Close()
		}
	}
	if outer != nil {
		if elsewhere || loopback == nil && n.size > 1 {
			n.guard.Serve(outer)
		} else {
			_ = outer.Close()
		}
	}
	n.wg.Add(2)
	go n.watch()
	go n.collect()
}

// Rank and Size are this rank's number and the number of ranks.
func (n *Network) Rank() int { return n.rank }
func (n *Network) Size() int { return n.size }

// Err is nil while the network works; after that it is a *LostError or ErrClosed.
func (n *Network) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// Failed is closed when the network stops working; Err says why.
func (n *Network) Failed() <-chan struct{} { return n.failed }

// OnLost arranges that f is called once for each rank that is lost, on a goroutine of its own. For a rank that
// is lost already, f is called at once. f may call Close.
func (n *Network) OnLost(f func(rank int, err error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onLost = append(n.onLost, f)
	for rank, err := range n.lost {
		go f(rank, err)
	}
}

// lose records that a rank is lost and tells all ranks. n.mu is held.
func (n *Network) lose(e *LostError) {
	if n.closed || n.lost[e.Rank] != nil {
		return
	}
	n.cfg.Log.Warn("a rank is lost", "rank", e.Rank, "by", e.By, "cause", e.Cause)
	n.lost[e.Rank] = e
	n.tellReach()
	n.fail(e)
	// Flooding: a rank that hears of a loss for the first time passes it on over all its links. Without the
	// lost ranks, the ring at worst falls into pieces, and each piece has an end that noticed by itself.
	f := &frame{typ: frameLost, from: n.rank, to: n.rank, payload: encodeLost(e)}
	for _, l := range n.links {
		l.send(f)
	}
	for _, call := range n.onLost {
		go call(e.Rank, e)
	}
}

// fail ends all calls that wait, with err. n.mu is held.
func (n *Network) fail(err error) {
	if n.err == nil {
		n.err = err
		close(n.failed)
	}
}

// dispatch handles a frame that arrived over l; an error is the peer's fault. n.mu is held.
func (n *Network) dispatch(l *link, f *frame) error {
	switch f.typ {
	case frameBye:
		l.bye = true
		if l.wire != nil {
			l.wire.word() // without this ping the peer might connect again
		}
		n.signalBye()
		if f.flags&flagQuiet == 0 {
			n.lose(&LostError{Rank: l.peer, By: n.rank, Cause: causeLeft})
		}
		return nil
	case frameLost:
		e, err := decodeLost(f.payload, n.size)
		if err != nil {
			return err
		}
		n.lose(e)
		return nil
	case frameReach:
		p, s, err := decodeSight(f, n.size)
		if err == nil {
			n.learn(p, s)
		}
		return err
	}
	if f.from == n.rank {
		return fmt.Errorf("a frame of this rank came back")
	}
	if f.to != n.rank {
		n.route(f)
		return nil
	}
	switch f.typ {
	case frameData:
		return n.arrive(f)
	case frameAck:
		return n.acknowledged(f)
	case frameLink:
		n.peerWants(f.from)
	case frameNoLink:
		n.giveUp(f.from, errors.New(string(f.payload)))
	}
	return nil
}

// route sends f towards its target. n.mu is held. route never blocks and never fails: while the ring is not
// closed yet, f waits for the ring; after a loss f is dropped, since the network has failed.
func (n *Network) route(f *frame) {
	if hop, ok := nextHop(n.rank, f.to, n.size, maps.Keys(n.links)); ok {
		n.links[hop].send(f)
		return
	}
	if n.err == nil {
		n.parked = append(n.parked, f)
	}
}

// signalBye wakes Shutdown. n.mu is held.
func (n *Network) signalBye() {
	close(n.allBye)
	n.allBye = make(chan struct{})
}

// Shutdown ends the network on all ranks together. It returns when all ranks have called it and none of their messages
// is under way any more. If Shutdown fails (a rank is lost, ctx is done), this rank's end is closed nevertheless.
func (n *Network) Shutdown(ctx context.Context) error {
	defer n.Close()
	if err := n.Barrier(ctx, tagShutdown); err != nil {
		return fmt.Errorf("shut down the signaling network: %w", err)
	}
	// The barrier's last messages run over direct links, each before the goodbye on its link. A rank
	// that waits for the goodbyes of all its links therefore leaves nobody waiting in the barrier.
	n.mu.Lock()
	n.agreed = true
	for _, l := range n.links {
		l.send(&frame{typ: frameBye, flags: flagQuiet, from: n.rank, to: l.peer})
	}
	for n.err == nil && slices.ContainsFunc(slices.Collect(maps.Values(n.links)), func(l *link) bool { return !l.bye }) {
		changed := n.allBye
		n.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-n.failed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("shut down the signaling network: wait for the other ranks to leave: %w", err)
		}
		n.mu.Lock()
	}
	err := n.err
	n.mu.Unlock()
	if err != nil {
		return fmt.Errorf("shut down the signaling network: %w", err)
	}
	return nil
}

// Close ends this rank's part at once. Unless the network failed before, or all ranks agreed on the end by
// Shutdown, the others see a loss; use Shutdown for an orderly end. All calls that wait return ErrClosed. A
// handler that is running may still run when Close returns; no other handler starts.
func (n *Network) Close() {
	n.closeOnce.Do(n.close)
}

func (n *Network) close() {
	n.mu.Lock()
	broken := n.err != nil
	n.closed = true
	n.fail(ErrClosed)
	for _, l := range n.links {
		if !n.agreed {
			f := &frame{typ: frameBye, from: n.rank, to: l.peer}
			if broken {
				f.flags = flagQuiet
			}
			l.send(f)
		}
		l.end()
	}
	n.mu.Unlock()
	n.cancel()
	if n.guard != nil {
		n.guard.Close()
		n.strangers.Close()
	}
	// Queued frames (a goodbye, the news of a loss) are still sent: each link ends when the peer has read
	// everything and has closed its side, too. A peer that does not read delays Close by flushTimeout at most.
	timer := time.AfterFunc(flushTimeout, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, l := range n.links {
			if l.wire != nil {
				l.wire.cut()
			}
		}
	})
	n.wg.Wait()
	timer.Stop()
}
