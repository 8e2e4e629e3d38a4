// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"bytes"
	"crypto/sha256"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	compareCards = []cmp.Option{cmp.AllowUnexported(card{}), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})}
	fullCard     = card{
		host: [16]byte{1}, public: [32]byte{2}, nonce: [16]byte{3},
		loopback: netip.MustParseAddrPort("127.0.0.1:77"), port: 78,
		addrs: []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("2001:db8::1")},
	}
)

func TestCardRoundTrip(t *testing.T) {
	many := fullCard
	many.addrs = slices.Repeat(fullCard.addrs[:1], maxAddresses)
	for _, want := range []card{{}, fullCard, many} {
		got, err := decodeCard(want.encode())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(&want, got, compareCards...); d != "" {
			t.Error(d)
		}
	}
}

func TestEveryDamagedByteOfACardIsNoticed(t *testing.T) {
	good := fullCard.encode()
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if _, err := decodeCard(bad); err == nil {
			t.Errorf("byte %d: not noticed", i)
		}
	}
	if _, err := decodeCard(good[:CardSize-1]); err == nil {
		t.Error("a short card is taken")
	}
}

func TestWays(t *testing.T) {
	want := []string{"127.0.0.1:77", "10.1.2.3:78", "[2001:db8::1]:78"}
	var got []string
	for _, w := range fullCard.ways([16]byte{1}) {
		got = append(got, w.String())
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("same host: %s", d)
	}
	if got := fullCard.ways([16]byte{9}); len(got) != 2 || got[0].String() != want[1] {
		t.Errorf("other host: %v", got)
	}
}

func FuzzDecodeCard(f *testing.F) {
	f.Add(fullCard.encode()[:cardSum])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == cardSum { // sealed, so that the fuzzer gets past the digest
			sum := sha256.Sum256(b)
			b = append(bytes.Clone(b), sum[:CardSize-cardSum]...)
		}
		c, err := decodeCard(b)
		if err != nil {
			return
		}
		again, err := decodeCard(c.encode())
		if d := cmp.Diff(c, again, compareCards...); d != "" || err != nil {
			t.Error(err, d)
		}
		c.ways(c.host)
	})
}

func FuzzDecodeFrame(f *testing.F) {
	f.Add((&frame{typ: frameData, flags: flagLast, kind: 5, from: 1, to: 2, seq: 9, payload: []byte("x")}).encode(), 3)
	f.Add((&frame{typ: frameLost, payload: encodeLost(&LostError{Rank: 1, By: 2, Cause: "c"})}).encode(), 3)
	f.Add((&frame{typ: frameReach, seq: 1, payload: []byte("\x00\x00\x00\x01\x00\x00\x00\x02\x01c")}).encode(), 3)
	f.Fuzz(func(t *testing.T, b []byte, ranks int) {
		x, err := decodeFrame(b, ranks&0xffff)
		if err != nil {
			return
		}
		if d := cmp.Diff(b, x.encode()); d != "" {
			t.Error(d)
		}
		if p, _, err := decodeSight(x, ranks&0xffff); err == nil && (p.rank >= ranks&0xffff || p.by >= ranks&0xffff) {
			t.Errorf("%+v of %d ranks", p, ranks)
		}
		if x.typ == frameLost {
			if e, err := decodeLost(x.payload, ranks&0xffff); err == nil && (e.Rank >= ranks&0xffff || e.By >= ranks&0xffff) {
				t.Errorf("%+v of %d ranks", e, ranks)
			}
		}
	})
}

// FuzzDispatch feeds a network of three ranks with frames that an authenticated but mad peer sends: it
// may end the link, never the process.
func FuzzDispatch(f *testing.F) {
	f.Add((&frame{typ: frameData, flags: flagLast, kind: 5, from: 1, to: 0, payload: []byte("x")}).encode(), []byte{})
	f.Add((&frame{typ: frameAck, kind: 5, from: 1, to: 0, seq: 1 << 63}).encode(), []byte{})
	f.Add((&frame{typ: frameData, flags: flagLast, kind: kindCollective, from: 2, to: 0}).encode(), []byte{})
	f.Add((&frame{typ: frameReach, seq: 1, payload: []byte("\x00\x00\x00\x01\x00\x00\x00\x02\x01c")}).encode(), []byte{})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		n := newNetwork(Config{}.withDefaults(), 0, 3)
		n.ctx = t.Context()
		l := &link{n: n, peer: 1}
		n.links[1] = l
		for _, x := range [][]byte{a, b} {
			if f, err := decodeFrame(x, 3); err == nil && f.typ != frameLink { // a frameLink would dial
				n.mu.Lock()
				_ = n.dispatch(l, f)
				n.mu.Unlock()
			}
		}
		n.mu.Lock()
		q := n.queueOf(kindCollective)
		n.mu.Unlock()
		for _, m := range q.messages {
			_ = n.putInBox(m.from, m.payload)
		}
	})
}

func FuzzUnpack(f *testing.F) {
	f.Add(append(packOne([]byte("a")), packOne(nil)...), 2)
	f.Fuzz(func(t *testing.T, b []byte, count int) {
		items, err := unpack(b, count)
		if err != nil {
			return
		}
		var again []byte
		for _, i := range items {
			again = append(again, packOne(i)...)
		}
		if !bytes.Equal(b, again) || len(items) != count {
			t.Errorf("%x unpacks to %x", b, items)
		}
	})
}

// From everywhere to everywhere, with the ring alone and with shortcuts, each hop comes nearer.
func TestRoutesArrive(t *testing.T) {
	for size := 2; size <= 40; size++ {
		for self := range size {
			for to := range size {
				at := self
				for hops := 0; at != to; hops++ {
					links := ringPeers(at, size)
					if at%5 == 0 {
						links = append(links, (at*7+size/2)%size)
					}
					next, ok := nextHop(at, to, size, slices.Values(links))
					if !ok || hops > size || distance(next, to, size) >= distance(at, to, size) {
						t.Fatalf("size %d, %d to %d: at %d next is %d, %v after %d hops", size, self, to, at, next, ok, hops)
					}
					at = next
				}
			}
		}
	}
}

func TestTree(t *testing.T) {
	for size := 1; size <= 70; size++ {
		seen := make([]bool, size)
		var walk func(v int) int
		walk = func(v int) int { // returns the last rank of the subtree
			seen[v] = true
			last := v
			for _, c := range treeChildren(v, size) {
				if treeParent(c) != v || c != last+1 {
					t.Fatalf("size %d: child %d of %d follows %d, its parent is %d", size, c, v, last, treeParent(c))
				}
				last = walk(c)
			}
			if last != treeLast(v, size) {
				t.Fatalf("size %d: subtree of %d ends at %d, treeLast says %d", size, v, last, treeLast(v, size))
			}
			return last
		}
		if walk(0); slices.Contains(seen, false) {
			t.Fatalf("size %d: ranks %v are in no subtree", size, seen)
		}
	}
}
