// SPDX-License-Identifier: Apache-2.0

package signaling

import (
	"context"
	"io"
	"testing"
	"time"
)

// A connection of its own carries bytes both ways, whichever rank makes it and whenever the other begins to take
// connections; it is cut when the network ends.
func TestConnect(t *testing.T) {
	nets := join(t, 3, Config{})
	for _, pair := range [][2]int{{0, 2}, {2, 0}, {0, 1}} {
		conn, err := nets[pair[0]].Connect(context.Background(), pair[1])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("question")); err != nil {
			t.Fatal(err)
		}
		taken := make(chan int, 1)
		nets[pair[1]].OnConnect(func(from int, c *Bulk) {
			b := make([]byte, 8)
			if _, err := io.ReadFull(c, b); err == nil && string(b) == "question" {
				_, _ = c.Write([]byte("answer")) // the other end looks
			}
			taken <- from
			_ = c.Close()
		})
		b, err := io.ReadAll(conn)
		if string(b) != "answer" {
			t.Errorf("ranks %v: %q, %v", pair, b, err)
		}
		if from := <-taken; from != pair[0] {
			t.Errorf("ranks %v: it comes from rank %d", pair, from)
		}
		_ = conn.Close()
	}
	for _, peer := range []int{-1, 1, 3} {
		if _, err := nets[1].Connect(context.Background(), peer); err == nil {
			t.Errorf("rank 1 connects to rank %d", peer)
		}
	}
	conn, err := nets[0].Connect(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	go nets[0].Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection outlives the network")
	}
	if _, err := nets[0].Connect(context.Background(), 1); err == nil {
		t.Error("connects after the end")
	}
}
