// SPDX-License-Identifier: Apache-2.0

package meeting

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/libckpt/libckpt/internal/handshake"
	"github.com/libckpt/libckpt/internal/hostaddr"
)

const (
	helloTime = 10 * time.Second       // from a guest's proof to its hello
	lookAgain = 500 * time.Millisecond // how often rank 0 looks whether the note is still its own
)

// host is rank 0.
type host struct {
	ctx       context.Context // ends all-gathers
	o         Options
	me        hello
	note      note
	guard     *handshake.Guard
	listeners []net.Listener
	strangers *handshake.Strangers
	ended     error // why the meeting is over; of the caller's goroutine
	arrivals  bool  // ranks are given in the order of arrival

	done   chan struct{} // closed by close: nobody takes what guests give any more
	once   sync.Once
	full   chan struct{} // closed when all have come
	failed chan error    // the first reason why there will be no meeting

	mu       sync.Mutex
	came     []*visitor // by rank; nil: not yet; 0 stays nil
	missing  int
	complete bool           // missing was 0: nobody else is let in, and who leaves is missed
	left     map[int]string // who came and left, by rank
}

// visitor is a rank that has come.
type visitor struct {
	hello
	conn  *handshake.Conn
	gives chan given
}

type given struct {
	frame frame
	err   error
}

// meet waits until all ranks have come. opened is called when others can find this one, or there is an error; nil:
// nobody wants to know.
func meet(ctx context.Context, o Options, me hello, opened func()) (Meeting, error) {
	arrivals := me.Rank < 0
	me.Rank = 0
	h := &host{ctx: ctx, arrivals: arrivals, o: o, me: me, came: make([]*visitor, me.Ranks), missing: me.Ranks - 1, left: map[int]string{},
		done: make(chan struct{}), full: make(chan struct{}), failed: make(chan error, 1),
		strangers: handshake.NewStrangers(o.Log, "port of the ranks' meeting")}
	err := h.open()
	if opened != nil {
		opened()
	}
	if err == nil {
		err = h.await()
	}
	h.note.remove(o.Dir)
	h.shut()
	if err == nil {
		err = h.tell(func(v *visitor) frame { return frame{frameWelcome, []byte(strconv.Itoa(v.Rank))} })
	}
	if err != nil {
		h.dismiss(err)
		return nil, err
	}
	return h, nil
}

// open listens and writes the note.
func (h *host) open() error {
	if err := h.listen(); err != nil {
		return err
	}
	id, err := h.note.identity()
	if err != nil {
		return err
	}
	want := greeting(id, 0)
	h.guard = &handshake.Guard{
		Me: id,
		KeyOf: func(g handshake.Hello) (handshake.PublicKey, error) {
			g.From = 0
			if g != want {
				return handshake.PublicKey{}, errors.New("it looks for another meeting")
			}
			return id.Public(), nil
		},
		Accepted: h.accepted,
		Rejected: h.strangers.Rejected,
		Pending:  min(max(64, h.me.Ranks), 512), // all come at once
	}
	for _, ln := range h.listeners {
		h.guard.Serve(ln)
	}
	if !h.arrivals { // who arrives without a number has looked
		if err := h.first(); err != nil {
			return err
		}
	}
	if err := h.note.write(h.o.Dir); err != nil {
		return fmt.Errorf("the other ranks cannot be told where rank 0 is: %w", err)
	}
	return nil
}

func (h *host) listen() error {
	id, err := hostaddr.Here()
	if err != nil {
		return err
	}
	h.note = note{Format: noteFormat, Job: h.me.Job, Host: h.me.Host, PID: h.me.PID, HostID: hex.EncodeToString(id[:]), Key: newKey()}
	loopback, loopErr := hostaddr.ListenLoopback()
	if loopErr == nil {
		h.listeners = append(h.listeners, loopback)
		h.note.Loopback = hostaddr.Of(loopback).String()
	}
	addrs, err := hostaddr.Published()
	if err == nil && len(addrs) > 0 {
		var ln net.Listener
		if ln, err = hostaddr.ListenAll(); err == nil {
			h.listeners = append(h.listeners, ln)
			for _, a := range addrs {
				h.note.Addresses = append(h.note.Addresses, netip.AddrPortFrom(a, hostaddr.Of(ln).Port()).String())
			}
		}
	}
	if len(h.listeners) == 0 {
		return errors.Join(loopErr, err)
	}
	if err != nil {
		h.o.Log.Warn("ranks on this host only can meet this one", "error", err)
	}
	return nil
}

// first makes sure that no other rank 0 meets in the directory. Two that begin at the same moment both pass, and the
// one whose note is replaced finds that out.
func (h *host) first() error {
	n, err := readNote(h.o.Dir)
	if err != nil || n == nil {
		if err != nil {
			h.o.Log.Debug("replaced", "error", err)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(h.ctx, h.o.Patience)
	defer cancel()
	g, err := join(ctx, n, h.me)
	if err == nil {
		_ = g.Close()
		err = &faultError{"welcome"}
	}
	var fault *faultError
	var other *otherError
	if errors.As(err, &fault) || errors.As(err, &other) {
		return h.taken(n)
	}
	if h.ctx.Err() != nil {
		return context.Cause(h.ctx)
	}
	h.o.Log.Debug("a former job's note is replaced", "note", n.who(), "error", err)
	return nil
}

// taken says that the meeting in the directory is another rank 0's.
func (h *host) taken(n *note) error {
	return fmt.Errorf("the ranks of another job meet in %s at this moment: its rank 0 is %s, and this one is %s; "+
		"start one job at a time in a directory, and give rank 0 to one process", h.o.Dir, n.who(), h.me.who())
}

// await waits until all have come.
func (h *host) await() error {
	patience := time.NewTimer(h.o.Patience)
	defer patience.Stop()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case <-h.full:
			return nil
		case err := <-h.failed:
			return err
		case <-h.ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(h.ctx), h.absent())
		case <-patience.C:
			return h.absent()
		case <-tick.C:
			if err := h.keepNote(); err != nil {
				return err
			}
		}
	}
}

// keepNote finds out whether another rank 0 has replaced the note, and writes it again if somebody removed it.
func (h *host) keepNote() error {
	n, err := readNote(h.o.Dir)
	if err == nil && n != nil && n.Key != h.note.Key {
		return h.taken(n)
	}
	if err == nil && n == nil {
		err = h.note.write(h.o.Dir)
	}
	if err != nil {
		h.o.Log.Warn("the other ranks may not find rank 0", "error", err)
	}
	return nil
}

// absent says who has not come.
func (h *host) absent() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ranks []int
	var left []string
	for r := 1; r < len(h.came); r++ {
		if h.came[r] != nil {
			continue
		}
		ranks = append(ranks, r)
		if who := h.left[r]; who != "" && len(left) < 8 {
			left = append(left, fmt.Sprintf("; %s, rank %d, came and left again", who, r))
		}
	}
	has := "has"
	if len(ranks) > 1 {
		has = "have"
	}
	return fmt.Errorf("%s %s not come within %s%s", ranksText(ranks), has, seconds(h.o.Patience), strings.Join(left, ""))
}

// accepted is called for each connection whose other end has the key.
func (h *host) accepted(conn *handshake.Conn, _ handshake.Hello) {
	_ = conn.SetReadDeadline(time.Now().Add(helloTime))
	who, err := readHello(conn)
	if err != nil {
		h.o.Log.Debug("somebody came who is no rank", "from", conn.RemoteAddr(), "error", err)
		_ = conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	v := &visitor{hello: *who, conn: conn, gives: make(chan given)}
	answer, err := h.admit(v)
	switch {
	case err != nil:
		select {
		case h.failed <- err:
		default:
		}
		answer = fault(err)
		fallthrough
	case answer.kind != 0:
		_ = answer.send(conn)
		_ = conn.CloseWrite()
		_ = conn.Close()
	default:
		h.o.Log.Debug("a rank has come", "rank", v.Rank, "who", v.who())
		go h.listenTo(v)
	}
}

// admit lets a visitor in, or returns what it is told instead. An error is the end of the meeting.
func (h *host) admit(v *visitor) (answer frame, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.me.Job != "" && v.Job != "" && v.Job != h.me.Job:
		return frame{kind: frameOther}, nil
	case h.arrivals && v.Rank >= 0:
		return fault(fmt.Errorf("%s says that it is rank %d (%s), and %s and others were started without a number: give all of them one, or none",
			v.who(), v.Rank, v.From, h.me.who())), nil
	case !h.arrivals && v.Rank < 0:
		return fault(fmt.Errorf("%s was started without the number of a rank, and %s with one (%s): give all of them one, or none",
			v.who(), h.me.who(), h.me.From)), nil
	case v.Rank == 0:
		return fault(fmt.Errorf("rank 0 is %s already", h.me.who())), nil
	case v.Ranks != h.me.Ranks:
		return frame{}, fmt.Errorf("%s (%s) was told of %d ranks (%s), and rank 0 (%s) of %d (%s): all must be told the same number",
			v.rankText(), v.who(), v.Ranks, v.From, h.me.who(), h.me.Ranks, h.me.From)
	case v.Rank < 0:
		if h.missing == 0 {
			return fault(fmt.Errorf("all %d have come: %s is one too many", h.me.Ranks, v.who())), nil
		}
		v.Rank = 1
		for h.came[v.Rank] != nil {
			v.Rank++
		}
	case h.came[v.Rank] != nil:
		return frame{}, fmt.Errorf("rank %d came twice: %s and %s; either two processes were given one rank (%s), or two jobs meet in %s at this moment",
			v.Rank, h.came[v.Rank].who(), v.who(), v.From, h.o.Dir)
	}
	h.came[v.Rank] = v
	if h.missing--; h.missing == 0 {
		h.complete = true
		close(h.full)
	}
	return frame{}, nil
}

// listenTo reads what a visitor gives, and so notices when it leaves.
func (h *host) listenTo(v *visitor) {
	for {
		f, err := receive(v.conn, maxGive)
		if err != nil && h.forget(v) {
			return
		}
		select {
		case v.gives <- given{f, err}:
		case <-h.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// forget takes a visitor that has left out of those who have come. Once all had come it is missed: false.
func (h *host) forget(v *visitor) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.complete {
		return false
	}
	h.came[v.Rank] = nil
	h.missing++
	h.left[v.Rank] = v.who()
	_ = v.conn.Close()
	h.o.Log.Debug("a rank left before all had come", "rank", v.Rank, "who", v.who())
	return true
}

// shut lets nobody else in.
func (h *host) shut() {
	if h.guard != nil {
		h.guard.Close()
	} else {
		for _, ln := range h.listeners {
			_ = ln.Close()
		}
	}
	h.strangers.Close()
}
