// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/libckpt/libckpt/internal/handshake"
	"github.com/libckpt/libckpt/internal/hostaddr"
)

// Endpoint is one rank before it knows the others: the rank listens, but accepts nothing yet.
type Endpoint struct {
	cfg      Config
	me       *handshake.Identity
	card     card
	encoded  []byte
	loopback net.Listener // nil when there is none
	outer    net.Listener // nil when there is none

	mu   sync.Mutex
	done bool // Join or Close took the listeners
}

// Listen opens the sockets at which the other ranks will find this one. The caller gives Card to all
// ranks and then calls Join, or Close to give up.
func Listen(cfg Config) (*Endpoint, error) {
	e := &Endpoint{cfg: cfg.withDefaults()}
	var err error
	if e.me, err = handshake.NewIdentity(); err != nil {
		return nil, fmt.Errorf("signaling network: make a key: %w", err)
	}
	e.card.public = e.me.Public()
	_, _ = rand.Read(e.card.nonce[:])
	if e.card.host, err = hostaddr.Here(); err != nil {
		return nil, fmt.Errorf("signaling network: %w", err)
	}
	var loopErr, outerErr error
	if e.loopback, loopErr = hostaddr.ListenLoopback(); loopErr == nil {
		e.card.loopback = hostaddr.Of(e.loopback)
	}
	if !cfg.LoopbackOnly {
		outerErr = e.listenOuter()
	}
	if e.loopback == nil && e.outer == nil {
		err := loopErr
		if outerErr != nil {
			err = fmt.Errorf("%w; %w", loopErr, outerErr)
		}
		return nil, fmt.Errorf("signaling network: %w", err)
	}
	if outerErr != nil {
		e.cfg.Log.Warn("ranks on other hosts cannot reach this one", "error", outerErr)
	}
	e.encoded = e.card.encode()
	return e, nil
}

func (e *Endpoint) listenOuter() error {
	addrs := e.cfg.Advertise
	if len(addrs) == 0 {
		var err error
		if addrs, err = hostaddr.Published(); err != nil {
			return err
		}
	}
	if len(addrs) == 0 {
		return nil // a machine without a network: its ranks still reach each other
	}
	ln, err := hostaddr.ListenAll()
	if err != nil {
		return err
	}
	e.outer = ln
	e.card.addrs = addrs[:min(len(addrs), maxAddresses)]
	e.card.port = hostaddr.Of(ln).Port()
	return nil
}

// Card is what the other ranks need to know of this one, in CardSize bytes. A card holds no secret, but whoever
// can replace a card on its way can take this rank's place (see Trust in the package's documentation).
func (e *Endpoint) Card() []byte { return bytes.Clone(e.encoded) }

// Addr is an address at which a process of this host can connect; for logs.
func (e *Endpoint) Addr() netip.AddrPort { return e.card.loopback }

// Close gives up an endpoint that was not joined. After Join it does nothing.
func (e *Endpoint) Close() {
	if !e.take() {
		return
	}
	for _, ln := range []net.Listener{e.loopback, e.outer} {
		if ln != nil {
			_ = ln.Close()
		}
	}
}

// take says whether the caller may have the listeners, which only the first caller may.
func (e *Endpoint) take() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := !e.done
	e.done = true
	return first
}

// Join builds the network. cards holds the cards of all ranks in rank order, this one's at rank; every
// rank must pass the same cards. Join returns when the links to both neighbours on the ring are up. On
// failure the endpoint is closed. Join may be called once.
func (e *Endpoint) Join(ctx context.Context, rank int, cards [][]byte) (*Network, error) {
	n, err := e.network(rank, cards)
	if err != nil {
		e.Close()
		return nil, fmt.Errorf("join the signaling network: %w", err)
	}
	if !e.take() {
		return nil, fmt.Errorf("join the signaling network: the endpoint was joined or closed before")
	}
	n.listen(e.loopback, e.outer)
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.cfg.JoinTimeout)
		defer cancel()
	}
	if err := n.buildRing(ctx); err != nil {
		n.Close()
		return nil, fmt.Errorf("join the signaling network as rank %d of %d: %w", rank, n.size, err)
	}
	return n, nil
}

// network checks the cards and makes the Network, without touching a socket.
func (e *Endpoint) network(rank int, cards [][]byte) (*Network, error) {
	if rank < 0 || rank >= len(cards) {
		return nil, fmt.Errorf("rank %d of %d cards", rank, len(cards))
	}
	if !bytes.Equal(cards[rank], e.encoded) {
		return nil, fmt.Errorf("card %d is not the one of this rank: the cards were gathered in a wrong order or changed", rank)
	}
	digest := sha256.New()
	seen := make(map[handshake.PublicKey]int, len(cards))
	n := newNetwork(e.cfg, rank, len(cards))
	for r, b := range cards {
		c, err := decodeCard(b)
		if err != nil {
			return nil, fmt.Errorf("card of rank %d: %w", r, err)
		}
		if other, twice := seen[c.public]; twice {
			return nil, fmt.Errorf("ranks %d and %d have the same card", other, r)
		}
		seen[c.public] = r
		n.cards[r] = c
		digest.Write(b)
	}
	n.keys = &keyring{me: e.me, cards: n.cards, self: rank, job: [16]byte(digest.Sum(nil)[:16])}
	return n, nil
}

var (
	protocol     = [8]byte{'c', 'k', 'p', 't', 's', 'i', 'g', '3'} // links, made by the smaller rank
	callProtocol = [8]byte{'c', 'k', 'p', 't', 'c', 'a', 'l', '2'} // calls, made by the larger
)

// keyring is this rank's own key, and the cards with the keys of all ranks.
type keyring struct {
	me    *handshake.Identity
	cards []*card
	self  int
	job   [16]byte // of the digest of all cards: ranks that were given other cards are of another job
}

// hello is how this rank introduces itself to peer.
func (k *keyring) hello(peer int, protocol [8]byte) handshake.Hello {
	return handshake.Hello{Protocol: protocol, Job: k.job, From: uint32(k.self), To: uint32(peer)}
}

// of returns the key that the sender of a hello must prove to have. Nothing is proved yet when of is called.
func (k *keyring) of(h handshake.Hello) (handshake.PublicKey, error) {
	var none handshake.PublicKey
	switch {
	case h.Protocol != protocol && h.Protocol != callProtocol && h.Protocol != bulkProtocol:
		return none, fmt.Errorf("it speaks %q, not %q", h.Protocol[:], protocol[:])
	case h.Job != k.job:
		return none, fmt.Errorf("it belongs to another job")
	case uint64(h.To) != uint64(k.self):
		return none, fmt.Errorf("it looks for rank %d, this is rank %d", h.To, k.self)
	case h.Protocol == bulkProtocol && (uint64(h.From) == uint64(k.self) || uint64(h.From) >= uint64(len(k.cards))):
		return none, fmt.Errorf("it says it is rank %d, this is rank %d of %d", h.From, k.self, len(k.cards))
	case h.Protocol == callProtocol && (uint64(h.From) <= uint64(k.self) || uint64(h.From) >= uint64(len(k.cards))):
		return none, fmt.Errorf("it says it is rank %d, which does not call rank %d: the larger rank calls", h.From, k.self)
	case h.Protocol == protocol && uint64(h.From) >= uint64(k.self):
		return none, fmt.Errorf("it says it is rank %d, which never connects to rank %d: the smaller rank connects", h.From, k.self)
	}
	return k.cards[h.From].public, nil
}
