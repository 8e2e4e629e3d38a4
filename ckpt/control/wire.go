// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/libckpt/libckpt/ckpt/after"
)

const (
	maxRequest = 64 << 10 // bytes of a request
	maxReply   = 64 << 20 // bytes of one reply: a status has some 200 bytes for each rank
)

var protocol = [8]byte{'c', 'k', 'p', 't', 'c', 't', 'l', '2'}

// ask is a request on the wire.
type ask struct {
	Do        string       `json:"do"`
	Then      after.Action `json:"then,omitempty"`
	TimeoutMS int64        `json:"timeout_ms,omitempty"`
	PeriodMS  int64        `json:"period_ms,omitempty"`
}

const (
	doCheckpoint = "checkpoint"
	doStatus     = "status"
	doWatch      = "watch"
)

const maxMS = int64(365 * 24 * time.Hour / time.Millisecond)

func decodeAsk(b []byte) (ask, error) {
	var a ask
	if err := json.Unmarshal(b, &a); err != nil {
		return a, fmt.Errorf("request is not what ckptctl sends: %w", err)
	}
	if a.TimeoutMS < 0 || a.TimeoutMS > maxMS || a.PeriodMS < 0 || a.PeriodMS > maxMS {
		return a, errors.New("request has a time out of range")
	}
	switch a.Do {
	case doCheckpoint:
		if a.Then == "" {
			a.Then = after.Continue
		}
		if _, err := after.Parse(string(a.Then)); err != nil {
			return a, fmt.Errorf("request: then: %w", err)
		}
	case doStatus, doWatch:
	default:
		return a, fmt.Errorf("request to %q: this job knows checkpoint, status and watch; is ckptctl newer than it?", a.Do)
	}
	return a, nil
}

// reply is an answer on the wire; one field is set.
type reply struct {
	Event  *Event  `json:"event,omitempty"`
	Result *Result `json:"result,omitempty"`
	Status *Status `json:"status,omitempty"`
	Error  *fault  `json:"error,omitempty"`
}

// fault is an error on the wire.
type fault struct {
	Kind    string   `json:"kind"`
	Message string   `json:"message"`
	Reasons []string `json:"reasons,omitempty"`
}

const (
	faultRefused = "refused"
	faultTimeout = "timeout"
	faultEnding  = "ending"
	faultFailed  = "failed"
)

func faultOf(err error) *fault {
	f := &fault{Kind: faultFailed, Message: err.Error()}
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		f.Kind, f.Reasons = faultRefused, refused.Reasons
	case errors.Is(err, ErrTimeout):
		f.Kind = faultTimeout
	case errors.Is(err, ErrEnding):
		f.Kind = faultEnding
	}
	return f
}

// err is the error that faultOf was given, as far as callers can tell.
func (f *fault) err() error {
	switch f.Kind {
	case faultRefused:
		return &RefusedError{Reasons: f.Reasons}
	case faultTimeout:
		return &remoteError{f.Message, ErrTimeout}
	case faultEnding:
		return &remoteError{f.Message, ErrEnding}
	}
	return errors.New(f.Message)
}

// remoteError has the words of the other side and is one of our errors.
type remoteError struct {
	message string
	is      error
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.is }

func decodeReply(b []byte) (reply, error) {
	var r reply
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("the job's answer is damaged: %w", err)
	}
	set := 0
	for _, is := range []bool{r.Event != nil, r.Result != nil, r.Status != nil, r.Error != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		return r, errors.New("the job's answer holds nothing that this ckptctl knows: use the ckptctl of the job's libckpt")
	}
	return r, nil
}

// lines reads lines of at most limit bytes.
func lines(r io.Reader, limit int) *bufio.Scanner {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), limit)
	return s
}

// nextLine returns the next line; io.EOF after the last.
func nextLine(s *bufio.Scanner) ([]byte, error) {
	if s.Scan() {
		return s.Bytes(), nil
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}

func writeLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}
