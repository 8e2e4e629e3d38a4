// SPDX-License-Identifier: Apache-2.0

package meeting

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/libckpt/libckpt/ckpt/launch"
	"github.com/libckpt/libckpt/internal/handshake"
)

// findDirectory meets the ranks in a directory.
func findDirectory(ctx context.Context, o Options, n launch.Numbers) (Meeting, error) {
	switch {
	case o.Ranks > 0 && o.Ranks != n.Ranks:
		return nil, &SizeError{Want: o.Ranks, Have: n.Ranks, From: n.From}
	case n.Ranks == 1:
		return &alone{}, nil
	case o.Dir == "":
		return nil, errors.New("the ranks have no directory to meet in")
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	me := hello{Rank: n.Rank, Ranks: n.Ranks, From: n.From, Job: n.Job, Host: host, PID: os.Getpid()}
	switch {
	case n.Rank == 0:
		return meet(ctx, o, me, nil)
	case n.Rank < 0:
		return arrive(ctx, o, me)
	}
	return visit(ctx, o, me)
}

// How long a guest tries one address of rank 0, and how often it looks for one.
const (
	reachTime = 5 * time.Second
	firstLook = 10 * time.Millisecond
	lastLook  = 250 * time.Millisecond
)

// reach connects to the rank 0 that wrote a note, and proves to it that the note was read.
func reach(ctx context.Context, n *note, rank int) (*handshake.Conn, error) {
	id, err := n.identity()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, way := range n.ways() {
		conn, err := reachAt(ctx, way, id, rank)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, errors.New("it has no address that leads there from this host")
	}
	return nil, errors.Join(errs...)
}

func reachAt(ctx context.Context, way string, id *handshake.Identity, rank int) (*handshake.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", way)
	if err != nil {
		return nil, err
	}
	return handshake.Client(ctx, conn, greeting(id, rank), id, id.Public())
}

// otherError says that a note leads to the meeting of another job.
type otherError struct{ text string }

func (e *otherError) Error() string { return e.text }

// faultError is what rank 0 says when there will be no meeting.
type faultError struct{ text string }

func (e *faultError) Error() string { return "rank 0: " + e.text }

// visit finds rank 0 and waits there until all have come.
func visit(ctx context.Context, o Options, me hello) (Meeting, error) {
	end := time.Now().Add(o.Patience)
	path := filepath.Join(o.Dir, noteName)
	pause := firstLook
	told := ""
	for {
		err := fmt.Errorf("%s is not there", path)
		n, readErr := readNote(o.Dir)
		switch {
		case readErr != nil:
			err = readErr
		case n != nil && n.Job != "" && me.Job != "" && n.Job != me.Job:
			err = fmt.Errorf("%s is of another job, %q; this one is %q", path, n.Job, me.Job)
		case n != nil:
			var g *guest
			if g, err = join(ctx, n, me); err == nil {
				return g, nil
			}
			var fault *faultError
			if errors.As(err, &fault) || ctx.Err() != nil {
				return nil, err
			}
			err = fmt.Errorf("%s is of %s: %w", path, n.who(), err)
		}
		if text := err.Error(); text != told {
			o.Log.Debug("rank 0 is not met yet", "rank", me.Rank, "why", text)
			told = text
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("rank 0 has not come within %s: %w", seconds(o.Patience), err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for rank 0: %w (%w)", context.Cause(ctx), err)
		case <-time.After(pause):
		}
		pause = min(2*pause, lastLook)
	}
}

// join connects to the rank 0 of a note and waits for its word. The time is rank 0's, which knows who is missing;
// the connection ends with it.
func join(ctx context.Context, n *note, me hello) (*guest, error) {
	conn, err := reach(ctx, n, max(me.Rank, 0))
	if err != nil {
		return nil, err
	}
	return enter(ctx, conn, me)
}

// enter says who comes, and waits for rank 0's word.
func enter(ctx context.Context, conn *handshake.Conn, me hello) (*guest, error) {
	g := &guest{ctx: ctx, conn: conn, rank: me.Rank, ranks: me.Ranks}
	f, err := g.ask(func() (frame, error) { return me.frame() }, maxRankText)
	if err == nil && f.kind == frameOther {
		err = &otherError{"it meets the ranks of another job"}
	}
	if err == nil && f.kind != frameWelcome {
		err = fmt.Errorf("it answered with frame %q", f.kind)
	}
	if err == nil && me.Rank < 0 {
		g.rank, err = strconv.Atoi(string(f.data))
		if err == nil && (g.rank < 1 || g.rank >= me.Ranks) {
			err = fmt.Errorf("it says that this is rank %d of %d", g.rank, me.Ranks)
		}
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return g, nil
}

// guest is a rank other than 0.
type guest struct {
	ctx         context.Context // ends all-gathers
	conn        *handshake.Conn
	rank, ranks int
	ended       error // why the meeting is over
	closed      bool
}

func (g *guest) Rank() int  { return g.rank }
func (g *guest) Ranks() int { return g.ranks }

// ask sends a frame to rank 0 and returns the answer.
func (g *guest) ask(question func() (frame, error), most int) (frame, error) {
	q, err := question()
	if err != nil {
		return frame{}, err
	}
	if g.ctx.Err() != nil {
		return frame{}, context.Cause(g.ctx)
	}
	stop := context.AfterFunc(g.ctx, func() { _ = g.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := q.send(g.conn); err != nil {
		return frame{}, cause(g.ctx, err)
	}
	f, err := receive(g.conn, most)
	if err != nil {
		return frame{}, cause(g.ctx, fmt.Errorf("rank 0 has left: %w", err))
	}
	if f.kind == frameFault {
		return frame{}, &faultError{string(f.data)}
	}
	return f, nil
}

// cause is why ctx is done, if it is, and else err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (g *guest) Allgather(mine []byte) ([][]byte, error) {
	if g.ended != nil {
		return nil, g.ended
	}
	all, err := g.allgather(mine)
	if err != nil {
		g.ended = fmt.Errorf("all-gather of %d ranks: %w", g.ranks, err)
		return nil, g.ended
	}
	return all, nil
}

func (g *guest) allgather(mine []byte) ([][]byte, error) {
	if err := checkGive(mine); err != nil {
		return nil, err
	}
	f, err := g.ask(func() (frame, error) { return frame{frameGive, mine}, nil }, g.ranks*len(mine))
	if err != nil {
		return nil, err
	}
	if f.kind != frameAll || len(f.data) != g.ranks*len(mine) {
		return nil, fmt.Errorf("rank 0 answered with frame %q of %d bytes, want %d", f.kind, len(f.data), g.ranks*len(mine))
	}
	return parts(f.data, g.ranks), nil
}

func checkGive(mine []byte) error {
	if len(mine) > maxGive {
		return fmt.Errorf("a rank gives %d bytes, at most %d are taken", len(mine), maxGive)
	}
	return nil
}

// parts divides what all gave.
func parts(all []byte, ranks int) [][]byte {
	n := len(all) / ranks
	out := make([][]byte, ranks)
	for r := range out {
		out[r] = all[r*n : (r+1)*n : (r+1)*n]
	}
	return out
}

func (g *guest) Close() error {
	if g.closed {
		return nil
	}
	g.closed = true
	if g.ended == nil {
		g.ended = errClosed
	}
	return g.conn.Close()
}
