// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/libckpt/libckpt/internal/handshake"
	"github.com/libckpt/libckpt/internal/hostaddr"
)

const (
	maxClients     = 64
	requestTimeout = 10 * time.Second // from the handshake to the request
	writeTimeout   = 10 * time.Second // a client that does not read for so long is gone
	defaultPeriod  = 500 * time.Millisecond
	minPeriod      = 20 * time.Millisecond
)

// Config holds the choices of a server. The zero value is right for most jobs.
type Config struct {
	// LoopbackOnly: only this host may connect.
	LoopbackOnly bool
	// Only are the addresses to listen on for clients on other hosts: interfaces, networks or addresses, as
	// hostaddr.Select takes them. Empty: all interfaces.
	Only []string
	// Log gets what an operator may want to know. Nil: nothing.
	Log *slog.Logger
}

// Server answers the operator of one job.
type Server struct {
	cfg       Config
	address   Address
	job       Job
	desk      *desk
	guard     *handshake.Guard
	strangers *handshake.Strangers
	ctx       context.Context
	cancel    context.CancelCauseFunc
	listeners []net.Listener

	mu      sync.Mutex
	clients map[*handshake.Conn]struct{}
	closed  bool
	wg      sync.WaitGroup
}

// Listen opens the sockets of a server and makes its token. The caller publishes Address and calls
// Serve, or Close.
func Listen(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, clients: make(map[*handshake.Conn]struct{}), strangers: handshake.NewStrangers(cfg.Log, "control port")}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	id, err := hostaddr.Here()
	if err != nil {
		return nil, fmt.Errorf("control address: %w", err)
	}
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("control address: %w", err)
	}
	s.address = Address{Host: name, HostID: hex.EncodeToString(id[:]), Token: newToken()}

	loopback, loopErr := hostaddr.ListenLoopback()
	if loopErr == nil {
		s.listeners = append(s.listeners, loopback)
		s.address.Loopback = hostaddr.Of(loopback).String()
	}
	var outerErr error
	if !cfg.LoopbackOnly {
		outerErr = s.listenOuter()
	}
	if len(s.listeners) == 0 || outerErr != nil && len(cfg.Only) > 0 {
		for _, ln := range s.listeners {
			_ = ln.Close()
		}
		return nil, fmt.Errorf("control address: %w", errors.Join(loopErr, outerErr))
	}
	if outerErr != nil {
		cfg.Log.Warn("ckptctl works on this host only", "error", outerErr)
	}
	return s, nil
}

func (s *Server) listenOuter() error {
	if len(s.cfg.Only) > 0 {
		return s.listenOnly()
	}
	addrs, err := hostaddr.Published()
	if err != nil || len(addrs) == 0 {
		return err
	}
	ln, err := hostaddr.ListenAll()
	if err != nil {
		return err
	}
	s.listeners = append(s.listeners, ln)
	for _, a := range addrs {
		s.address.Addresses = append(s.address.Addresses, netip.AddrPortFrom(a, hostaddr.Of(ln).Port()).String())
	}
	return nil
}

func (s *Server) listenOnly() error {
	addrs, err := hostaddr.Select(s.cfg.Only)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		ln, err := hostaddr.Listen(a)
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, ln)
		s.address.Addresses = append(s.address.Addresses, hostaddr.Of(ln).String())
	}
	return nil
}

// Address is what clients need, the token included.
func (s *Server) Address() Address { return s.address }

// Serve starts to answer for job; it returns at once and may be called once.
func (s *Server) Serve(job Job) error {
	me, err := s.address.identity()
	if err != nil {
		return err
	}
	s.job = job
	s.desk = newDesk(job)
	s.guard = &handshake.Guard{
		Me: me,
		KeyOf: func(h handshake.Hello) (handshake.PublicKey, error) {
			switch want := hello(me); {
			case h.Protocol != want.Protocol:
				return handshake.PublicKey{}, fmt.Errorf("it speaks %q, not %q", h.Protocol[:], want.Protocol[:])
			case h != want:
				return handshake.PublicKey{}, errors.New("it looks for another job")
			}
			return me.Public(), nil
		},
		Accepted: s.accepted,
		Rejected: s.strangers.Rejected,
	}
	for _, ln := range s.listeners {
		s.guard.Serve(ln)
	}
	return nil
}

// Request asks for a checkpoint from inside the process (a signal, a timer), under the same rule as requests of
// clients. progress may be nil. For Exit and Kill, Job.Finish is called after Request has returned.
func (s *Server) Request(ctx context.Context, r Request, progress func(Event)) (Result, error) {
	t, err := s.desk.ask(r)
	if err != nil {
		return Result{}, err
	}
	defer t.release()
	if progress == nil {
		progress = func(Event) {}
	}
	return t.wait(ctx, progress)
}

// Close stops serving. The context of a checkpoint under way is cancelled, with ErrEnding as the cause. Those
// who wait for it get what Job.Checkpoint then returns: the epoch, if that could still be committed. Those who
// watch see the connection end. Close returns when no goroutine of the server is left, so only after
// Job.Checkpoint and Job.Finish have returned: Finish itself must not call Close.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	if s.guard == nil {
		s.cancel(ErrEnding)
		for _, ln := range s.listeners {
			_ = ln.Close()
		}
		return
	}
	s.guard.Close()
	s.strangers.Close()
	s.desk.close()
	s.cancel(ErrEnding)
	s.wg.Wait()
}

// accepted serves a client that has proved that it knows the token.
func (s *Server) accepted(conn *handshake.Conn, _ handshake.Hello) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.clients) >= maxClients {
		_ = conn.Close()
		return
	}
	s.clients[conn] = struct{}{}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		defer func() {
			_ = conn.Close()
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.clients, conn)
		}()
		s.serve(conn)
	}()
}

// serve reads one request and answers it.
func (s *Server) serve(conn *handshake.Conn) {
	// The client is gone when ctx ends; so is the server.
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()

	_ = conn.SetReadDeadline(time.Now().Add(requestTimeout))
	in := lines(conn, maxRequest)
	line, err := nextLine(in)
	if err != nil {
		s.cfg.Log.Info("a client sent no request", "error", err)
		return
	}
	a, err := decodeAsk(line)
	if err != nil {
		_ = s.send(conn, reply{Error: faultOf(err)})
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	if s.ctx.Err() != nil {
		return
	}
	left := make(chan struct{})
	go func() {
		defer close(left)
		waitForEnd(in)
		cancel()
	}()
	s.answer(ctx, conn, a)
	_ = conn.CloseWrite()
	_ = conn.SetReadDeadline(time.Unix(1, 0))
	<-left
}

// waitForEnd returns when the client is gone, or sends something, for which it has no reason.
func waitForEnd(in *bufio.Scanner) {
	for {
		if line, err := nextLine(in); err != nil || len(line) > 0 {
			return
		}
	}
}

func (s *Server) answer(ctx context.Context, conn *handshake.Conn, a ask) {
	switch a.Do {
	case doCheckpoint:
		result, err := s.checkpoint(ctx, conn, a)
		if err != nil {
			s.cfg.Log.Info("a request for a checkpoint got no epoch", "then", a.Then, "error", err)
			return
		}
		s.cfg.Log.Info("a request for a checkpoint was answered", "then", a.Then, "epoch", result.Epoch)
	case doStatus:
		status := s.status()
		_ = s.send(conn, reply{Status: &status})
	case doWatch:
		s.stream(ctx, conn, a)
	}
}

func (s *Server) checkpoint(ctx context.Context, conn *handshake.Conn, a ask) (Result, error) {
	t, err := s.desk.ask(Request{Then: a.Then, Timeout: time.Duration(a.TimeoutMS) * time.Millisecond})
	if err != nil {
		_ = s.send(conn, reply{Error: faultOf(err)})
		return Result{}, err
	}
	defer t.release()
	result, err := t.wait(ctx, func(e Event) { _ = s.send(conn, reply{Event: &e}) })
	if err != nil {
		_ = s.send(conn, reply{Error: faultOf(err)})
		return Result{}, err
	}
	return result, s.send(conn, reply{Result: &result})
}

func (s *Server) status() Status {
	status := s.job.Status()
	status.Requests = s.desk.waiting()
	return status
}

func (s *Server) stream(ctx context.Context, conn *handshake.Conn, a ask) {
	period := defaultPeriod
	if a.PeriodMS > 0 {
		period = max(time.Duration(a.PeriodMS)*time.Millisecond, minPeriod)
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		status := s.status()
		if s.send(conn, reply{Status: &status}) != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// send writes one answer. After an error the connection is of no use.
func (s *Server) send(conn *handshake.Conn, r reply) error {
	_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	return writeLine(conn, r)
}
