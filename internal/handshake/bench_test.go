// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// counted counts the bytes that are written to a connection.
type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// BenchmarkHandshake is a connection over loopback, both ends.
func BenchmarkHandshake(b *testing.B) {
	var bytes atomic.Int64
	used := cpu(b)
	for b.Loop() {
		c, s := pair(b)
		cc, sc, cerr, serr := shake(b, counted{c, &bytes}, counted{s, &bytes}, hello, alice)
		if err := errors.Join(cerr, serr); err != nil {
			b.Fatal(err)
		}
		_, _ = cc.Close(), sc.Close()
	}
	b.ReportMetric(float64(cpu(b)-used)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(bytes.Load())/float64(b.N), "wire-B/op")
}

// BenchmarkRecord is one message from one end to the other over loopback; of 1 MiB, as many records as it
// needs. The metric is what it takes on the wire above its own bytes.
func BenchmarkRecord(b *testing.B) {
	for _, size := range []int{64, 4 << 10, 1 << 20} {
		for _, flushed := range []int{1, 64} {
			b.Run(fmt.Sprintf("%d/by %d", size, flushed), func(b *testing.B) { record(b, size, flushed) })
		}
	}
}

func record(b *testing.B, size, flushed int) {
	var wire atomic.Int64
	c, s := pair(b)
	cc, sc, cerr, serr := shake(b, counted{c, &wire}, s, hello, alice)
	if err := errors.Join(cerr, serr); err != nil {
		b.Fatal(err)
	}
	start := wire.Load()
	part := make([]byte, min(size, MaxRecord))
	parts := size / len(part)
	done := make(chan error, 1)
	go func() {
		for range b.N * parts {
			if _, err := sc.ReadRecord(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	used := cpu(b)
	b.ResetTimer()
	for i := range b.N {
		for range parts {
			if err := cc.WriteRecord(part); err != nil {
				b.Fatal(err)
			}
		}
		if (i+1)%flushed == 0 {
			if err := cc.Flush(); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := errors.Join(cc.Flush(), <-done); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(cpu(b)-used)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(wire.Load()-start)/float64(b.N)-float64(size), "overhead-B/op")
}

// cpu is the processor time that this process has used, which is both ends' together.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
