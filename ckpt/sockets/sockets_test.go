// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A test plays the processes of a job: each has some descriptors of this process.

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func closeLater(t *testing.T, fds ...int) {
	t.Cleanup(func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	})
}

func home(family int) unix.Sockaddr {
	if family == unix.AF_INET6 {
		return &unix.SockaddrInet6{Addr: [16]byte{15: 1}}
	}
	return &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
}

func listening(t *testing.T, family int) int {
	t.Helper()
	fd, err := newSocket(family)
	check(t, err)
	check(t, unix.Bind(fd, home(family)))
	check(t, unix.Listen(fd, 7))
	return fd
}

// connected makes a connection: who has connected, who has accepted.
func connected(t *testing.T, family int) (int, int) {
	t.Helper()
	ln := listening(t, family)
	defer unix.Close(ln)
	a, err := newSocket(family)
	check(t, err)
	at, err := unix.Getsockname(ln)
	check(t, err)
	check(t, unix.Connect(a, at))
	b, _, err := unix.Accept4(ln, unix.SOCK_CLOEXEC)
	check(t, err)
	return a, b
}

func send(t *testing.T, fd int, text string) {
	t.Helper()
	check(t, writeAll(fd, []byte(text), time.Now().Add(patience)))
}

func wantRead(t *testing.T, what string, fd int, text string, end bool) {
	t.Helper()
	b := make([]byte, len(text))
	if err := readAll(t.Context(), fd, b, time.Now().Add(patience)); err != nil || string(b) != text {
		t.Errorf("%s: %q, %v, want %q", what, b[:min(len(b), 80)], err, text[:min(len(text), 80)])
		return
	}
	if end {
		if err := readAll(t.Context(), fd, b[:1:1], time.Now().Add(patience)); err == nil {
			t.Errorf("%s: more than %q", what, text)
		}
	} else if n := unread(fd); n != 0 {
		t.Errorf("%s: %d bytes more than %q", what, n, text)
	}
}

// save plays the processes of a job until their tables are there.
func save(t *testing.T, processes ...[]int) ([]*Here, []Table) {
	t.Helper()
	return saveWith(t, nil, processes...)
}

// saveWith is save; was are visitors of the first process.
func saveWith(t *testing.T, was []Visitor, processes ...[]int) ([]*Here, []Table) {
	t.Helper()
	here := make([]*Here, len(processes))
	reports, words := make([]Report, len(processes)), make([]Word, len(processes))
	for r, fds := range processes {
		var err error
		here[r], err = Look(fds, &Names{}, was)
		was = nil
		check(t, err)
		reports[r] = here[r].Report()
	}
	var wg sync.WaitGroup
	for r := range here {
		here[r].Match(r, reports)
		wg.Go(func() { words[r] = here[r].Drain(t.Context()) })
	}
	wg.Wait()
	tables := make([]Table, len(here))
	for r := range here {
		here[r].Restore()
		here[r].Words(words)
		var err error
		tables[r], err = here[r].Table()
		check(t, err)
	}
	return here, tables
}

// kept is the index of a descriptor that can be kept.
func keptAt(t *testing.T, h *Here, fd int) int {
	t.Helper()
	i, o, ok := h.Keep(fd)
	if !ok {
		t.Fatalf("descriptor %d is not kept: %+v", fd, o)
	}
	return i
}

// makeAll plays the processes of a job that is continued from these tables.
func makeAll(t *testing.T, tables []Table) ([]*Made, []*Names, error) {
	t.Helper()
	made, names, errs := make([]*Made, len(tables)), make([]*Names, len(tables)), make([]error, len(tables))
	var mu sync.Mutex
	all, complete := make([][]byte, len(tables)), make(chan struct{})
	left := len(tables)
	var wg sync.WaitGroup
	for r := range tables {
		b, err := tables[r].Encode()
		check(t, err)
		again, err := Decode(b)
		check(t, err)
		names[r] = &Names{}
		wg.Go(func() {
			made[r], errs[r] = Make(t.Context(), again, r, func(mine []byte) ([][]byte, error) {
				mu.Lock()
				all[r] = mine
				if left--; left == 0 {
					close(complete)
				}
				mu.Unlock()
				<-complete
				return all, nil
			}, names[r], func(text string) { t.Log(text) })
			if made[r] != nil {
				t.Cleanup(made[r].Close)
			}
		})
	}
	wg.Wait()
	return made, names, errors.Join(errs...)
}

func take(t *testing.T, m *Made, index int) int {
	t.Helper()
	fd, err := m.Take(index)
	check(t, err)
	closeLater(t, fd)
	return fd
}

// A connection is made again with what was under way, its options, what was shut down, and its names; also within one
// process.
func TestConnectionAgain(t *testing.T) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		for _, oneProcess := range []bool{false, true} {
			for _, shut := range []bool{false, true} {
				t.Run(fmt.Sprint(family, oneProcess, shut), func(t *testing.T) {
					a, b := connected(t, family)
					send(t, a, "from a to b")
					send(t, b, strings.Repeat("from b to a", 10000))
					if shut {
						check(t, unix.Shutdown(a, unix.SHUT_WR))
					}
					check(t, unix.SetsockoptInt(a, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
					check(t, unix.SetsockoptInt(b, unix.SOL_SOCKET, unix.SO_RCVBUF, 30000))
					check(t, unix.SetsockoptInt(b, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 77))
					local, err := nameOf(unix.Getsockname(a))
					check(t, err)
					processes, ra, rb := [][]int{{a}, {b}}, 0, 1
					if oneProcess {
						processes, rb = [][]int{{a, b}}, 0
					}
					here, tables := save(t, processes...)
					ia, ib := keptAt(t, here[ra], a), keptAt(t, here[rb], b)
					// Nothing was taken out of the connection.
					if unread(b) != len("from a to b") || unread(a) != 10000*len("from b to a") {
						t.Errorf("%d and %d bytes are left", unread(a), unread(b))
					}
					_, _ = unix.Close(a), unix.Close(b)

					made, names, err := makeAll(t, tables)
					check(t, err)
					a, b = take(t, made[ra], ia), take(t, made[rb], ib)
					wantRead(t, "b", b, "from a to b", shut)
					wantRead(t, "a", a, strings.Repeat("from b to a", 10000), false)
					send(t, b, "on")
					wantRead(t, "a goes on", a, "on", false)
					if !shut {
						send(t, a, "and back")
						wantRead(t, "b goes on", b, "and back", false)
					} else if _, err := unix.SendmsgN(a, []byte("x"), nil, nil, unix.MSG_NOSIGNAL); !errors.Is(err, unix.EPIPE) {
						t.Errorf("a can send: %v", err)
					}
					for _, o := range []struct{ fd, level, name, want int }{
						{a, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1}, {b, unix.IPPROTO_TCP, unix.TCP_NODELAY, 0},
						{b, unix.SOL_SOCKET, unix.SO_RCVBUF, 60000}, {b, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 77},
						{a, unix.SOL_SOCKET, unix.SO_DOMAIN, family}, {b, unix.SOL_SOCKET, unix.SO_DOMAIN, family},
					} {
						if got, err := unix.GetsockoptInt(o.fd, o.level, o.name); err != nil || got != o.want {
							t.Errorf("option %d of level %d is %d, want %d, %v", o.name, o.level, got, o.want, err)
						}
					}
					var st unix.Stat_t
					check(t, unix.Fstat(a, &st))
					mine, other := names[ra].of(st.Ino, netip.AddrPort{}, netip.AddrPort{})
					check(t, unix.Fstat(b, &st))
					peer, theirs := names[rb].of(st.Ino, netip.AddrPort{}, netip.AddrPort{})
					if mine != local || theirs != local || other != peer || !other.IsValid() {
						t.Errorf("a is %v to %v, b %v to %v, want %v", mine, other, peer, theirs, local)
					}
				})
			}
		}
	}
}

// A reader that does not read: all buffers are full, and all bytes are there again. The sizes that the program has chosen
// stay.
func TestFullBuffers(t *testing.T) {
	for _, chosen := range []int{0, 4096} {
		t.Run(fmt.Sprint(chosen), func(t *testing.T) {
			a, b := connected(t, unix.AF_INET)
			if chosen > 0 {
				check(t, unix.SetsockoptInt(b, unix.SOL_SOCKET, unix.SO_RCVBUF, chosen))
			}
			var all bytes.Buffer
			for quiet := 0; quiet < 20; {
				piece := bytes.Repeat([]byte{byte(all.Len() % 251)}, 4000)
				n, err := unix.SendmsgN(a, piece, nil, nil, unix.MSG_DONTWAIT)
				if errors.Is(err, unix.EAGAIN) {
					quiet++
					time.Sleep(5 * time.Millisecond)
					continue
				}
				check(t, err)
				quiet = 0
				all.Write(piece[:n])
			}
			size, err := unix.GetsockoptInt(b, unix.SOL_SOCKET, unix.SO_RCVBUF)
			check(t, err)
			here, tables := save(t, []int{a}, []int{b})
			ia, ib := keptAt(t, here[0], a), keptAt(t, here[1], b)
			if now, err := unix.GetsockoptInt(b, unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil || now != size {
				t.Errorf("the receive buffer has %d bytes, before %d, %v", now, size, err)
			}
			_, _ = unix.Close(a), unix.Close(b)
			made, _, err := makeAll(t, tables)
			check(t, err)
			a, b = take(t, made[0], ia), take(t, made[1], ib)
			send(t, a, "the end")
			wantRead(t, "b", b, all.String()+"the end", false)
		})
	}
}

// What needs no other process: sockets that listen, are bound, are new, or whose other end is closed; pairs of Unix
// sockets.
func TestAloneAgain(t *testing.T) {
	ln := listening(t, unix.AF_INET)
	at, err := unix.Getsockname(ln)
	check(t, err)
	fresh, err := newSocket(unix.AF_INET6)
	check(t, err)
	closed, other := connected(t, unix.AF_INET)
	send(t, other, "last words")
	check(t, unix.Close(other))
	over, other := connected(t, unix.AF_INET)
	send(t, other, "goodbye")
	check(t, unix.Shutdown(over, unix.SHUT_WR))
	check(t, unix.Close(other))
	reset, other := connected(t, unix.AF_INET)
	check(t, unix.SetsockoptLinger(other, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
	check(t, unix.Close(other))
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	send(t, p[0], "in the pair")
	check(t, unix.Shutdown(p[0], unix.SHUT_WR))
	q, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	send(t, q[0], "from one that is gone")
	check(t, unix.Close(q[0]))
	fds := []int{ln, fresh, closed, over, reset, p[0], p[1], q[1]}
	for _, fd := range []int{closed, over} { // until the kernel has heard all
		check(t, wait(t.Context(), fd, unix.POLLRDHUP, time.Now().Add(patience)))
	}
	here, tables := save(t, fds)
	index := map[int]int{}
	for _, fd := range fds {
		index[fd] = keptAt(t, here[0], fd)
		check(t, unix.Close(fd))
	}
	made, _, err := makeAll(t, tables)
	check(t, err)
	again := map[int]int{}
	for _, fd := range fds {
		again[fd] = take(t, made[0], index[fd])
	}
	c, err := newSocket(unix.AF_INET)
	check(t, err)
	closeLater(t, c)
	check(t, unix.Connect(c, at))
	if _, info := tcpState(again[ln]); info.Sacked != 7 {
		t.Errorf("as many may wait: %d", info.Sacked)
	}
	if state, _ := tcpState(again[fresh]); state != tcpClose {
		t.Errorf("the new socket is in state %d", state)
	}
	wantRead(t, "closed", again[closed], "last words", true)
	wantRead(t, "over", again[over], "goodbye", true)
	if ready(again[reset], unix.POLLIN)&unix.POLLERR == 0 {
		t.Error("the one that was cut is not")
	}
	wantRead(t, "pair", again[p[1]], "in the pair", true)
	send(t, again[p[1]], "back")
	wantRead(t, "pair", again[p[0]], "back", false)
	wantRead(t, "one of a pair", again[q[1]], "from one that is gone", true)
}

// Sockets that cannot be kept, and in which words.
func TestNotKept(t *testing.T) {
	t.Run("outside", func(t *testing.T) {
		a, b := connected(t, unix.AF_INET)
		closeLater(t, a, b)
		here, _ := save(t, []int{a}) // b is nobody's of the job
		if _, o, ok := here[0].Keep(a); ok || o != nil {
			t.Errorf("%v, %+v", ok, o)
		}
	})
	t.Run("a stranger waits to be accepted", func(t *testing.T) {
		ln := listening(t, unix.AF_INET)
		a := visiting(t, ln, unix.AF_INET)
		closeLater(t, ln, a)
		here, _ := save(t, []int{ln})
		if _, o, ok := here[0].Keep(ln); ok || o == nil || !o.Passing || !strings.Contains(o.What, "waits to be accepted, which leads out of the job") {
			t.Errorf("%v, %+v", ok, o)
		}
	})
	t.Run("waits to be accepted at one of several sockets", func(t *testing.T) {
		ln, err := newSocket(unix.AF_INET)
		check(t, err)
		check(t, unix.SetsockoptInt(ln, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
		check(t, unix.Bind(ln, home(unix.AF_INET)))
		check(t, unix.Listen(ln, 7))
		a := visiting(t, ln, unix.AF_INET)
		closeLater(t, ln, a)
		here, _ := save(t, []int{ln}, []int{a})
		if _, o, ok := here[0].Keep(ln); ok || o == nil || !o.Passing || !strings.Contains(o.What, "1 connections that wait to be accepted") {
			t.Errorf("%v, %+v", ok, o)
		}
	})
	t.Run("UDP", func(t *testing.T) {
		u, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		check(t, err)
		closeLater(t, u)
		here, _ := save(t, []int{u})
		if _, o, ok := here[0].Keep(u); ok || o != nil {
			t.Errorf("%v, %+v", ok, o)
		}
	})
	t.Run("pair with another process", func(t *testing.T) {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		check(t, err)
		closeLater(t, p[0], p[1])
		here, _ := save(t, []int{p[0]}, []int{p[1]})
		if _, o, ok := here[0].Keep(p[0]); ok || o != nil {
			t.Errorf("%v, %+v", ok, o)
		}
	})
	t.Run("descriptors under way", func(t *testing.T) {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		check(t, err)
		closeLater(t, p[0], p[1])
		check(t, unix.Sendmsg(p[0], []byte("x"), unix.UnixRights(p[0]), nil, 0))
		here, _ := save(t, []int{p[0], p[1]})
		if _, o, ok := here[0].Keep(p[1]); ok || o == nil || !o.Passing {
			t.Errorf("%v, %+v", ok, o)
		}
	})
}

// A port that somebody else has by now refuses the restart, on all processes.
func TestPortTaken(t *testing.T) {
	ln := listening(t, unix.AF_INET)
	a, b := connected(t, unix.AF_INET)
	_, tables := save(t, []int{ln, a}, []int{b})
	_, _ = unix.Close(a), unix.Close(b)
	closeLater(t, ln)
	_, _, err := makeAll(t, tables)
	if err == nil || strings.Count(err.Error(), "the program had a socket at 127.0.0.1:") != 2 {
		t.Errorf("%v", err)
	}
}

// Who does not know the secret gets nothing, and is in nobody's way.
func TestStrangers(t *testing.T) {
	a, b := connected(t, unix.AF_INET)
	send(t, a, "hello")
	here, tables := save(t, []int{a}, []int{b})
	ib := keptAt(t, here[1], b)
	_, _ = unix.Close(a), unix.Close(b)
	m := &Made{table: &tables[0], fds: []int{-1}, names: &Names{}}
	c := card{Secret: make([]byte, secretBytes), Ends: m.connected()}
	d, err := m.openDoors(&c)
	check(t, err)
	defer d.close()
	ctx, cancel := context.WithCancelCause(t.Context())
	g := &gate{m: m, secret: bytes.Repeat([]byte{7}, secretBytes), waiting: map[int]cardEnd{0: c.Ends[0]}, fail: cancel}
	served := make(chan struct{})
	go func() { defer close(served); g.serve(ctx, d.near[unix.AF_INET], unix.AF_INET) }()
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), c.Near[unix.AF_INET])
	for _, words := range []string{"GET / HTTP/1.0\r\n\r\n" + strings.Repeat("x", 100), greetMagic + strings.Repeat("\x08", greetBytes-8), ""} {
		fd, err := dial(t.Context(), unix.AF_INET, at)
		check(t, err)
		_ = writeAll(fd, []byte(words), time.Now().Add(patience))
		_ = unix.Shutdown(fd, unix.SHUT_WR)
		one := make([]byte, 1)
		if err := readAll(t.Context(), fd, one, time.Now().Add(patience)); err == nil {
			t.Errorf("%q is answered", words[:min(len(words), 10)])
		}
		_ = unix.Close(fd)
	}
	if g.left() != 1 {
		t.Error("a stranger was let in")
	}
	// The right one still comes in.
	other := &Made{table: &tables[1], rank: 1, fds: []int{-1}, names: &Names{}}
	c.Secret = g.secret
	check(t, other.connect(t.Context(), other.connected()[0], &c, ""))
	<-served
	g.wg.Wait()
	cancel(nil)
	fd := take(t, other, ib)
	wantRead(t, "b", fd, "hello", false)
	m.Close()
}

func TestDecodeDamaged(t *testing.T) {
	a, b := connected(t, unix.AF_INET)
	send(t, a, "some bytes")
	_, tables := save(t, []int{a}, []int{b})
	_, _ = unix.Close(a), unix.Close(b)
	good, err := tables[1].Encode()
	check(t, err)
	if _, err := Decode(good); err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := Decode(good[:n]); err == nil {
			t.Fatalf("cut to %d bytes it is read", n)
		}
	}
	if _, err := Decode(append(bytes.Clone(good), 0)); err == nil {
		t.Error("with a byte more it is read")
	}
	for _, bad := range []Socket{
		{State: "nothing", Family: unix.AF_INET, Type: unix.SOCK_STREAM}, {State: Fresh, Family: 99, Type: unix.SOCK_STREAM},
		{State: Connected, Family: unix.AF_INET, Type: unix.SOCK_STREAM}, {State: Fresh, Family: unix.AF_INET, Type: unix.SOCK_DGRAM},
		{State: Listening, Family: unix.AF_INET, Type: unix.SOCK_STREAM, data: []byte("x")},
		{State: Listening, Family: unix.AF_INET, Type: unix.SOCK_STREAM, Backlog: -1},
	} {
		table := Table{Sockets: []Socket{bad}}
		if _, err := table.Encode(); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

func FuzzDecode(f *testing.F) {
	t := Table{Sockets: []Socket{{State: Connected, Family: unix.AF_INET, Type: unix.SOCK_STREAM, Other: &Ref{1, 2}, data: []byte("abc")}}}
	b, err := t.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := Decode(b)
		if err != nil {
			return
		}
		if _, err := table.Encode(); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}

// Two connections of different hosts may have the same addresses of loopback, or of networks that are alike.
func TestPairs(t *testing.T) {
	at := netip.MustParseAddrPort
	end := func(i int, local, peer string) End { return End{Index: i, Local: at(local), Peer: at(peer)} }
	got := pairs([]Report{
		{Host: "x", Ends: []End{end(0, "127.0.0.1:1", "127.0.0.1:2"), end(1, "10.0.0.1:5", "10.0.0.2:6"), end(2, "[::ffff:10.0.0.1]:7", "[::ffff:10.0.0.3]:8")}},
		{Host: "y", Ends: []End{end(0, "127.0.0.1:2", "127.0.0.1:1"), end(3, "10.0.0.2:6", "10.0.0.1:5")}},
		{Host: "x", Ends: []End{end(4, "127.0.0.1:2", "127.0.0.1:1"), end(5, "10.0.0.3:8", "10.0.0.1:7"), end(6, "10.0.0.9:1", "10.0.0.8:1")}},
		{Host: "z", Ends: []End{end(7, "10.0.0.9:1", "10.0.0.8:1"), end(8, "10.0.0.8:1", "10.0.0.9:1")}},
	})
	want := map[Ref]Ref{{0, 0}: {2, 4}, {2, 4}: {0, 0}, {0, 1}: {1, 3}, {1, 3}: {0, 1}, {0, 2}: {2, 5}, {2, 5}: {0, 2}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}
