// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// page is a log that several goroutines write to.
type page struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.Write(b)
}

func (p *page) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Split(strings.TrimSpace(p.b.String()), "\n")
}

// TestStrangersInLog: a flood makes a line at its start and one a period, and none is left out of the sum.
func TestStrangersInLog(t *testing.T) {
	var log page
	s := NewStrangers(slog.New(slog.NewTextHandler(&log, nil)), "some port")
	s.period = time.Hour
	for i := range 1000 {
		s.Rejected(fmt.Errorf("stranger %d", i))
	}
	if l := log.lines(); len(l) != 1 || !strings.Contains(l[0], "stranger 0") || !strings.Contains(l[0], "some port") || !strings.Contains(l[0], "WARN") {
		t.Errorf("at first: %q", l)
	}
	s.due() // an hour is over
	s.due() // another, without any
	if l := log.lines(); len(l) != 2 || !strings.Contains(l[1], "connections=999") || !strings.Contains(l[1], "stranger 999") {
		t.Errorf("after a period: %q", l)
	}
	s.Rejected(fmt.Errorf("later"))
	s.Rejected(fmt.Errorf("last"))
	s.Close()
	s.Rejected(fmt.Errorf("too late"))
	s.due()
	if l := log.lines(); len(l) != 4 || !strings.Contains(l[2], "later") || !strings.Contains(l[3], "connections=1") {
		t.Errorf("at the end: %q", l)
	}
}

// TestStrangersWhoHangUp: on a busy machine that may be a rank, which nobody should look for among strangers.
func TestStrangersWhoHangUp(t *testing.T) {
	var log page
	NewStrangers(slog.New(slog.NewTextHandler(&log, nil)), "some port").Rejected(fmt.Errorf("handshake with it: %w", io.EOF))
	if l := log.lines(); len(l) != 1 || strings.Contains(l[0], "not of this job") || !strings.Contains(l[0], "comes again") {
		t.Errorf("%q", l)
	}
}

// TestStrangersOfGuard: each connection that does not pass is told.
func TestStrangersOfGuard(t *testing.T) {
	var log page
	s := NewStrangers(slog.New(slog.NewTextHandler(&log, nil)), "some port")
	g := &Guard{Me: bob, KeyOf: keyOf, Accepted: func(c *Conn, _ Hello) { c.Close() }, Rejected: s.Rejected}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.Serve(ln)
	const n = 5
	for range n {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(bytes.Repeat([]byte("GET / HTTP/1.0\r\n"), 20)); err != nil {
			t.Fatal(err)
		}
		_, _ = c.Read(make([]byte, 1)) // until it is closed
		c.Close()
	}
	// A guard that is closed tells nothing of those that it has not finished with.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		more := s.more
		s.mu.Unlock()
		if more == n-1 || time.Now().After(deadline) {
			break
		}
	}
	g.Close()
	s.Close()
	if l := log.lines(); len(l) != 2 || !strings.Contains(l[0], "not part of this job") || !strings.Contains(l[1], fmt.Sprintf("connections=%d", n-1)) {
		t.Errorf("%q", l)
	}
}
