// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind is a kind of traffic, a bit. A runtime has its own from 256 on. The numbers are those of ckpt/rail.h.
type Kind int

// Kinds of traffic.
const (
	Eager      Kind = 1
	Rendezvous Kind = 2
	RMA        Kind = 4
	Control    Kind = 8
)

// Flags of a rail; the numbers are those of ckpt/rail.h.
type Flags uint

// What a rail may be.
const (
	Checkpointable Flags = 1 // stays open when others are closed
	OnDemand       Flags = 2 // connects to any process when it is asked to
	Node           Flags = 4 // reaches processes of the same node only
	Lazy           Flags = 8 // is opened again by the first message that needs it
)

// State of a rail. ckpt/rail.h draws how they follow each other.
type State uint8

// States of rails.
const (
	Open     State = iota
	Draining       // elected still, but makes no new endpoints
	Closed         // will be opened again, and not by a message
	Due            // closed, and opened by the first message that needs it
	Opening        // is being opened
	Broken         // could not be opened
)

var stateNames = [...]string{Open: "open", Draining: "draining", Closed: "closed", Due: "due", Opening: "opening",
	Broken: "broken"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown state"
}

// Rail is one network of a runtime, as an election sees it.
type Rail struct {
	Name     string
	Priority int // higher ones first
	Flags    Flags
	// Gate tells whether a message of that size and kind may take this rail. Nil: every message.
	Gate  func(bytes uint64, kind Kind) bool
	State State
	Why   string // of a broken rail
	// Endpoints has the processes to which there is a way, Never those that the rail has said it cannot reach.
	Endpoints, Never map[int]bool
}

// Message is what an election is about.
type Message struct {
	Process int
	Bytes   uint64
	Kind    Kind
}

// Callbacks are what an election may ask of rails.
type Callbacks interface {
	// Connect makes an endpoint to a process. ErrAgain: it is being made; ErrUnreachable: this rail cannot reach it;
	// other errors say in words why it failed.
	Connect(r *Rail, process int) error
	// Reopen opens a rail that is due, and puts its static endpoints into r.Endpoints.
	Reopen(r *Rail) error
}

// Answers of Connect and Elect.
var (
	ErrAgain       = errors.New("not yet")
	ErrUnreachable = errors.New("cannot reach it")
)

// NoRouteError says why each rail was passed over, in the order of election.
type NoRouteError struct {
	Process int
	Reasons []string // "tcp: gate closed for 12 bytes"
}

func (e *NoRouteError) Error() string {
	reasons := "the runtime has registered no rail"
	if len(e.Reasons) > 0 {
		reasons = strings.Join(e.Reasons, "; ")
	}
	return fmt.Sprintf("no route to process %d: %s", e.Process, reasons)
}

// Order sorts rails as an election looks at them: by priority, equal ones as they were registered.
func Order(rails []*Rail) {
	slices.SortStableFunc(rails, func(a, b *Rail) int { return b.Priority - a.Priority })
}

func (r *Rail) takes(m Message) bool { return r.Gate == nil || r.Gate(m.Bytes, m.Kind) }

// Elect returns the rail that a message takes, which has an endpoint to the process then. The rails are in order.
//
// The first pass looks at rails that have an endpoint and whose gate is open. The second pass asks rails for one. It
// ends with the first rail that has made one, or is making it (ErrAgain). When no rail makes one, the answer is
// ErrAgain if one may later, else a NoRouteError. What is learned of a rail on the way is kept in it.
func Elect(rails []*Rail, m Message, c Callbacks) (*Rail, error) {
	for _, r := range rails {
		if r.Endpoints[m.Process] && r.takes(m) {
			return r, nil
		}
	}
	none := &NoRouteError{Process: m.Process}
	later := false
	for _, r := range rails {
		switch reason, answer := r.ask(m, c); answer {
		case found:
			return r, nil
		case wait:
			return nil, ErrAgain
		case notNow:
			later = true
		case passed:
			none.Reasons = append(none.Reasons, r.Name+": "+reason)
		}
	}
	if later {
		return nil, ErrAgain
	}
	return nil, none
}

// answer is what a rail says in the second pass.
type answer uint8

const (
	passed answer = iota // for a reason
	found
	wait   // and ask no further rail
	notNow // later, when no other rail has one
)

// ask is the second pass for one rail.
func (r *Rail) ask(m Message, c Callbacks) (reason string, a answer) {
	if r.State == Broken {
		return "broken: " + r.Why, passed
	}
	if !r.takes(m) {
		s := "s"
		if m.Bytes == 1 {
			s = ""
		}
		return fmt.Sprintf("gate closed for %d byte%s", m.Bytes, s), passed
	}
	if r.State == Due {
		if err := r.reopen(c); err != nil {
			return "broken: " + r.Why, passed
		}
		if r.Endpoints[m.Process] {
			return "", found
		}
	}
	switch {
	case r.State == Opening && r.Flags&Lazy != 0:
		return "", wait // another message has opened it
	case r.State == Opening, r.State == Closed:
		return "", notNow // it may have static endpoints then
	case r.Flags&OnDemand == 0:
		return "no endpoint", passed
	case r.Never[m.Process]:
		return r.unreachable(), passed
	case r.State == Draining:
		return "", notNow
	}
	return r.connect(m.Process, c)
}

func (r *Rail) reopen(c Callbacks) error {
	r.Endpoints, r.Never = nil, nil
	err := c.Reopen(r)
	if err != nil {
		r.State, r.Why, r.Endpoints = Broken, err.Error(), nil
		return err
	}
	r.State = Open
	return nil
}

func (r *Rail) connect(process int, c Callbacks) (reason string, a answer) {
	switch err := c.Connect(r, process); {
	case err == nil:
		set(&r.Endpoints, process)
		return "", found
	case errors.Is(err, ErrAgain):
		return "", wait
	case errors.Is(err, ErrUnreachable):
		set(&r.Never, process)
		return r.unreachable(), passed
	default:
		return "connect failed: " + err.Error(), passed
	}
}

func (r *Rail) unreachable() string {
	if r.Flags&Node != 0 {
		return "not on this node"
	}
	return ErrUnreachable.Error()
}

func set(m *map[int]bool, process int) {
	if *m == nil {
		*m = map[int]bool{}
	}
	(*m)[process] = true
}
