// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"
)

// recorded are the bytes that both ends sent in a handshake that went well.
func recorded(f *testing.F) (client, server []byte) {
	a, b := pair(f)
	rec := &recorder{Conn: a}
	if _, _, cerr, serr := shake(f, rec, b, hello, alice); cerr != nil || serr != nil {
		f.Fatal(cerr, serr)
	}
	return rec.sent, rec.received
}

// deadlineConn reads what the stranger sent; what is written to it is lost.
type deadlineConn struct{ bufferConn }

func (c *deadlineConn) Write(p []byte) (int, error) { return len(p), nil }

func FuzzServer(f *testing.F) {
	sent, received := recorded(f)
	f.Add(sent)
	f.Add(received)
	f.Add([]byte("ckpthsk1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &deadlineConn{bufferConn{Buffer: *bytes.NewBuffer(bytes.Clone(b))}}
		if _, _, err := server(c, bob, keyOf); err == nil {
			t.Errorf("%x opens the door", b)
		}
	})
}

// FuzzClient: no answer of somebody who has not the key is taken.
func FuzzClient(f *testing.F) {
	sent, received := recorded(f)
	f.Add(sent)
	f.Add(received)
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &deadlineConn{bufferConn{Buffer: *bytes.NewBuffer(bytes.Clone(b))}}
		if _, err := client(c, hello, alice, bob.Public()); err == nil {
			t.Errorf("%x is taken for one of this job", b)
		}
	})
}

// FuzzHello: what is read is what would be written.
func FuzzHello(f *testing.F) {
	f.Add(hello.name())
	f.Add("testing1/6a000000000000000000000000000000/03/4")
	f.Add("testing1/6A000000000000000000000000000000/3/4294967296")
	f.Fuzz(func(t *testing.T, name string) {
		h, err := parseHello(name)
		if err == nil && h.name() != name {
			t.Errorf("%q is read as %+v", name, h)
		}
	})
}

// FuzzReadRecord: one who sits between two ends makes neither believe a word.
func FuzzReadRecord(f *testing.F) {
	f.Add([]byte{23, 3, 3, 0, 20, 1, 2, 3})
	f.Add([]byte{21, 3, 3, 0, 2, 1, 0})
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, reader, wire := tapped(t)
		wire.Buffer = *bytes.NewBuffer(bytes.Clone(b))
		if r, err := reader.ReadRecord(); err == nil {
			t.Errorf("%x is record %x", b, r)
		}
	})
}

// FuzzFrame: a peer that is who it should be may still say anything; what is read is what would be written.
func FuzzFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 7, 0, 0, 0, 0})
	f.Add([]byte{0, 1, 0, 1})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var again bytes.Buffer
		c := &Conn{in: bufio.NewReader(bytes.NewReader(b)), out: bufio.NewWriter(&again)}
		for {
			r, err := c.ReadRecord()
			if err != nil {
				whole := err == io.EOF
				if _ = c.out.Flush(); !bytes.HasPrefix(b, again.Bytes()) || whole != (again.Len() == len(b)) {
					t.Errorf("%x is read as %x, %v", b, again.Bytes(), err)
				}
				return
			}
			if err := errors.Join(c.WriteRecord(r)); err != nil {
				t.Fatal(err)
			}
		}
	})
}
