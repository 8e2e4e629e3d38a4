// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const patience = time.Minute

var (
	alice = identity(1) // the client
	bob   = identity(2) // the server
	eve   = identity(3)
	hello = Hello{Protocol: [8]byte([]byte("testing1")), Job: [16]byte{'j'}, From: 3, To: 4}
)

func identity(n byte) *Identity {
	i, err := IdentityOf(bytes.Repeat([]byte{n}, KeySize))
	if err != nil {
		panic(err)
	}
	return i
}

func keyOf(h Hello) (PublicKey, error) {
	if h != hello {
		return PublicKey{}, errors.New("no such peer")
	}
	return alice.Public(), nil
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

// shake runs both sides over two connections, which need not be the ends of one: who says h with the key of me,
// and bob.
func shake(t testing.TB, c, s net.Conn, h Hello, me *Identity) (cc, sc *Conn, cerr, serr error) {
	ctx := testContext(t)
	var wg sync.WaitGroup
	wg.Go(func() { cc, cerr = Client(ctx, c, h, me, bob.Public()) })
	wg.Go(func() {
		var got Hello
		sc, got, serr = Server(ctx, s, bob, keyOf)
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
	client, server, cerr, serr := shake(t, a, b, hello, alice)
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

func TestWhoHasAnotherKeyIsNotLetIn(t *testing.T) {
	other := hello
	other.From++
	for name, try := range map[string]struct {
		h        Hello
		me       *Identity
		toClient string // what the client is told
	}{
		"another key":             {hello, eve, "bad certificate"},
		"the server's own key":    {hello, bob, "bad certificate"},
		"unknown peer":            {other, alice, "no application protocol"},
		"unknown with a good key": {other, eve, "no application protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			_, _, cerr, serr := shake(t, a, b, try.h, try.me)
			if !errors.Is(cerr, ErrStranger) || !errors.Is(serr, ErrStranger) {
				t.Fatalf("client: %v, server: %v; want ErrStranger", cerr, serr)
			}
			if !strings.Contains(cerr.Error(), try.toClient) {
				t.Errorf("client: %v, want %q in it", cerr, try.toClient)
			}
		})
	}
}

func TestSeedsAreWhole(t *testing.T) {
	if _, err := IdentityOf(make([]byte, KeySize-1)); err == nil {
		t.Error("a short seed is good enough")
	}
	a, errA := NewIdentity()
	b, errB := NewIdentity()
	if errA != nil || errB != nil || a.Public() == b.Public() {
		t.Errorf("two identities: %v, %v, the same: %v", errA, errB, a.Public() == b.Public())
	}
}

// A server that is not the one who is looked for is noticed by the client.
func TestFalseServer(t *testing.T) {
	a, b := pair(t)
	done := make(chan error, 1)
	go func() {
		_, err := Client(testContext(t), a, hello, alice, bob.Public())
		done <- err
	}()
	_, _, err := Server(testContext(t), b, eve, keyOf)
	if err == nil {
		t.Error("the false server believes that it was believed")
	}
	if err := <-done; !errors.Is(err, ErrStranger) {
		t.Errorf("client: %v, want ErrStranger", err)
	}
}

// Both ends are told what is the matter when they are not of one version.
func TestOtherVersions(t *testing.T) {
	newer := hello
	newer.Protocol = [8]byte([]byte("testing2"))
	says := config(alice, hello, bob.Public())
	for name, try := range map[string]struct {
		client func(net.Conn) error
		want   string
	}{
		"before TLS": {func(c net.Conn) error {
			_, err := c.Write(append([]byte("ckpthsk1testing1"), make([]byte, 56)...))
			return err
		}, "older version of libckpt"},
		"newer protocol": {func(c net.Conn) error {
			_, err := Client(testContext(t), c, newer, alice, bob.Public())
			if err == nil || !strings.Contains(err.Error(), "no application protocol") {
				t.Errorf("the newer one: %v", err)
			}
			return nil
		}, "no such peer"},
		"no protocol": {func(c net.Conn) error {
			mute := says.Clone()
			mute.NextProtos = nil
			_ = tls.Client(c, mute).Handshake()
			return nil
		}, "0 protocols"},
		"another's protocol": {func(c net.Conn) error {
			web := says.Clone()
			web.NextProtos = []string{"h2"}
			_ = tls.Client(c, web).Handshake()
			return nil
		}, "no protocol of libckpt"},
		"TLS 1.2": {func(c net.Conn) error {
			old := says.Clone()
			old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
			_ = tls.Client(c, old).Handshake()
			return nil
		}, "unsupported versions"},
		"the web": {func(c net.Conn) error {
			_, err := c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
			return err
		}, "does not look like a TLS handshake"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := try.client(a); err != nil {
					t.Error(err)
				}
			})
			_, _, err := Server(testContext(t), b, bob, func(h Hello) (PublicKey, error) { return keyOf(h) })
			if !errors.Is(err, ErrStranger) || !strings.Contains(err.Error(), try.want) {
				t.Errorf("got %v, want ErrStranger with %q", err, try.want)
			}
			wg.Wait()
		})
	}
}

// Everything that a client sent in one connection, sent again, opens nothing; nor does what the server
// sent, sent back to it.
func TestReplayAndReflection(t *testing.T) {
	a, b := pair(t)
	rec := &recorder{Conn: a}
	if _, _, cerr, serr := shake(t, rec, b, hello, alice); cerr != nil || serr != nil {
		t.Fatal(cerr, serr)
	}
	for name, bytes := range map[string][]byte{"replay": rec.sent, "reflection": rec.received} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			if _, err := a.Write(bytes); err != nil {
				t.Fatal(err)
			}
			_, _, err := Server(testContext(t), b, bob, keyOf)
			if !errors.Is(err, ErrStranger) {
				t.Errorf("got %v, want ErrStranger", err)
			}
		})
	}
}

// What the server sent for one connection is worth nothing on another.
func TestReplayOfServer(t *testing.T) {
	a, b := pair(t)
	rec := &recorder{Conn: a}
	if _, _, cerr, serr := shake(t, rec, b, hello, alice); cerr != nil || serr != nil {
		t.Fatal(cerr, serr)
	}
	a, b = pair(t)
	if _, err := b.Write(rec.received); err != nil {
		t.Fatal(err)
	}
	if _, err := Client(testContext(t), a, hello, alice, bob.Public()); !errors.Is(err, ErrStranger) {
		t.Errorf("got %v, want ErrStranger", err)
	}
}

// Two connections of the same two ends have nothing in common that could be recognized or used again, and no
// session is taken up again.
func TestConnectionsAreUnrelated(t *testing.T) {
	var seen [2]*recorder
	for i := range seen {
		a, b := pair(t)
		seen[i] = &recorder{Conn: a}
		c, _, cerr, serr := shake(t, seen[i], b, hello, alice)
		if cerr != nil || serr != nil {
			t.Fatal(cerr, serr)
		}
		if s := c.tls.ConnectionState(); s.DidResume || s.Version != tls.VersionTLS13 {
			t.Errorf("resumed: %v, version %#x", s.DidResume, s.Version)
		}
	}
	shown, err := bob.certificate()
	if err != nil {
		t.Fatal(err)
	}
	one, two := seen[0].received, seen[1].received
	if bytes.Equal(one, two) || bytes.Contains(one, shown.Certificate[0]) {
		t.Error("the server says the same twice, or shows its certificate to all")
	}
}

// A client that has proved nothing is not listened to for long.
func TestHandshakeIsBounded(t *testing.T) {
	endless := tlsRecords(bytes.Repeat([]byte{1, 0, 0xff, 0}, 10*maxHandshake)) // a hello of 64 KiB
	in := &deadlineConn{bufferConn{Buffer: *bytes.NewBuffer(endless)}}
	_, _, err := server(in, bob, keyOf)
	if read := len(endless) - in.Len(); !errors.Is(err, ErrStranger) || read > maxHandshake {
		t.Errorf("got %v after %d bytes, want ErrStranger after %d", err, read, maxHandshake)
	}
}

// tlsRecords puts b, parts of a handshake, into plain records of TLS.
func tlsRecords(b []byte) []byte {
	var out []byte
	for len(b) > 0 {
		n := min(len(b), 4096)
		out = append(out, 22, 3, 1, byte(n>>8), byte(n))
		out = append(out, b[:n]...)
		b = b[n:]
	}
	return out
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
	size := 5 + lengthSize + 1 + 16 // of an empty record: TLS's header, ours, type and tag of TLS
	one, two := size+len(records[0]), 2*size+len(records[0])+len(records[1])
	for name, harm := range map[string]func([]byte) []byte{
		"swapped":   func(b []byte) []byte { return bytes.Join([][]byte{b[one:two], b[:one], b[two:]}, nil) },
		"dropped":   func(b []byte) []byte { return b[one:] },
		"repeated":  func(b []byte) []byte { return bytes.Join([][]byte{b[:one], b}, nil) },
		"cut short": func(b []byte) []byte { return b[:len(b)-1] },
		"too long":  func([]byte) []byte { return []byte{23, 3, 3, 0xff, 0xff} },
		"too short": func([]byte) []byte { return []byte{23, 3, 3, 0, 15} },
		"not TLS":   func([]byte) []byte { return []byte{0xff, 0xff, 0xff, 0xff, 0xff} },
	} {
		t.Run(name, func(t *testing.T) { checkDamaged(t, records, harm) })
	}
	for i := range two {
		checkDamaged(t, records, func(b []byte) []byte { b[i] ^= 0x20; return b })
	}
}

func checkDamaged(t *testing.T, records []string, harm func([]byte) []byte) {
	t.Helper()
	writer, reader, wire := tapped(t)
	for _, r := range records {
		if err := errors.Join(writer.WriteRecord([]byte(r)), writer.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	wire.Buffer = *bytes.NewBuffer(harm(wire.Bytes()))
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

// tapped returns the ends of a connection of which what writer sends from now on gets into wire, and what is in
// wire is what reader gets.
func tapped(t testing.TB) (writer, reader *Conn, wire *bufferConn) {
	t.Helper()
	a, b := pair(t)
	wire = &bufferConn{}
	ta, tb := &tap{Conn: a}, &tap{Conn: b}
	writer, reader, cerr, serr := shake(t, ta, tb, hello, alice)
	if cerr != nil || serr != nil {
		t.Fatal(cerr, serr)
	}
	ta.wire, tb.wire = wire, wire
	return writer, reader, wire
}

// tap is a connection until wire is there, which then takes its place.
type tap struct {
	net.Conn
	wire *bufferConn
}

func (c *tap) Read(p []byte) (int, error) {
	if c.wire != nil {
		return c.wire.Read(p)
	}
	return c.Conn.Read(p)
}

func (c *tap) Write(p []byte) (int, error) {
	if c.wire != nil {
		return c.wire.Write(p)
	}
	return c.Conn.Write(p)
}

// bufferConn is a connection whose bytes stay in memory.
type bufferConn struct {
	net.Conn
	bytes.Buffer
}

func (b *bufferConn) Read(p []byte) (int, error)       { return b.Buffer.Read(p) }
func (b *bufferConn) Write(p []byte) (int, error)      { return b.Buffer.Write(p) }
func (b *bufferConn) SetWriteDeadline(time.Time) error { return nil }

func TestContextEndsHandshake(t *testing.T) {
	for name, side := range map[string]func(context.Context, net.Conn) error{
		"client": func(ctx context.Context, c net.Conn) error {
			_, err := Client(ctx, c, hello, alice, bob.Public())
			return err
		},
		"server": func(ctx context.Context, c net.Conn) error {
			_, _, err := Server(ctx, c, bob, keyOf)
			return err
		},
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

// Close ends a connection although a writer is held up by a peer that does not read.
func TestCloseWaitsForNobody(t *testing.T) {
	a, _ := established(t)
	written := make(chan error)
	go func() {
		var err error
		for err == nil {
			_, err = a.Write(make([]byte, MaxRecord))
		}
		written <- err
	}()
	time.Sleep(20 * time.Millisecond) // so that it is most likely held up; the test is right without it
	begun := time.Now()
	_ = a.Close()
	<-written
	if d := time.Since(begun); d > 4*time.Second { // TLS would wait for 5 s to say goodbye
		t.Errorf("Close took %v", d)
	}
}
