// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"bytes"
	"testing"
)

// FuzzClient: no answer of somebody who does not know the key is taken.
func FuzzClient(f *testing.F) {
	f.Add(make([]byte, answerSize))
	f.Add(make([]byte, answerSize+20))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &deadlineConn{bufferConn{Buffer: *bytes.NewBuffer(bytes.Clone(b))}}
		if _, err := client(c, hello, key); err == nil {
			t.Errorf("%x is taken for one of this job", b)
		}
	})
}

// FuzzHello: what is read is what would be written.
func FuzzHello(f *testing.F) {
	f.Add(hello.encode(make([]byte, nonceSize)))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHello(b)
		if err == nil && !bytes.Equal(h.encode(b[len(b)-nonceSize:]), b) {
			t.Errorf("%x is read as %+v", b, h)
		}
	})
}
