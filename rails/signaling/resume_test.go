// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/fault"
)

// reset ends the connection between two ranks, as a TCP reset does; false when there is none now.
func reset(n *Network, peer int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.links[peer]
	if l == nil || l.wire == nil {
		return false
	}
	if t, ok := l.wire.conn.NetConn().(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = l.wire.conn.Close()
	return true
}

// Connections are reset all the time, while all ranks send to all others and make collectives: messages
// arrive once, in order, and nobody is taken for lost.
func TestResetsLoseNothing(t *testing.T) {
	const size, messages = 5, 25
	nets := join(t, size, Config{})
	ctx, stop := context.WithCancel(testContext(t))
	resets := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if a, b := rand.N(size), rand.N(size); a != b && reset(nets[a], b) {
				resets++
			}
			time.Sleep(3 * time.Millisecond) // or nothing would ever get through
		}
	})
	must(t, each(size, func(r int) error {
		n := nets[r]
		errs := make(chan error, size+1)
		for to := range size {
			go func() {
				for i := range messages {
					b := binary.BigEndian.AppendUint32(nil, uint32(i))
					if err := n.Send(ctx, to, 1, append(b, make([]byte, rand.N(2*chunk))...)); err != nil {
						errs <- err
						return
					}
				}
				errs <- nil
			}()
		}
		go func() {
			for i := range messages {
				if all, err := n.Allgather(ctx, 7, []byte{byte(i)}); err != nil || all[size-1][0] != byte(i) {
					errs <- fmt.Errorf("allgather %d: %v, %w", i, all, err)
					return
				}
			}
			errs <- nil
		}()
		next := make([]uint32, size)
		for range size * messages {
			from, b, err := n.Recv(ctx, 1)
			if err != nil {
				return err
			}
			if got := binary.BigEndian.Uint32(b); got != next[from] {
				return fmt.Errorf("message %d of rank %d, expected %d", got, from, next[from])
			}
			next[from]++
		}
		for range size + 1 {
			if err := <-errs; err != nil {
				return err
			}
		}
		return nil
	}))
	stop()
	wg.Wait()
	t.Logf("%d resets", resets)
	must(t, each(size, func(r int) error { return nets[r].Shutdown(testContext(t)) }))
}

// Each frame in turn is the one at which its connection breaks, those of the end included.
func TestEveryFrameBreaksItsConnection(t *testing.T) {
	const size = 3
	for at := 1; ; at++ {
		disarm, err := fault.Arm(fmt.Sprintf("signaling.read=error:%d", at))
		if err != nil {
			t.Fatal(err)
		}
		nets := join(t, size, Config{})
		must(t, each(size, func(r int) error {
			n, ctx := nets[r], testContext(t)
			for i := range 3 {
				all, err := n.Allgather(ctx, 1, []byte{byte(r), byte(i)})
				if err != nil {
					return err
				}
				for from, b := range all {
					if int(b[0]) != from || int(b[1]) != i {
						return fmt.Errorf("round %d: %v", i, all)
					}
				}
				in, err := n.Exchange(ctx, 2, map[int][]byte{(r + 1) % size: {byte(i)}})
				if err != nil || len(in) != 1 || in[(r+2)%size][0] != byte(i) {
					return fmt.Errorf("exchange %d: %v, %w", i, in, err)
				}
			}
			return n.Shutdown(ctx)
		}))
		disarm()
		if at == 50 { // more than there are
			break
		}
	}
}

// A peer's goodbye has arrived, this rank has not said its own: the link stays, also when its connection
// breaks then, and when who wanted to make another one finds that there is one.
func TestLinkOutlivesGoodbye(t *testing.T) {
	for _, breaks := range []bool{false, true} {
		nets := join(t, 2, Config{Silence: time.Hour})
		must(t, each(2, func(r int) error { return nets[r].Barrier(testContext(t), 1) }))
		n := nets[1]
		nets[0].mu.Lock()
		nets[0].links[1].send(&frame{typ: frameBye, flags: flagQuiet, from: 0, to: 1})
		nets[0].mu.Unlock()
		var l *link
		for said := false; !said; time.Sleep(time.Millisecond) {
			n.mu.Lock()
			l = n.links[0]
			said = l.bye
			n.mu.Unlock()
		}
		if breaks {
			reset(n, 0)
		} else {
			n.wg.Add(1)
			n.remake(l, "an older connection broke")
		}
		must(t, each(2, func(r int) error { return nets[r].Shutdown(testContext(t)) }))
	}
}

// Many connections break while the ranks part, also those that are made again for that: all leave, by the
// goodbyes alone.
func TestPartingOverBreaks(t *testing.T) {
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		size := 2 + r.IntN(4)
		var breaks []string
		for at := 5 + r.IntN(20); at < 150; at += 1 + r.IntN(8) {
			breaks = append(breaks, fmt.Sprintf("signaling.read=error:%d", at))
		}
		disarm, err := fault.Arm(strings.Join(breaks, ","))
		if err != nil {
			t.Fatal(err)
		}
		nets := join(t, size, Config{Silence: time.Hour}) // what is silent stays so
		must(t, each(size, func(r int) error {
			n, ctx := nets[r], testContext(t)
			if err := n.Barrier(ctx, 1); err != nil {
				return err
			}
			return n.Shutdown(ctx)
		}))
		disarm()
	}
}

// cable is what joins two ranks in a test; it can be cut, and comes together again. Connections of before
// stay dead then: neither end hears anything more, nor that there is nothing.
type cable struct {
	t   *testing.T
	mu  sync.Mutex
	cut bool
	age int // how often it was cut
}

// wrap returns one end of a connection, the other end of which is relayed to conn.
func (c *cable) wrap(conn net.Conn) net.Conn {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Error(err)
		return conn
	}
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		c.t.Error(err)
		return conn
	}
	far, err := ln.Accept()
	if err != nil {
		c.t.Error(err)
		return conn
	}
	c.t.Cleanup(func() { _ = far.Close(); _ = conn.Close() })
	c.mu.Lock()
	age := c.age
	c.mu.Unlock()
	dead := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.cut || c.age != age
	}
	relay := func(to, from net.Conn) {
		b := make([]byte, 4096)
		for {
			k, err := from.Read(b)
			if dead() {
				return
			}
			if _, werr := to.Write(b[:k]); err != nil || werr != nil {
				_ = to.(*net.TCPConn).CloseWrite()
				return
			}
		}
	}
	go relay(far, conn)
	go relay(conn, far)
	return near
}

func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut = cut; cut {
		c.age++
	}
}

// The network between the ranks is cut and mended: those who cannot be reached are named meanwhile, what is
// sent arrives afterwards.
func TestPartition(t *testing.T) {
	c := cable{t: t}
	nets := join(t, 2, Config{Silence: 400 * time.Millisecond, wrap: c.wrap})
	ctx := testContext(t)
	must(t, each(2, func(r int) error { return nets[r].Barrier(ctx, 1) }))
	told := make([]chan []Missing, 2)
	for r, n := range nets {
		told[r] = make(chan []Missing, 100)
		n.OnReach(func(all []Missing) { told[r] <- all })
	}
	for range 3 {
		c.set(true)
		for r := range nets {
			for all := range told[r] {
				if len(all) > 0 && all[0].Rank == 1-r && all[0].By == r {
					break
				}
			}
		}
		if all := nets[0].Unreachable(); len(all) == 0 {
			t.Error("nobody is missing")
		}
		late := each(2, func(r int) error { return nets[r].Send(ctx, 1-r, 1, []byte{byte(r)}) })
		must(t, late)
		c.set(false)
		must(t, each(2, func(r int) error {
			from, b, err := nets[r].Recv(ctx, 1)
			if err == nil && (from != 1-r || b[0] != byte(1-r)) {
				err = fmt.Errorf("%v of rank %d", b, from)
			}
			return err
		}))
		for r := range nets {
			for all := range told[r] {
				if len(all) == 0 {
					break
				}
			}
		}
	}
	must(t, each(2, func(r int) error { return nets[r].Shutdown(ctx) }))
}

// Only the larger rank sees the end of the connection, as when a firewall forgets one: it calls the other.
func TestHalfOpen(t *testing.T) {
	c := cable{t: t}
	nets := join(t, 2, Config{Silence: time.Hour, wrap: c.wrap})
	ctx := testContext(t)
	must(t, each(2, func(r int) error { return nets[r].Barrier(ctx, 1) }))
	c.set(true)
	c.set(false) // new connections work, the old one says nothing for ever
	if !reset(nets[1], 0) {
		t.Fatal("no connection")
	}
	must(t, each(2, func(r int) error { return nets[r].Barrier(ctx, 1) }))
}
