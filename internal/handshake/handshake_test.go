// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const patience = time.Minute

var (
	key      = bytes.Repeat([]byte{1}, KeySize)
	otherKey = bytes.Repeat([]byte{2}, KeySize)
	hello    = Hello{Protocol: [8]byte{'t'}, Job: [16]byte{'j'}, From: 3, To: 4}
)

func keyOf(h Hello) ([]byte, error) {
	if h != hello {
		return nil, errors.New("no such peer")
	}
	return key, nil
}

// pair returns the two ends of a TCP connection.
func pair(t testing.TB) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	if a, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	return a, b
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// shake runs both sides over two connections, which need not be the ends of one.
func shake(t testing.TB, c, s net.Conn, h Hello, k []byte) (cc, sc *Conn, cerr, serr error) {
	ctx := testContext(t)
	var wg sync.WaitGroup
	wg.Go(func() { cc, cerr = Client(ctx, c, h, k) })
	wg.Go(func() {
		var got Hello
		sc, got, serr = Server(ctx, s, keyOf)
		if serr == nil && got != h {
			serr = errors.New("another hello arrived")
		}
	})
	wg.Wait()
	return
}

func established(t testing.TB) (client, server *Conn) {
	t.Helper()
	a, b := pair(t)
	client, server, cerr, serr := shake(t, a, b, hello, key)
	if cerr != nil || serr != nil {
		t.Fatal(cerr, serr)
	}
	return client, server
}

func TestRecordsBothWays(t *testing.T) {
	a, b := established(t)
	for _, dir := range [][2]*Conn{{a, b}, {b, a}} {
		for _, want := range [][]byte{{}, []byte("one"), bytes.Repeat([]byte{7}, MaxRecord)} {
			done := make(chan error, 1)
			go func() { done <- errors.Join(dir[0].WriteRecord(want), dir[0].Flush()) }()
			got, err := dir[1].ReadRecord()
			if d := cmp.Diff(string(want), string(got)); d != "" || err != nil {
				t.Fatal(err, d)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := a.WriteRecord(make([]byte, MaxRecord+1)); err == nil {
		t.Error("a record that is too large is written")
	}
}

func TestStream(t *testing.T) {
	a, b := established(t)
	want := bytes.Repeat([]byte("0123456789"), MaxRecord/4)
	go func() { _, _ = a.Write(want); _ = a.CloseWrite() }()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes, %v; want %d", len(got), err, len(want))
	}
}

func TestWhoDoesNotKnowTheKeyIsNotLetIn(t *testing.T) {
	other := hello
	other.From++
	for name, try := range map[string]struct {
		h Hello
		k []byte
	}{"wrong key": {hello, otherKey}, "unknown peer": {other, key}} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			_, _, cerr, serr := shake(t, a, b, try.h, try.k)
			if cerr == nil || serr == nil {
				t.Errorf("client: %v, server: %v; want errors", cerr, serr)
			}
		})
	}
	a, b := pair(t)
	if _, _, cerr, _ := shake(t, a, b, hello, key[:KeySize-1]); cerr == nil {
		t.Error("a short key is good enough")
	}
}

// A server that does not know the key is noticed by the client.
func TestFalseServer(t *testing.T) {
	a, b := pair(t)
	done := make(chan error, 1)
	go func() {
		_, err := Client(testContext(t), a, hello, key)
		done <- err
	}()
	_, _, err := Server(testContext(t), b, func(Hello) ([]byte, error) { return otherKey, nil })
	if err == nil {
		t.Error("the false server believes that it was believed")
	}
	if err := <-done; !errors.Is(err, ErrStranger) {
		t.Errorf("client: %v, want ErrStranger", err)
	}
}

// Everything that a client sent in one handshake, sent again, opens nothing; nor does what the server
// sent, sent back to it.
func TestReplayAndReflection(t *testing.T) {
	a, b := pair(t)
	rec := &recorder{Conn: a}
	if _, _, cerr, serr := shake(t, rec, b, hello, key); cerr != nil || serr != nil {
		t.Fatal(cerr, serr)
	}
	var reflected []byte
	reflected = append(reflected, rec.sent[:helloSize]...)
	reflected = append(reflected, rec.received[nonceSize:answerSize]...)
	for name, bytes := range map[string][]byte{"replay": rec.sent, "reflection": reflected} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			if _, err := a.Write(bytes); err != nil {
				t.Fatal(err)
			}
			_, _, err := Server(testContext(t), b, keyOf)
			if !errors.Is(err, ErrStranger) {
				t.Errorf("got %v, want ErrStranger", err)
			}
		})
	}
}

// The server's proof for one connection is worth nothing on another.
func TestReplayOfServer(t *testing.T) {
	a, b := pair(t)
	rec := &recorder{Conn: a}
	if _, _, cerr, serr := shake(t, rec, b, hello, key); cerr != nil || serr != nil {
		t.Fatal(cerr, serr)
	}
	a, b = pair(t)
	if _, err := b.Write(rec.received); err != nil {
		t.Fatal(err)
	}
	if _, err := Client(testContext(t), a, hello, key); !errors.Is(err, ErrStranger) {
		t.Errorf("got %v, want ErrStranger", err)
	}
}

type recorder struct {
	net.Conn
	sent, received []byte
}

func (r *recorder) Write(p []byte) (int, error) {
	r.sent = append(r.sent, p...)
	return r.Conn.Write(p)
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.received = append(r.received, p[:n]...)
	return n, err
}

// Whatever is done to the bytes of three records, the reader gets the records before the damage and
// an error, never other bytes.
func TestDamagedRecords(t *testing.T) {
	records := []string{"first", "second", "third"}
	size := lengthSize + tagSize // of an empty record
	one, two := size+len(records[0]), 2*size+len(records[0])+len(records[1])
	for name, harm := range map[string]func([]byte) []byte{
		"swapped":   func(b []byte) []byte { return bytes.Join([][]byte{b[one:two], b[:one], b[two:]}, nil) },
		"dropped":   func(b []byte) []byte { return b[one:] },
		"repeated":  func(b []byte) []byte { return bytes.Join([][]byte{b[:one], b}, nil) },
		"cut short": func(b []byte) []byte { return b[:len(b)-1] },
		"too long":  func([]byte) []byte { return []byte{0xff, 0xff, 0xff, 0xff} },
		"too short": func([]byte) []byte { return []byte{0, 0, 0, tagSize - 1} },
	} {
		t.Run(name, func(t *testing.T) { checkDamaged(t, records, harm) })
	}
	for i := range two {
		checkDamaged(t, records, func(b []byte) []byte { b[i] ^= 0x20; return b })
	}
}

func checkDamaged(t *testing.T, records []string, harm func([]byte) []byte) {
	t.Helper()
	raw := &bufferConn{}
	writer, err := newConn(raw, key, []byte("h"), []byte("n"), "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := errors.Join(writer.WriteRecord([]byte(r)), writer.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	reader, err := newConn(&bufferConn{Buffer: *bytes.NewBuffer(harm(raw.Bytes()))}, key, []byte("h"), []byte("n"), "b", "a")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		b, err := reader.ReadRecord()
		if err != nil {
			if err == io.EOF && i < len(records) {
				t.Errorf("after %d records the damage looks like the end", i)
			}
			if i == len(records) {
				t.Error("the damage was not noticed")
			}
			return
		}
		if i >= len(records) || string(b) != records[i] {
			t.Fatalf("record %d is %q", i, b)
		}
	}
}

// bufferConn is a connection whose bytes stay in memory.
type bufferConn struct {
	net.Conn
	bytes.Buffer
}

func (b *bufferConn) Read(p []byte) (int, error)  { return b.Buffer.Read(p) }
func (b *bufferConn) Write(p []byte) (int, error) { return b.Buffer.Write(p) }

func TestContextEndsHandshake(t *testing.T) {
	for name, side := range map[string]func(context.Context, net.Conn) error{
		"client": func(ctx context.Context, c net.Conn) error { _, err := Client(ctx, c, hello, key); return err },
		"server": func(ctx context.Context, c net.Conn) error { _, _, err := Server(ctx, c, keyOf); return err },
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := pair(t)
			ctx, cancel := context.WithCancel(testContext(t))
			done := make(chan error)
			go func() { done <- side(ctx, a) }()
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func FuzzServer(f *testing.F) {
	f.Add(hello.encode(make([]byte, nonceSize)))
	f.Add(append(hello.encode(make([]byte, nonceSize)), make([]byte, proofSize)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &deadlineConn{bufferConn{Buffer: *bytes.NewBuffer(bytes.Clone(b))}}
		if _, _, err := server(c, keyOf); err == nil {
			t.Errorf("%x opens the door", b)
		}
	})
}

// deadlineConn reads what the stranger sent; what is written to it is lost.
type deadlineConn struct{ bufferConn }

func (c *deadlineConn) Write(p []byte) (int, error) { return len(p), nil }

func FuzzReadRecord(f *testing.F) {
	f.Add([]byte{0, 0, 0, 16, 1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := newConn(&bufferConn{Buffer: *bytes.NewBuffer(bytes.Clone(b))}, key, nil, nil, "a", "b")
		if err != nil {
			t.Fatal(err)
		}
		if r, err := c.ReadRecord(); err == nil {
			t.Errorf("%x is record %x", b, r)
		}
	})
}
