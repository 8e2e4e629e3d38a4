// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"log/slog"
	"net"
	"net/netip"
	"time"
)

// Config holds the choices of an endpoint. The zero value is right for most jobs.
type Config struct {
	// Advertise are the addresses at which other hosts should try this rank, in order. Empty: the addresses
	// of all interfaces that are up. At most nine fit in a card.
	Advertise []netip.Addr
	// LoopbackOnly makes the endpoint listen only on loopback, for jobs on one host.
	LoopbackOnly bool
	// Silence is how long a peer may send nothing before it counts as missing; 0 means 60 seconds. The end
	// of a connection is noticed at once, whatever Silence is.
	Silence time.Duration
	// JoinTimeout bounds Join when its context has no deadline of its own; 0 means 60 seconds.
	JoinTimeout time.Duration
	// MaxMessage is the largest payload of a message in bytes; 0 means 1 GiB. It must be the same on
	// all ranks.
	MaxMessage int
	// Log gets what an operator may want to know (strangers, links, losses). Nil: nothing is logged.
	Log *slog.Logger

	wrap func(net.Conn) net.Conn // tests: around connections that this rank makes
}

func (c Config) withDefaults() Config {
	if c.Silence <= 0 {
		c.Silence = 60 * time.Second
	}
	if c.JoinTimeout <= 0 {
		c.JoinTimeout = 60 * time.Second
	}
	if c.MaxMessage <= 0 {
		c.MaxMessage = 1 << 30
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

const (
	chunk       = 32 << 10 // bytes of a message in one frame
	window      = 64       // frames of one stream that may be under way
	shortcutAt  = 8        // frames to one rank over others, after which a shortcut is worth its descriptor
	shortcuts   = 32       // links beyond ring and tree that a rank asks for itself
	ticks       = 8        // how often a link is looked at in Config.Silence
	dialTimeout = 3 * time.Second
	// callAfter is how long the larger rank waits for the smaller one to notice that their connection has
	// ended. callAgain is how long a rank that was called has to make another connection.
	callAfter = 20 * time.Millisecond
	callAgain = time.Second
	// firstTimeout is how long the two ends of a new connection wait for each other's first frame.
	firstTimeout = 10 * time.Second
	// refusedFor is how long all addresses of a rank must refuse connections before its process counts as
	// ended. A host that drops connections, or does not answer, does not refuse them.
	refusedFor = 2 * time.Second
	// shortcutTimeout is how long a rank tries to reach another directly before it uses routing.
	shortcutTimeout = 15 * time.Second
	// flushTimeout is how long Close waits for frames that are queued.
	flushTimeout = 2 * time.Second
)
