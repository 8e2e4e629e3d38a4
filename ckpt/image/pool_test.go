// SPDX-License-Identifier: Apache-2.0

package image

import (
	"testing"
	"time"
	"unsafe"
)

func filled(t *testing.T, n, size int) *pool {
	t.Helper()
	l := &pool{}
	l.fill(n, size)
	t.Cleanup(l.empty)
	return l
}

// TestPool: all buffers can be had at once, none is part of another, each begins at a page, and who wants one more waits.
func TestPool(t *testing.T) {
	const n, size = 7, 3 * PageSize
	for _, own := range []bool{false, true} {
		l := filled(t, n, size)
		if own { // as where there is no memory for all at once
			for _, b := range l.idle {
				b.p = nil
			}
		}
		var lent []*buffer
		for i := range n {
			b := l.take()
			if len(b.p) != size || uintptr(unsafe.Pointer(&b.p[0]))%PageSize != 0 {
				t.Fatalf("own %v: buffer %d has %d bytes at %p", own, i, len(b.p), &b.p[0])
			}
			for j := range b.p {
				b.p[j] = byte(i + 1)
			}
			lent = append(lent, b)
		}
		for i, b := range lent {
			for j := range b.p {
				if b.p[j] != byte(i+1) {
					t.Fatalf("own %v: byte %d of buffer %d belongs to buffer %d, too", own, j, i, b.p[j]-1)
				}
			}
		}
		more := make(chan *buffer)
		go func() { more <- l.take() }()
		select {
		case <-more:
			t.Fatalf("own %v: there were more buffers than were made", own)
		case <-time.After(20 * time.Millisecond):
		}
		lent[3].refs.Add(1)
		lent[3].drop() // someone else still has it
		select {
		case <-more:
			t.Fatalf("own %v: a buffer that is written from was lent again", own)
		case <-time.After(20 * time.Millisecond):
		}
		lent[3].drop()
		if b := <-more; b != lent[3] {
			t.Fatalf("own %v: another buffer came than the one that was given back", own)
		}
		for _, b := range lent {
			b.drop()
		}
		if len(l.idle) != n || len(l.tokens) != n {
			t.Errorf("own %v: of %d buffers %d are idle, for %d", own, n, len(l.idle), len(l.tokens))
		}
	}
}

// TestPoolLast: where one buffer is enough, one is touched.
func TestPoolLast(t *testing.T) {
	l := filled(t, 5, PageSize)
	first := l.take()
	first.drop()
	for i := range 10 {
		b := l.take()
		if b != first {
			t.Fatalf("the %d. loan is of another buffer than the one that came back last", i+2)
		}
		b.drop()
	}
}

// TestPoolEmpty: the memory is given back, but not while someone has a buffer.
func TestPoolEmpty(t *testing.T) {
	l := filled(t, 3, PageSize)
	if l.area == nil {
		t.Fatal("the buffers are not in one place")
	}
	b := l.take()
	b.p[0] = 1
	if l.empty(); l.area == nil || b.p[0] != 1 {
		t.Fatal("memory was given back of which a buffer was lent")
	}
	b.drop()
	if l.empty(); l.area != nil {
		t.Error("memory was not given back")
	}
}
