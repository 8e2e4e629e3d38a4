// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

// Missing is a rank that cannot be reached now: the rank is paused, or the network to it is cut. Nothing is
// lost: messages to a missing rank arrive when it is back.
type Missing struct {
	Rank  int // who
	By    int // who noticed
	Since time.Time
	Cause string
}

func (m Missing) String() string {
	return fmt.Sprintf("rank %d cannot be reached (noticed by rank %d: %s)", m.Rank, m.By, m.Cause)
}

// pair is who misses whom.
type pair struct{ by, rank int }

// sight is the latest news of a pair. News spread by flooding and may overtake each other, so the news of a
// pair are numbered.
type sight struct {
	number  uint64
	missing bool
	since   time.Time
	cause   string
}

// Unreachable lists the ranks that cannot be reached now, each once, in order.
func (n *Network) Unreachable() []Missing {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unreachable()
}

func (n *Network) unreachable() []Missing {
	var all []Missing
	for p, s := range n.sights {
		if s.missing && n.lost[p.rank] == nil {
			all = append(all, Missing{Rank: p.rank, By: p.by, Since: s.since, Cause: s.cause})
		}
	}
	slices.SortFunc(all, func(a, b Missing) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), a.Since.Compare(b.Since), cmp.Compare(a.By, b.By))
	})
	return slices.CompactFunc(all, func(a, b Missing) bool { return a.Rank == b.Rank })
}

// OnReach arranges that f is called with the result of Unreachable whenever this has changed, one call after the
// other, on a goroutine of the network. f may be called twice with the same result.
func (n *Network) OnReach(f func([]Missing)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onReach = append(n.onReach, f)
	if len(n.sights) > 0 {
		n.tellReach()
	}
}

// tellReach starts the calls of the handlers of OnReach. n.mu is held.
func (n *Network) tellReach() {
	n.reachNews = true
	if n.reachTells {
		return
	}
	n.reachTells = true
	go func() {
		n.mu.Lock()
		for n.reachNews && !n.closed {
			n.reachNews = false
			now, calls := n.unreachable(), slices.Clone(n.onReach)
			n.mu.Unlock()
			for _, f := range calls {
				f(now)
			}
			n.mu.Lock()
		}
		n.reachTells = false
		n.mu.Unlock()
	}()
}

// miss says that this rank hears nothing of a peer, and found that it hears the peer again. n.mu is held.
func (n *Network) miss(peer int) {
	n.see(pair{n.rank, peer}, sight{missing: true,
		cause: fmt.Sprintf("nothing was heard of it for %v", n.cfg.Silence)})
}

func (n *Network) found(peer int) { n.see(pair{n.rank, peer}, sight{}) }

func (n *Network) see(p pair, s sight) {
	s.number = n.sights[p].number + 1
	n.learn(p, s)
}

// learn records news and passes them on, once. n.mu is held.
func (n *Network) learn(p pair, s sight) {
	if s.number <= n.sights[p].number || n.closed {
		return
	}
	if s.missing {
		s.since = time.Now()
	}
	n.sights[p] = s
	n.cfg.Log.Info("reach", "rank", p.rank, "by", p.by, "missing", s.missing, "cause", s.cause)
	f := n.sightFrame(p, s)
	for _, l := range n.links {
		l.send(f)
	}
	n.tellReach()
}

// news are the frames for a rank that gets a link to this rank. n.mu is held.
func (n *Network) news() []*frame {
	var all []*frame
	for p, s := range n.sights {
		all = append(all, n.sightFrame(p, s))
	}
	return all
}

func (n *Network) sightFrame(p pair, s sight) *frame {
	b := binary.BigEndian.AppendUint32(nil, uint32(p.rank))
	b = binary.BigEndian.AppendUint32(b, uint32(p.by))
	if s.missing {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	return &frame{typ: frameReach, from: n.rank, to: n.rank, seq: s.number, payload: append(b, clip(s.cause)...)}
}

func decodeSight(f *frame, ranks int) (pair, sight, error) {
	b := f.payload
	if len(b) < 9 || b[8] > 1 {
		return pair{}, sight{}, fmt.Errorf("news of a rank have %d bytes, want at least 9", len(b))
	}
	rank, by := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	if uint64(rank) >= uint64(ranks) || uint64(by) >= uint64(ranks) {
		return pair{}, sight{}, fmt.Errorf("rank %d misses rank %d of %d ranks", by, rank, ranks)
	}
	return pair{int(by), int(rank)}, sight{number: f.seq, missing: b[8] == 1, cause: string(b[9:])}, nil
}
