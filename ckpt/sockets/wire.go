// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Reading and writing of sockets that will be the program's: no descriptor of them may be left in Go's poller.

var errLate = errors.New("the other process does not answer in time")

// wait polls a descriptor.
func wait(ctx context.Context, fd int, events int16, end time.Time) error {
	const slice = 50 * time.Millisecond // so that the end of ctx is seen
	for {
		left := min(time.Until(end), slice)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if left <= 0 {
			return errLate
		}
		p := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(p, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			return nil
		}
	}
}

func readAll(ctx context.Context, fd int, b []byte, end time.Time) error {
	for len(b) > 0 {
		if err := wait(ctx, fd, unix.POLLIN, end); err != nil {
			return err
		}
		n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		default:
			b = b[n:]
		}
	}
	return nil
}

func writeAll(fd int, b []byte, end time.Time) error {
	for len(b) > 0 {
		if err := wait(context.Background(), fd, unix.POLLOUT, end); err != nil {
			return err
		}
		n, err := unix.SendmsgN(fd, b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		default:
			b = b[n:]
		}
	}
	return nil
}

func readFrame(ctx context.Context, fd int, end time.Time) ([]byte, error) {
	var head [8]byte
	if err := readAll(ctx, fd, head[:], end); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(head[:])
	if n > maxData {
		return nil, fmt.Errorf("the other end has %d bytes", n)
	}
	b := make([]byte, n)
	return b, readAll(ctx, fd, b, end)
}

// arrived waits until so many bytes can be read.
func arrived(fd, n int, end time.Time) error {
	for pause := lookFirst; ; pause = min(2*pause, lookLast) {
		have := unread(fd)
		switch {
		case have == n:
			return nil
		case have > n:
			return fmt.Errorf("%d bytes have come, want %d", have, n)
		case time.Now().After(end):
			return fmt.Errorf("%d of %d bytes that the program had not read have come: %w", have, n, errLate)
		}
		time.Sleep(pause)
	}
}

// room has a socket take that many bytes though nobody reads, until undo is called.
func room(fd, n int) (undo func()) {
	s := socket{fd: fd}
	if n > 0 {
		s.makeRoom(n)
	}
	return s.smallAgain
}

// acceptSoon waits for a connection.
func acceptSoon(ln int, end time.Time) (int, unix.Sockaddr, error) {
	for {
		if err := wait(context.Background(), ln, unix.POLLIN, end); err != nil {
			return -1, nil, err
		}
		// The listening socket waits, so a connection that is gone meanwhile is waited for in vain but for the time limit.
		if err := unix.SetNonblock(ln, true); err != nil {
			return -1, nil, err
		}
		fd, from, err := unix.Accept4(ln, unix.SOCK_CLOEXEC)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED) {
			continue
		}
		return fd, from, err
	}
}

// dial connects in bounded time. The socket waits in calls afterwards, as a new one does.
func dial(ctx context.Context, family int, to netip.AddrPort) (int, error) {
	return dialUntil(ctx, family, to, time.Now().Add(dialTime))
}

func dialUntil(ctx context.Context, family int, to netip.AddrPort, end time.Time) (int, error) {
	fd, err := newSocket(family)
	if err != nil {
		return -1, err
	}
	if family == unix.AF_INET6 {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	err = unix.SetNonblock(fd, true)
	if err == nil {
		err = unix.Connect(fd, sockaddrOf(family, to))
	}
	if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
		if err = wait(ctx, fd, unix.POLLOUT, end); err == nil {
			var e int
			if e, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && e != 0 {
				err = unix.Errno(e)
			}
		}
	}
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// dialTime is how long one address is tried.
const dialTime = 5 * time.Second
