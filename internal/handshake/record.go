// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// MaxRecord is the largest number of bytes in one record.
const MaxRecord = 64 << 10

const (
	lengthSize = 4
	tlsRecord  = 16 << 10 // bytes of ours that one record of TLS can hold
)

// Conn is a connection whose ends know each other. One goroutine may read while another writes;
// neither side may be used by two at once. Close may be called by any.
type Conn struct {
	conn net.Conn // below TLS
	tls  *tls.Conn
	in   *bufio.Reader
	out  *bufio.Writer // small records share one of TLS
}

func newConn(conn net.Conn, t *tls.Conn) *Conn {
	return &Conn{conn: conn, tls: t, in: bufio.NewReader(t), out: bufio.NewWriterSize(t, tlsRecord)}
}

// ReadRecord returns the next record in memory of its own. io.EOF means that the other end closed
// between records; anything else is fatal for the connection.
func (c *Conn) ReadRecord() ([]byte, error) {
	var length [lengthSize]byte
	if _, err := io.ReadFull(c.in, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > MaxRecord {
		return nil, fmt.Errorf("record has %d bytes, want at most %d", n, MaxRecord)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.in, b); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return b, nil
}

// WriteRecord puts p in the buffer; Flush sends it. p may be reused at once.
func (c *Conn) WriteRecord(p []byte) error {
	if len(p) > MaxRecord {
		return fmt.Errorf("record has %d bytes, want at most %d", len(p), MaxRecord)
	}
	var length [lengthSize]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(p)))
	if _, err := c.out.Write(length[:]); err != nil {
		return err
	}
	_, err := c.out.Write(p)
	return err
}

// Flush sends what WriteRecord left in the buffer.
func (c *Conn) Flush() error { return c.out.Flush() }

// Read and Write are a stream, for those who need no records: two ends use either.
func (c *Conn) Read(p []byte) (int, error) { return c.in.Read(p) }

// Write sends p at once.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.out.Write(p)
	if err != nil {
		return n, err
	}
	return n, c.Flush()
}

// SetDeadline, SetReadDeadline and SetWriteDeadline are those of net.Conn.
func (c *Conn) SetDeadline(t time.Time) error      { return c.conn.SetDeadline(t) }
func (c *Conn) SetReadDeadline(t time.Time) error  { return c.conn.SetReadDeadline(t) }
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.conn.SetWriteDeadline(t) }

// NetConn is the connection below.
func (c *Conn) NetConn() net.Conn { return c.conn }

// RemoteAddr is where the other end connects from.
func (c *Conn) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// CloseWrite says that nothing follows; the other end reads io.EOF after everything that was flushed.
func (c *Conn) CloseWrite() error {
	err := c.tls.CloseWrite()
	return errors.Join(err, shut(c.conn))
}

// shut is CloseWrite of the connection below, if it has one.
func shut(conn net.Conn) error {
	if t, ok := conn.(interface{ CloseWrite() error }); ok {
		return t.CloseWrite()
	}
	return nil
}

// Close ends the connection without flushing, and waits for nothing. It shuts the connection down rather than
// closing its descriptor alone: a child that the process forked meanwhile (a frozen copy of it, a subshell)
// holds the descriptor too, and the peer would wait for as long as that child lives.
func (c *Conn) Close() error {
	_ = shut(c.conn)
	if t, ok := c.conn.(interface{ CloseRead() error }); ok {
		_ = t.CloseRead()
	}
	return c.conn.Close()
}
