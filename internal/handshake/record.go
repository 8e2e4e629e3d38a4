// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// MaxRecord is the largest number of bytes in one record.
const MaxRecord = 64 << 10

const (
	lengthSize = 4
	tagSize    = 16
)

// Conn is a connection whose ends know each other. One goroutine may read while another writes;
// neither side may be used by two at once. Close may be called by any.
type Conn struct {
	conn net.Conn
	in   *bufio.Reader
	out  *bufio.Writer
	open *sealer // of what arrives
	seal *sealer // of what leaves
	rest []byte  // of a record that Read returned in part
	buf  []byte  // scratch of WriteRecord
}

// sealer numbers and seals the records of one direction.
type sealer struct {
	aead cipher.AEAD
	next uint64
}

func (s *sealer) nonce() []byte {
	var n [12]byte
	binary.BigEndian.PutUint64(n[4:], s.next)
	s.next++
	return n[:]
}

func newSealer(key, hello, nonce []byte, label string) (*sealer, error) {
	k, err := recordKey(key, label, hello, nonce)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(k)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &sealer{aead: aead}, nil
}

func newConn(conn net.Conn, key, hello, nonce []byte, me, peer string) (*Conn, error) {
	open, err := newSealer(key, hello, nonce, peer)
	if err != nil {
		return nil, err
	}
	seal, err := newSealer(key, hello, nonce, me)
	if err != nil {
		return nil, err
	}
	return &Conn{
		conn: conn,
		in:   bufio.NewReaderSize(conn, 32<<10),
		out:  bufio.NewWriterSize(conn, 32<<10),
		open: open,
		seal: seal,
	}, nil
}

// ReadRecord returns the next record in memory of its own. io.EOF means that the other end closed
// between records; anything else is fatal for the connection.
func (c *Conn) ReadRecord() ([]byte, error) {
	var length [lengthSize]byte
	if _, err := io.ReadFull(c.in, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n < tagSize || n > MaxRecord+tagSize {
		return nil, fmt.Errorf("record %d has %d bytes, want %d to %d", c.open.next, n, tagSize, MaxRecord+tagSize)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.in, b); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	p, err := c.open.aead.Open(b[:0], c.open.nonce(), b, length[:])
	if err != nil {
		return nil, fmt.Errorf("record %d is forged or out of order: %w", c.open.next-1, err)
	}
	return p, nil
}

// WriteRecord seals p and puts it in the buffer; Flush sends it. p may be reused at once.
func (c *Conn) WriteRecord(p []byte) error {
	if len(p) > MaxRecord {
		return fmt.Errorf("record has %d bytes, want at most %d", len(p), MaxRecord)
	}
	var length [lengthSize]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(p)+tagSize))
	c.buf = c.seal.aead.Seal(append(c.buf[:0], length[:]...), c.seal.nonce(), p, length[:])
	_, err := c.out.Write(c.buf)
	return err
}

// Flush sends what WriteRecord left in the buffer.
func (c *Conn) Flush() error { return c.out.Flush() }

// Read reads the bytes of the records, as a stream.
func (c *Conn) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		r, err := c.ReadRecord()
		if err != nil {
			return 0, err
		}
		c.rest = r
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write sends p at once, in as many records as it needs.
func (c *Conn) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n := min(len(p)-done, MaxRecord)
		if err := c.WriteRecord(p[done : done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return done, c.Flush()
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
	if t, ok := c.conn.(interface{ CloseWrite() error }); ok {
		return t.CloseWrite()
	}
	return nil
}

// Close ends the connection without flushing. It shuts the connection down rather than closing its
// descriptor alone: a child that the process forked meanwhile (a frozen copy of it, a subshell) holds
// the descriptor too, and the peer would wait for as long as that child lives.
func (c *Conn) Close() error {
	_ = c.CloseWrite()
	if t, ok := c.conn.(interface{ CloseRead() error }); ok {
		_ = t.CloseRead()
	}
	return c.conn.Close()
}
