// SPDX-License-Identifier: Apache-2.0

package tap

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func monotonic(t *testing.T) uint64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return uint64(ts.Nano())
}

// Every way through a socket is seen: families, system calls, both directions; what moves nothing is not.
func TestSockets(t *testing.T) {
	needPrivilege(t)
	s, err := WatchSockets([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	before := monotonic(t)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(pair[0], &st); err != nil {
		t.Fatal(err)
	}
	first := st.Ino
	_ = unix.Fstat(pair[1], &st)
	second := st.Ino
	buf := make([]byte, 100)
	must := func(n int, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Write(pair[0], buf[:11]))
	must(unix.Writev(pair[0], [][]byte{buf[:3], buf[:4]}))
	must(0, unix.Sendto(pair[0], buf[:5], 0, nil))
	n, _, err := unix.Recvfrom(pair[1], buf, unix.MSG_PEEK)
	must(n, err)
	must(unix.Read(pair[1], buf))
	if _, err := unix.Read(pair[1], nil); err != nil {
		t.Fatal(err)
	}
	// A pipe is none, and neither is a file.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(buf)
	_, _ = r.Read(buf)
	// TCP, by Go's runtime.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	must(a.Write(buf[:77]))
	must(b.Read(buf))
	goes, err := GoSocketsOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	all, err := SocketsOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	after := monotonic(t)
	moved, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[uint64][2]uint32{} // received, sent
	for _, m := range moved {
		if m.PID != os.Getpid() || m.At < before || m.At > after {
			t.Errorf("%+v, from %d to %d", m, before, after)
		}
		v := sums[m.Socket]
		if m.Sent {
			v[1] += m.Bytes
		} else {
			v[0] += m.Bytes
		}
		sums[m.Socket] = v
	}
	if sums[first] != [2]uint32{0, 23} || sums[second] != [2]uint32{23, 0} || !all[first] || goes[first] {
		t.Errorf("%v: of %d and %d", sums, first, second)
	}
	for name, c := range map[string]struct {
		conn net.Conn
		want [2]uint32
	}{"sender": {a, [2]uint32{0, 77}}, "receiver": {b, [2]uint32{77, 0}}} {
		raw, err := c.conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) })
		if err != nil || sums[st.Ino] != c.want || !goes[st.Ino] || !all[st.Ino] {
			t.Errorf("%s: %v, Go's: %v, %v", name, sums[st.Ino], goes[st.Ino], err)
		}
	}
	if len(sums) != 4 {
		t.Errorf("%v", sums)
	}
}

// A process that nobody watches is not seen.
func TestSocketsOfOthers(t *testing.T) {
	needPrivilege(t)
	p := startChild(t)
	s, err := WatchSockets([]int{p.Process.Pid})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(pair[0], []byte("x")); err != nil {
		t.Fatal(err)
	}
	p.do(t, 1, 1, 0)
	if moved, err := s.Stop(); err != nil || len(moved) != 0 {
		t.Errorf("%v, %v", moved, err)
	}
	if _, err := WatchSockets([]int{1 << 30}); err == nil {
		t.Error("a process that is not there is watched")
	}
	if _, err := SocketsOf(1 << 30); err == nil {
		t.Error("a process that is not there has sockets")
	}
}
