// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// ErrStranger says that the other end has another key than it should, speaks another protocol, or is not
// libckpt at all. The connection is of no use; the error wraps what was seen.
var ErrStranger = errors.New("the other end is not part of this job")

// Hello says who wants to talk to whom about what. It is sent in the clear and proved afterwards.
type Hello struct {
	Protocol [8]byte  // what is spoken once the handshake is done: letters and digits
	Job      [16]byte // tells jobs apart, so that a wrong number is noticed; not a secret
	From, To uint32   // ranks, or whatever the protocol means by them
}

// name is the Hello as the name of a protocol for TLS: "ckptsig3/<job>/3/4".
func (h Hello) name() string {
	return fmt.Sprintf("%s/%x/%d/%d", h.Protocol[:], h.Job[:], h.From, h.To)
}

// parseHello reads what name has written, and takes no other form of it.
func parseHello(name string) (Hello, error) {
	var h Hello
	bad := fmt.Errorf("it speaks %q, which is no protocol of libckpt", name)
	parts := strings.Split(name, "/")
	if len(parts) != 4 || len(parts[0]) != len(h.Protocol) || len(parts[1]) != hex.EncodedLen(len(h.Job)) {
		return h, bad
	}
	copy(h.Protocol[:], parts[0])
	_, jobErr := hex.Decode(h.Job[:], []byte(parts[1]))
	from, fromErr := strconv.ParseUint(parts[2], 10, 32)
	to, toErr := strconv.ParseUint(parts[3], 10, 32)
	h.From, h.To = uint32(from), uint32(to)
	if errors.Join(jobErr, fromErr, toErr) != nil || h.name() != name {
		return Hello{}, bad
	}
	return h, nil
}

// config is TLS as both ends use it: hello is the one protocol, and peer the one key that the other may have.
func config(me *Identity, hello Hello, peer PublicKey) *tls.Config {
	return &tls.Config{
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return me.certificate() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return me.certificate() },
		MinVersion:           tls.VersionTLS13,
		NextProtos:           []string{hello.name()},
		// The chain and the name of a certificate are not looked at: its key is known (pinned).
		InsecureSkipVerify: true,
		ClientAuth:         tls.RequireAnyClientCert,
		VerifyConnection: func(s tls.ConnectionState) error {
			public, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || string(public) != string(peer[:]) {
				return fmt.Errorf("%w: it has another key", ErrStranger)
			}
			if s.NegotiatedProtocol != hello.name() {
				return fmt.Errorf("%w: it did not say which protocol it speaks", ErrStranger)
			}
			return nil
		},
		SessionTicketsDisabled: true,
		// Links carry the words of a protocol, which are worth nothing when the job is over. So a key exchange
		// that a quantum computer of later years cannot undo is not worth three times the bytes. P-256 is for
		// FIPS 140 mode, where X25519 may not be used.
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256},
		// What is written together is one record of TLS from the start.
		DynamicRecordSizingDisabled: true,
	}
}

// Client proves to the server at the other end of conn that it is me, and has the server prove that it is
// peer. On success conn belongs to the returned Conn; on failure conn is closed. An error that wraps
// ErrStranger will not get better by trying again with the same peer. A server whose Guard is flooded closes
// connections early, which looks like io.EOF here.
func Client(ctx context.Context, conn net.Conn, hello Hello, me *Identity, peer PublicKey) (*Conn, error) {
	stop := context.AfterFunc(ctx, func() { expire(conn) })
	c, err := client(conn, hello, me, peer)
	if !stop() && err == nil {
		err = ctx.Err() // the deadline may be set at any moment from now on
	}
	if err != nil {
		return nil, failed(ctx, conn, err)
	}
	return c, nil
}

func client(conn net.Conn, hello Hello, me *Identity, peer PublicKey) (*Conn, error) {
	t := tls.Client(conn, config(me, hello, peer))
	if err := t.Handshake(); err != nil {
		return nil, causeOf(err)
	}
	c := newConn(conn, t)
	welcome, err := c.ReadRecord()
	if err != nil {
		return nil, fmt.Errorf("the other end did not accept the proof: %w", causeOf(err))
	}
	if len(welcome) != 0 {
		return nil, fmt.Errorf("%w: first record has %d bytes, want none", ErrStranger, len(welcome))
	}
	return c, nil
}

// KeyOf tells a server which public key a client with this Hello must have, or why the client is refused. It is
// called before anything is proved.
type KeyOf func(Hello) (PublicKey, error)

// Server runs the other side of Client. On failure conn is closed, and the client cannot have succeeded.
func Server(ctx context.Context, conn net.Conn, me *Identity, keyOf KeyOf) (*Conn, Hello, error) {
	return serve(ctx, conn, me, keyOf, func() bool { return true })
}

// serve is Server with a last say: proven is called once the client's proof is right and before the
// client is told so, and may still refuse. After that neither ctx nor proven ends the connection:
// the client may count on it.
func serve(ctx context.Context, conn net.Conn, me *Identity, keyOf KeyOf, proven func() bool) (*Conn, Hello, error) {
	stop := context.AfterFunc(ctx, func() { expire(conn) })
	c, hello, err := server(conn, me, keyOf)
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

func server(conn net.Conn, me *Identity, keyOf KeyOf) (*Conn, Hello, error) {
	var hello Hello
	var refused error
	in := &limited{Conn: conn, left: maxHandshake}
	t := tls.Server(in, &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			var peer PublicKey
			if hello, peer, refused = expect(info.SupportedProtos, keyOf); refused != nil {
				if len(info.SupportedProtos) == 0 {
					return nil, refused
				}
				// The client is told that its protocol is none here, which it is not by an error of ours.
				return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"none"}}, nil
			}
			return config(me, hello, peer), nil
		},
	})
	err := t.Handshake()
	if refused != nil {
		return nil, Hello{}, fmt.Errorf("%w: %w", ErrStranger, refused)
	}
	if err != nil {
		return nil, Hello{}, causeOf(err)
	}
	in.left = -1
	return newConn(conn, t), hello, nil
}

// expect returns what a client says that offers these protocols, and the key that it must have.
func expect(names []string, keyOf KeyOf) (Hello, PublicKey, error) {
	if len(names) != 1 {
		return Hello{}, PublicKey{}, fmt.Errorf("it speaks %d protocols, want one of libckpt", len(names))
	}
	hello, err := parseHello(names[0])
	if err != nil {
		return Hello{}, PublicKey{}, err
	}
	peer, err := keyOf(hello)
	return hello, peer, err
}

// maxHandshake is how many bytes a server reads from a client that has proved nothing yet. A client sends 600.
const maxHandshake = 8 << 10

// limited is a connection of which only so many bytes may be read; -1: all.
type limited struct {
	net.Conn
	left int
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left < 0 {
		return l.Conn.Read(p)
	}
	if l.left == 0 {
		return 0, fmt.Errorf("%w: its handshake has more than %d bytes", ErrStranger, maxHandshake)
	}
	n, err := l.Conn.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// formerly is how connections of the protocol before TLS began.
const formerly = "ckpth"

// causeOf adds to an error of a handshake whose fault it is, where it is one of the other end.
func causeOf(err error) error {
	var plain tls.RecordHeaderError
	var op *net.OpError
	var network net.Error
	switch {
	case errors.As(err, &plain) && string(plain.RecordHeader[:]) == formerly:
		return fmt.Errorf("%w: it has an older version of libckpt", ErrStranger)
	case errors.Is(err, ErrStranger):
		return err
	case errors.As(err, &op) && op.Op == "remote error":
		return fmt.Errorf("%w: it refuses: %w", ErrStranger, op.Err)
	case errors.As(err, &op) && op.Op == "local error":
		return fmt.Errorf("%w: %w", ErrStranger, op.Err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &network):
		return err
	}
	return fmt.Errorf("%w: %w", ErrStranger, err)
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
