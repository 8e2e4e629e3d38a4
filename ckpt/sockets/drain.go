// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// How often a sender looks whether all is acknowledged, and how long it does so without any progress. A receiver whose
// buffer was full tells the sender of its room by an acknowledgement that may be lost, and the sender asks again after a
// fifth of a second and more.
const (
	lookFirst = 100 * time.Microsecond
	lookLast  = 10 * time.Millisecond
	standsFor = time.Second
	standsMax = 10 * time.Second
)

// Drain has all that was sent on connections of the job reach the receiver's kernel, and looks for ends that are missing.
// What stays under way is an obstacle. ctx ends the wait.
func (h *Here) Drain(ctx context.Context) Word {
	for _, s := range h.sockets {
		if s.other == nil {
			continue
		}
		for i := range h.reports[s.other.Rank].Ends {
			if e := &h.reports[s.other.Rank].Ends[i]; e.Index == s.other.Index && e.Queued > 0 {
				s.makeRoom(e.Queued)
			}
		}
	}
	for _, s := range h.sockets {
		if s.other != nil && !s.acknowledged(ctx) {
			s.obstacle = &Obstacle{Passing: true, What: fmt.Sprintf("a TCP socket to rank %d with %d bytes under way that have no room there", s.other.Rank, unacknowledged(s.fd)),
				Hint: "they are waited for until the program there reads; more room is net.ipv4.tcp_rmem"}
		}
	}
	return h.strays()
}

// acknowledged waits until the other kernel has all that was sent.
func (s *socket) acknowledged(ctx context.Context) bool {
	left, since, pause := unacknowledged(s.fd), time.Now(), lookFirst
	patience := standsFor
	if _, info := tcpState(s.fd); left > 0 { // when the kernel tries again what the receiver had to drop, at the latest
		patience = min(max(patience, 2*time.Duration(info.Rto)*time.Microsecond), standsMax)
	}
	for left > 0 && ctx.Err() == nil && time.Since(since) < patience {
		time.Sleep(pause)
		pause = min(2*pause, lookLast)
		if now := unacknowledged(s.fd); now < left {
			left, since = now, time.Now()
		}
	}
	return left == 0
}

// makeRoom has the socket take that many bytes more than it holds, though nobody reads. The kernel makes its buffer larger
// for who wants to be woken only when so much is there, up to net.ipv4.tcp_rmem, unless the program has chosen a size:
// then the kernel is told meanwhile that it has not. Who may, has more. A look tells the sender of the room.
func (s *socket) makeRoom(more int) {
	want := unread(s.fd) + more
	want += want/4 + 64<<10
	low, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT)
	if err != nil {
		return
	}
	was, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return
	}
	if lock, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, soBufLock); err == nil {
		s.size, s.lock = was, lock
		if lock&bufLockReceive != 0 {
			_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, soBufLock, lock&^bufLockReceive)
		}
	}
	_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, want)
	_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, low) // wakes who is to be woken
	if have, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil && have < want && s.size > 0 {
		if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, want) == nil { // the kernel takes twice that
			_ = unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, want)
		}
	}
	_, _, _ = peekAt(s.fd, make([]byte, 1))
}

// smallAgain gives the buffer its former size: what is in it stays there. Else each checkpoint would leave more under
// way than the one before. Where the kernel has chosen the size, it goes on choosing.
func (s *socket) smallAgain() {
	if s.size == 0 {
		return
	}
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, s.size/2) != nil {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, s.size/2)
	}
	_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, soBufLock, s.lock)
	s.size = 0
}

// SO_BUF_LOCK of <linux/socket.h>, and its bit for the receive buffer.
const (
	soBufLock      = 72
	bufLockReceive = 2
)

// Restore puts back what Drain has changed. What is in buffers stays there.
func (h *Here) Restore() {
	if h == nil {
		return
	}
	for _, s := range h.sockets {
		s.smallAgain()
	}
}

// Words takes what all have told after Drain.
func (h *Here) Words(all []Word) {
	for i, s := range h.sockets {
		ref := Ref{h.rank, i}
		closed := slices.ContainsFunc(all, func(w Word) bool { return slices.Contains(w.Closed, ref) })
		held := slices.ContainsFunc(all, func(w Word) bool { return slices.Contains(w.Held, ref) })
		s.closed = closed && !held
	}
}
