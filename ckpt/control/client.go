// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/libckpt/libckpt/internal/handshake"
)

const (
	connectTimeout   = 3 * time.Second  // for one address: nothing may be there
	handshakeTimeout = 10 * time.Second // a job on a slow machine takes seconds; it waits as long (handshake.Guard)
	connectTries     = 5                // a job that is flooded by strangers drops some at random
)

// Client asks the job at an address. Each call uses a new connection.
type Client struct{ address Address }

// NewClient returns a client for the job at an address from job.json.
func NewClient(a Address) *Client { return &Client{address: a} }

// Checkpoint asks for a checkpoint and returns when its epoch is committed. progress, which may be nil,
// is called with news. Errors are, among others, a *RefusedError, or wrap ErrTimeout, ErrEnding or
// ErrElsewhere or ErrNotRunning. When ctx ends first, the checkpoint goes on without us.
func (c *Client) Checkpoint(ctx context.Context, r Request, progress func(Event)) (Result, error) {
	a := ask{Do: doCheckpoint, Then: r.Then, TimeoutMS: r.Timeout.Milliseconds()}
	if r.Timeout > 0 && a.TimeoutMS == 0 {
		a.TimeoutMS = 1
	}
	var result *Result
	err := c.call(ctx, a, func(p reply) (bool, error) {
		switch {
		case p.Event != nil:
			if progress != nil {
				progress(*p.Event)
			}
			return true, nil
		case p.Result != nil:
			result = p.Result
			return false, nil
		}
		return false, errors.New("the job answers a request for a checkpoint with something else")
	})
	if err != nil {
		return Result{}, err
	}
	return *result, nil
}

// Status asks what the job is doing.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var status Status
	err := c.watch(ctx, ask{Do: doStatus}, func(s Status) bool { status = s; return false })
	return status, err
}

// Watch calls f with what the job is doing, once in a period (0: the job chooses it), until f returns false, or ctx
// or the job ends; the end of the job is io.EOF.
func (c *Client) Watch(ctx context.Context, period time.Duration, f func(Status) bool) error {
	return c.watch(ctx, ask{Do: doWatch, PeriodMS: period.Milliseconds()}, f)
}

func (c *Client) watch(ctx context.Context, a ask, f func(Status) bool) error {
	return c.call(ctx, a, func(p reply) (bool, error) {
		if p.Status == nil {
			return false, errors.New("the job answers a request for its status with something else")
		}
		return f(*p.Status), nil
	})
}

// call sends one request and passes each answer to f, until f does not want more.
func (c *Client) call(ctx context.Context, a ask, f func(reply) (more bool, err error)) error {
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	why := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	if err := writeLine(conn, a); err != nil {
		return why(fmt.Errorf("ask the job: %w", err))
	}
	in := lines(conn, maxReply)
	for {
		p, err := nextReply(in)
		if err != nil {
			return why(err)
		}
		if p.Error != nil {
			return p.Error.err()
		}
		if more, err := f(p); err != nil || !more {
			return err
		}
	}
}

func nextReply(in *bufio.Scanner) (reply, error) {
	line, err := nextLine(in)
	if err != nil {
		return reply{}, fmt.Errorf("the job went away: %w", err)
	}
	return decodeReply(line)
}

// connect tries all addresses.
func (c *Client) connect(ctx context.Context) (*handshake.Conn, error) {
	me, err := c.address.identity()
	if err != nil {
		return nil, fmt.Errorf("control address in job.json: %w", err)
	}
	ways := c.address.ways()
	if len(ways) == 0 {
		return nil, fmt.Errorf("%w: run ckptctl on host %s, or start the job with `--control network`", ErrElsewhere, c.address.Host)
	}
	var errs []error
	for try := range connectTries {
		errs = nil
		again := false
		for _, way := range ways {
			conn, err := dial(ctx, way, me)
			if err == nil {
				return conn, nil
			}
			errs = append(errs, err)
			// An end in the middle of the handshake is what a flooded job does to some; anything else
			// will be no better next time.
			again = again || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !again || try == connectTries-1 {
			break
		}
		select {
		case <-time.After(50 * time.Millisecond << try):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, fmt.Errorf("%w (it ran on host %s; %w)", ErrNotRunning, c.address.Host, errors.Join(errs...))
}

func dial(ctx context.Context, way string, me *handshake.Identity) (*handshake.Conn, error) {
	d := net.Dialer{Timeout: connectTimeout}
	conn, err := d.DialContext(ctx, "tcp", way)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	return handshake.Client(ctx, conn, hello(me), me, me.Public())
}
