// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	magic     = "ckpthsk1"
	nonceSize = 32
	proofSize = sha256.Size

	// KeySize is the least number of bytes of a key.
	KeySize = 32

	helloSize  = len(magic) + 8 + 16 + 4 + 4 + nonceSize
	answerSize = nonceSize + proofSize
)

// ErrStranger says that the other end does not know the key, speaks another protocol, or is not
// libckpt at all. The connection is of no use; the error wraps what was seen.
var ErrStranger = errors.New("the other end is not part of this job")

// Hello says who wants to talk to whom about what. It is sent in the clear and proved afterwards.
type Hello struct {
	Protocol [8]byte  // what is spoken once the handshake is done
	Job      [16]byte // tells jobs apart, so that a wrong number is noticed; not a secret
	From, To uint32   // ranks, or whatever the protocol means by them
}

func (h Hello) encode(nonce []byte) []byte {
	b := make([]byte, 0, helloSize)
	b = append(b, magic...)
	b = append(b, h.Protocol[:]...)
	b = append(b, h.Job[:]...)
	b = binary.BigEndian.AppendUint32(b, h.From)
	b = binary.BigEndian.AppendUint32(b, h.To)
	return append(b, nonce...)
}

func decodeHello(b []byte) (Hello, error) {
	var h Hello
	if len(b) != helloSize {
		return h, fmt.Errorf("hello has %d bytes, want %d", len(b), helloSize)
	}
	if string(b[:len(magic)]) != magic {
		return h, fmt.Errorf("hello starts with %q, want %q", b[:len(magic)], magic)
	}
	b = b[len(magic):]
	copy(h.Protocol[:], b)
	copy(h.Job[:], b[8:])
	h.From = binary.BigEndian.Uint32(b[24:])
	h.To = binary.BigEndian.Uint32(b[28:])
	return h, nil
}

// Client proves to the server at the other end of conn that it knows the key, and has the server do
// the same. On success conn belongs to the returned Conn; on failure conn is closed. An error that
// wraps ErrStranger will not get better by trying again with the same peer, except that a server
// whose Guard is flooded closes connections early, which looks like io.EOF here.
func Client(ctx context.Context, conn net.Conn, hello Hello, key []byte) (*Conn, error) {
	stop := context.AfterFunc(ctx, func() { expire(conn) })
	c, err := client(conn, hello, key)
	if !stop() && err == nil {
		err = ctx.Err() // the deadline may be set at any moment from now on
	}
	if err != nil {
		return nil, failed(ctx, conn, err)
	}
	return c, nil
}

func client(conn net.Conn, hello Hello, key []byte) (*Conn, error) {
	if len(key) < KeySize {
		return nil, fmt.Errorf("key has %d bytes, want at least %d", len(key), KeySize)
	}
	nonce := freshNonce()
	first := hello.encode(nonce)
	if _, err := conn.Write(first); err != nil {
		return nil, err
	}
	var answer [answerSize]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return nil, err
	}
	if !hmac.Equal(answer[nonceSize:], prove(key, "server", first, answer[:nonceSize])) {
		return nil, fmt.Errorf("%w: its proof is wrong", ErrStranger)
	}
	if _, err := conn.Write(prove(key, "client", first, answer[:nonceSize])); err != nil {
		return nil, err
	}
	c, err := newConn(conn, key, first, answer[:nonceSize], "client", "server")
	if err != nil {
		return nil, err
	}
	welcome, err := c.ReadRecord()
	if err != nil {
		return nil, fmt.Errorf("the other end did not accept the proof: %w", err)
	}
	if len(welcome) != 0 {
		return nil, fmt.Errorf("%w: first record has %d bytes, want none", ErrStranger, len(welcome))
	}
	return c, nil
}

// Server runs the other side of Client. keyOf returns the key for what the client says it is, or an
// error when there is none; it is called before anything is proved. On failure conn is closed, and
// the client cannot have succeeded.
func Server(ctx context.Context, conn net.Conn, keyOf func(Hello) ([]byte, error)) (*Conn, Hello, error) {
	return serve(ctx, conn, keyOf, func() bool { return true })
}

// serve is Server with a last say: proven is called once the client's proof is right and before the
// client is told so, and may still refuse. After that neither ctx nor proven ends the connection:
// the client may count on it.
func serve(ctx context.Context, conn net.Conn, keyOf func(Hello) ([]byte, error), proven func() bool) (*Conn, Hello, error) {
	stop := context.AfterFunc(ctx, func() { expire(conn) })
	c, hello, err := server(conn, keyOf)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil && !proven() {
		err = errEvicted
	}
	if err == nil {
		if err = c.WriteRecord(nil); err == nil {
			err = c.Flush()
		}
	}
	if err != nil {
		return nil, Hello{}, failed(ctx, conn, err)
	}
	return c, hello, nil
}

func server(conn net.Conn, keyOf func(Hello) ([]byte, error)) (*Conn, Hello, error) {
	var first [helloSize]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return nil, Hello{}, err
	}
	hello, err := decodeHello(first[:])
	if err != nil {
		return nil, Hello{}, fmt.Errorf("%w: %w", ErrStranger, err)
	}
	key, err := keyOf(hello)
	if err != nil {
		return nil, Hello{}, fmt.Errorf("%w: %w", ErrStranger, err)
	}
	if len(key) < KeySize {
		return nil, Hello{}, fmt.Errorf("key has %d bytes, want at least %d", len(key), KeySize)
	}
	nonce := freshNonce()
	answer := append(nonce[:nonceSize:nonceSize], prove(key, "server", first[:], nonce)...)
	if _, err := conn.Write(answer); err != nil {
		return nil, Hello{}, err
	}
	var proof [proofSize]byte
	if _, err := io.ReadFull(conn, proof[:]); err != nil {
		return nil, Hello{}, err
	}
	if !hmac.Equal(proof[:], prove(key, "client", first[:], nonce)) {
		return nil, Hello{}, fmt.Errorf("%w: its proof is wrong", ErrStranger)
	}
	c, err := newConn(conn, key, first[:], nonce, "server", "client")
	return c, hello, err
}

// expire makes all reads and writes of conn fail, those under way too.
func expire(conn net.Conn) { _ = conn.SetDeadline(time.Unix(1, 0)) }

// failed closes conn and adds to err with whom it happened, and that ctx was the reason if it was.
func failed(ctx context.Context, conn net.Conn, err error) error {
	_ = conn.Close()
	if ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return fmt.Errorf("handshake with %v: %w", conn.RemoteAddr(), err)
}

// prove is what only one who knows the key can compute for these nonces. Hello and nonce have fixed
// sizes and label ends with a zero byte, so no two different inputs are the same string of bytes.
func prove(key []byte, label string, hello, nonce []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte("ckpt handshake " + label + "\x00"))
	m.Write(hello)
	m.Write(nonce)
	return m.Sum(nil)
}

// recordKey is the key for the records that the end called label sends on this connection.
func recordKey(key []byte, label string, hello, nonce []byte) ([]byte, error) {
	salt := sha256.Sum256(append(append([]byte(nil), hello...), nonce...))
	return hkdf.Key(sha256.New, key, salt[:], "ckpt records of "+label, 32)
}

func freshNonce() []byte {
	b := make([]byte, nonceSize)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	return b
}
