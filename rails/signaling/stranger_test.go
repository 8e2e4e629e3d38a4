// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/libckpt/libckpt/internal/handshake"
)

// flood connects to every endpoint again and again until stop is closed, and says nothing, nonsense,
// or half of what a rank would say. Connections stay open until the other side closes them.
func flood(t *testing.T, eps []*Endpoint, stop chan struct{}) *sync.WaitGroup {
	t.Helper()
	half := []byte{22, 3, 1, 2, 0, 1, 0, 1, 0xfc} // the begin of a TLS handshake
	says := [][]byte{nil, []byte("GET / HTTP/1.1\r\n\r\n"), make([]byte, 4096), half}
	var wg sync.WaitGroup
	for _, ep := range eps {
		wg.Go(func() {
			var open []net.Conn
			for i := 0; ; i++ {
				select {
				case <-stop:
					for _, c := range open {
						_ = c.Close()
					}
					return
				default:
				}
				c, err := net.DialTimeout("tcp", ep.Addr().String(), time.Second)
				if err != nil {
					runtime.Gosched()
					continue
				}
				_, _ = c.Write(says[i%len(says)])
				if open = append(open, c); len(open) > 100 {
					_ = open[0].Close()
					open = open[1:]
				}
			}
		})
	}
	return &wg
}

// A job is built, works and ends while strangers flood every rank.
func TestFloodOfStrangersChangesNothing(t *testing.T) {
	const size = 4
	eps, cards := endpoints(t, size, Config{})
	stop := make(chan struct{})
	strangers := flood(t, eps, stop)
	defer func() { close(stop); strangers.Wait() }()
	ctx := testContext(t)
	must(t, each(size, func(r int) error {
		n, err := eps[r].Join(ctx, r, cards)
		if err != nil {
			return err
		}
		defer n.Close()
		for i := range 20 {
			if err := n.Barrier(ctx, 1); err != nil {
				return err
			}
			if err := n.Send(ctx, (r+2)%size, uint16(i), make([]byte, 100_000)); err != nil {
				return err
			}
			if _, _, err := n.Recv(ctx, uint16(i)); err != nil {
				return err
			}
		}
		return n.Shutdown(ctx)
	}))
}

// One who has seen the cards, but is none of the ranks, gets nowhere; nor does a rank in the name of
// another.
func TestImpostors(t *testing.T) {
	nets := join(t, 4, Config{})
	stranger, _ := endpoints(t, 1, Config{})
	fake := &keyring{me: stranger[0].me, cards: nets[0].cards, job: nets[0].keys.job}
	for name, try := range map[string]struct {
		keys     *keyring
		from, to int
	}{
		"stranger in the name of rank 0":   {fake, 0, 2},
		"rank 1 in the name of rank 0":     {nets[1].keys, 0, 2},
		"larger rank to smaller":           {nets[3].keys, 3, 2},
		"rank to itself":                   {nets[2].keys, 2, 2},
		"rank to the address of another":   {nets[0].keys, 0, 3},
		"stranger with a rank that is not": {fake, 1 << 20, 2},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", nets[2].cards[2].loopback.String())
			if err != nil {
				t.Fatal(err)
			}
			h := try.keys.hello(try.to, protocol)
			h.From = uint32(try.from)
			if _, err := handshake.Client(testContext(t), conn, h, try.keys.me, nets[2].cards[2].public); err == nil {
				t.Error("is let in")
			}
		})
	}
	must(t, each(4, func(r int) error { return nets[r].Barrier(testContext(t), 1) }))
}

// Ranks that were given different cards, be it of a third one, do not come together.
func TestRanksWithOtherCardsStayApart(t *testing.T) {
	eps, cards := endpoints(t, 3, Config{})
	_, others := endpoints(t, 1, Config{})
	changed := [][]byte{cards[0], cards[1], others[0]}
	ctx, cancel := context.WithTimeout(testContext(t), 300*time.Millisecond)
	defer cancel()
	errs := each(2, func(r int) error {
		n, err := eps[r].Join(ctx, r, [][][]byte{cards, changed}[r])
		if err == nil {
			n.Close()
		}
		return err
	})
	if errs[0] == nil || errs[1] == nil {
		t.Errorf("rank 0: %v, rank 1: %v; want errors", errs[0], errs[1])
	}
}

// Of two connections of a rank the later one counts, and one that was begun earlier and comes late does not.
func TestSecondConnectionTakesTheLink(t *testing.T) {
	nets := join(t, 2, Config{})
	address := nets[1].cards[1].loopback.String()
	nets[0].mu.Lock()
	nets[0].dials--
	nets[0].mu.Unlock()
	if _, err := nets[0].dial(testContext(t), address, 1); err == nil {
		t.Error("a connection with the number of another one is used")
	}
	must(t, each(2, func(r int) error { return nets[r].Barrier(testContext(t), 1) }))
	// The larger rank takes this one, and closes the first; the smaller, which does not use it, makes another.
	// That one may come even before the larger rank's word on this one.
	if c, err := nets[0].dial(testContext(t), address, 1); err == nil {
		_ = c.conn.Close()
	}
	must(t, each(2, func(r int) error { return nets[r].Barrier(testContext(t), 1) }))
}

// Only the larger rank calls, and a call makes no link.
func TestCalls(t *testing.T) {
	nets := join(t, 4, Config{})
	for name, try := range map[string]struct {
		from, to int
		in       bool
	}{"larger to smaller": {3, 2, true}, "smaller to larger": {0, 2, false}} {
		keys := nets[try.from].keys
		conn, err := net.Dial("tcp", nets[try.to].cards[try.to].loopback.String())
		if err != nil {
			t.Fatal(err)
		}
		c, err := handshake.Client(testContext(t), conn, keys.hello(try.to, callProtocol), keys.me, nets[try.to].cards[try.to].public)
		if (err == nil) != try.in {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		f := &frame{typ: framePing, from: try.from, to: try.to, payload: make([]byte, numberSize)}
		if err := errors.Join(c.WriteRecord(f.encode()), c.Flush()); err != nil {
			t.Error(err)
		}
		if b, err := c.ReadRecord(); err == nil {
			t.Errorf("%s: it is answered with %x", name, b)
		}
	}
	must(t, each(4, func(r int) error { return nets[r].Barrier(testContext(t), 1) }))
}

// Cards that were changed on their way are refused before anything is sent.
func TestJoinRefusesBadCards(t *testing.T) {
	for name, change := range map[string]func([][]byte) (rank int){
		"rank out of range": func([][]byte) int { return 2 },
		"swapped":           func(c [][]byte) int { c[0], c[1] = c[1], c[0]; return 0 },
		"twice the same":    func(c [][]byte) int { c[1] = c[0]; return 0 },
		"short":             func(c [][]byte) int { c[1] = c[1][:10]; return 0 },
		"damaged":           func(c [][]byte) int { c[1][40] ^= 1; return 0 },
		"not libckpt":       func(c [][]byte) int { c[1] = make([]byte, CardSize); return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			eps, cards := endpoints(t, 2, Config{})
			if _, err := eps[0].Join(context.Background(), change(cards), cards); err == nil {
				t.Error("is joined")
			}
		})
	}
}

// Many jobs in a row, and their ends, leave nothing behind.
func TestShutdownLeavesNoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	for i := range 15 {
		size := 1 + i
		nets := join(t, size, Config{})
		must(t, each(size, func(r int) error { return nets[r].Shutdown(testContext(t)) }))
	}
	eventually(t, "the goroutines are gone", func() bool { return runtime.NumGoroutine() <= before })
}
