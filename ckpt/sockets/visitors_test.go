// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// visiting connects to a socket that listens.
func visiting(t *testing.T, ln, family int) int {
	t.Helper()
	at, err := unix.Getsockname(ln)
	check(t, err)
	fd, err := newSocket(family)
	check(t, err)
	check(t, unix.Connect(fd, at))
	return fd
}

// accepted plays the program's accept, and who answers it.
func accepted(t *testing.T, ln int, all []Visitor) (fd int, peer string) {
	t.Helper()
	fd, from, err := acceptSoon(ln, time.Now().Add(patience))
	check(t, err)
	at, err := nameOf(from, nil)
	check(t, err)
	for _, v := range all {
		var st unix.Stat_t
		if check(t, unix.Fstat(ln, &st)); st.Ino == v.Listener && string(rawName(familyOf(v), at)) == string(v.Name) {
			closeLater(t, v.FD)
			check(t, unix.Close(fd))
			check(t, unix.Close(v.Token))
			return v.FD, cookedName(v.Peer).String()
		}
	}
	closeLater(t, fd)
	return fd, at.String()
}

func familyOf(v Visitor) int {
	if len(v.Peer) == unix.SizeofSockaddrInet6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// Connections that wait to be accepted, of clients that stay and that are gone: they are told of as before, in the same
// order, when the program goes on and when it is continued, after one save and after two, with one that came between.
func TestWaiting(t *testing.T) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprint(family, again), func(t *testing.T) {
				ln := listening(t, family)
				var clients []int
				var names []string
				come := func() {
					c := visiting(t, ln, family)
					at, err := nameOf(unix.Getsockname(c))
					check(t, err)
					send(t, c, fmt.Sprint("client ", len(names)))
					clients, names = append(clients, c), append(names, at.String())
				}
				for range 3 {
					come()
				}
				check(t, unix.Close(clients[1]))
				server := []Visitor{}
				var tables []Table
				for i := range 2 {
					var here []*Here
					processes := [][]int{{ln}, {clients[0], clients[2]}}
					if i == 1 {
						come()
						processes[1] = append(processes[1], clients[3])
					}
					here, tables = saveWith(t, server, processes...)
					keptAt(t, here[0], ln)
					var err error
					server, err = here[0].Welcome()
					check(t, err)
					if ready(ln, unix.POLLIN)&unix.POLLIN == 0 || len(server) != 3+i {
						t.Errorf("nobody is told of %d visitors", len(server))
					}
				}
				if again {
					for _, v := range server {
						_, _ = unix.Close(v.FD), unix.Close(v.Token)
					}
					for _, i := range []int{0, 2, 3} {
						check(t, unix.Close(clients[i]))
					}
					check(t, unix.Close(ln))
					made, _, err := makeAll(t, tables)
					check(t, err)
					server, err = made[0].Visitors()
					check(t, err)
					ln = take(t, made[0], 0)
					for n, i := range []int{0, 2, 3} {
						clients[i] = take(t, made[1], n)
					}
				}
				for i := range 4 {
					fd, peer := accepted(t, ln, server)
					if peer != names[i] {
						t.Errorf("visitor %d is %s, want %s", i, peer, names[i])
					}
					wantRead(t, peer, fd, fmt.Sprint("client ", i), i == 1)
					if i != 1 {
						send(t, fd, "welcome")
						wantRead(t, "client", clients[i], "welcome", false)
						check(t, unix.Close(clients[i]))
					}
				}
				if ready(ln, unix.POLLIN) != 0 {
					t.Error("there is one more")
				}
				check(t, unix.Close(ln))
			})
		}
	}
}

// Who waits at a socket that is closed is cut off.
func TestWaitingAtClosed(t *testing.T) {
	ln := listening(t, unix.AF_INET)
	c := visiting(t, ln, unix.AF_INET)
	closeLater(t, c)
	here, _ := saveWith(t, nil, []int{ln}, []int{c})
	server, err := here[0].Welcome()
	check(t, err)
	check(t, unix.Close(ln))
	saveWith(t, server, []int{}, []int{c})
	if ready(c, unix.POLLIN)&unix.POLLERR == 0 {
		t.Error("it waits on")
	}
}
