// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"
)

// strangerPeriod is how often strangers get a line in the log.
const strangerPeriod = time.Minute

// Strangers tells an operator of connections that did not pass a Guard: of the first at once, of more with
// one line in a minute, however many come.
type Strangers struct {
	log    *slog.Logger
	port   string
	period time.Duration

	mu    sync.Mutex
	timer *time.Timer // runs from a line until the next may come; nil when it may come now
	more  int         // connections since the last line
	last  error       // of the last of them
	ended bool
}

// NewStrangers returns one that speaks of a port by that name.
func NewStrangers(log *slog.Logger, port string) *Strangers {
	return &Strangers{log: log, port: port, period: strangerPeriod}
}

// Rejected is for Guard.Rejected.
func (s *Strangers) Rejected(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	if s.timer != nil {
		s.more++
		s.last = err
		return
	}
	what := "somebody who is not of this job connected"
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		what = "a connection was closed before it said who it is: by a stranger, or by somebody of this job who waited too long and comes again"
	}
	s.log.Warn(what, "port", s.port, "error", err)
	s.timer = time.AfterFunc(s.period, s.due)
}

// due says what came since the last line.
func (s *Strangers) due() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	if s.more == 0 || s.ended {
		return
	}
	s.say()
	s.timer = time.AfterFunc(s.period, s.due)
}

func (s *Strangers) say() {
	s.log.Warn("more connections that are not of this job", "port", s.port, "connections", s.more, "error", s.last)
	s.more, s.last = 0, nil
}

// Close says what is left to say. The guard is closed.
func (s *Strangers) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.more > 0 && !s.ended {
		s.say()
	}
	s.ended = true
}
