// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"net"
	"sync/atomic"
	"testing"
	"time"
)

func guard(t *testing.T, g *Guard) (addr string, accepted chan *Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted = make(chan *Conn, 100)
	g.Me, g.KeyOf = bob, keyOf
	g.Accepted = func(c *Conn, _ Hello) { accepted <- c }
	g.Serve(ln)
	t.Cleanup(g.Close)
	return ln.Addr().String(), accepted
}

func (g *Guard) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.pending)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// However many silent connections there are, few are held, and who belongs here gets in.
func TestGuardUnderFlood(t *testing.T) {
	const limit = 4
	var rejected atomic.Int64
	g := &Guard{Pending: limit, Patience: time.Hour, Rejected: func(error) { rejected.Add(1) }}
	addr, accepted := guard(t, g)
	for range 100 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if w := g.waiting(); w > limit {
			t.Fatalf("%d connections wait, want at most %d", w, limit)
		}
	}
	eventually(t, "all but the last are dropped", func() bool { return rejected.Load() == 100-limit })
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Client(testContext(t), c, hello, alice, bob.Public()); err != nil {
		t.Fatal(err)
	}
	<-accepted
}

// A connection that says nothing, or stops halfway, is dropped when patience is over.
func TestGuardDropsTheSilent(t *testing.T) {
	g := &Guard{Patience: 50 * time.Millisecond}
	addr, _ := guard(t, g)
	a, b := pair(t)
	rec := &recorder{Conn: a}
	if _, _, cerr, serr := shake(t, rec, b, hello, alice); cerr != nil || serr != nil {
		t.Fatal(cerr, serr)
	}
	first := 5 + (int(rec.sent[3])<<8 | int(rec.sent[4])) // the first record, a whole hello
	for _, say := range [][]byte{nil, rec.sent[:3], rec.sent[:100], rec.sent[:first]} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := c.Write(say); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		var b [1000]byte
		for err == nil {
			_, err = c.Read(b[:])
		}
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Errorf("who says %q is kept", say)
		}
	}
}

func TestGuardClose(t *testing.T) {
	g := &Guard{Patience: time.Hour}
	addr, _ := guard(t, g)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	eventually(t, "the connection is accepted", func() bool { return g.waiting() == 1 })
	g.Close()
	if c, err := net.Dial("tcp", addr); err == nil {
		_ = c.Close()
		t.Error("a closed guard accepts")
	}
}
