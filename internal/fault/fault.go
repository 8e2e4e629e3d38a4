// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// EnvName is the environment variable that arms points.
const EnvName = "CKPT_FAULT"

// StallName is the environment variable that names a file: as long as it exists, an armed point with the
// action "stall" does not return.
const StallName = "CKPT_FAULT_STALL"

const stallLook = 2 * time.Millisecond

// ErrInjected is what an armed point returns for the action "error".
var ErrInjected = errors.New("injected fault")

type action int

const (
	actError action = iota
	actENOSPC
	actKill
	actStall
	actStop
)

// rule says what happens at the visits of one point.
type rule struct {
	name string // "*" for all points together
	act  action
	at   int64 // the visit that fails; 0 for every visit
	seen atomic.Int64
}

// plan is everything that is armed; immutable but for the counters.
type plan struct {
	rules []*rule
	bad   error // the specification could not be understood: every point returns this
	trace func(name string)
	stall string // a file, for actStall
}

var (
	armed atomic.Pointer[plan]
	armMu sync.Mutex // serializes Arm and Trace
)

// ArmFromEnvironment arms what the environment says, for a test that starts itself again and wants a fault
// there. Nothing but a test may call it: a job must not depend on what its environment happens to hold.
func ArmFromEnvironment() {
	if spec := os.Getenv(EnvName); spec != "" {
		p, err := parse(spec)
		if err != nil {
			// A library does not print or exit, and a misspelt fault must not go unnoticed.
			p = &plan{bad: err}
		}
		p.stall = os.Getenv(StallName)
		armed.Store(p)
	}
}

// debug is the variable CKPT_DEBUG; always empty in what is installed.
var debug string

// stress is set in the tree for tests.
var stress = func() {}

// Stress makes it hard for Go's runtime, when CKPT_DEBUG asks for it.
func Stress() { stress() }

// Debug tells whether a test asks for something by NAME or NAME=VALUE.
func Debug(name string) (value string, ok bool) {
	if debug == name {
		return "", true
	}
	return strings.CutPrefix(debug, name+"=")
}

// Point returns nil unless name is armed.
func Point(name string) error {
	p := armed.Load()
	if p == nil {
		return nil
	}
	return p.visit(name)
}

// Arm arms the points of spec, in place of what was armed before, and returns the function that
// restores the former state.
func Arm(spec string) (disarm func(), err error) {
	p, err := parse(spec)
	if err != nil {
		return nil, err
	}
	return swap(p), nil
}

// Trace calls f with the name of every point that is visited, one after the other, until the returned function is
// called. Tests use it to find out which points a path has. f itself must not visit any.
func Trace(f func(name string)) (stop func()) {
	var mu sync.Mutex
	return swap(&plan{trace: func(name string) {
		mu.Lock()
		defer mu.Unlock()
		f(name)
	}})
}

func swap(p *plan) func() {
	armMu.Lock()
	defer armMu.Unlock()
	old := armed.Swap(p)
	return func() {
		armMu.Lock()
		defer armMu.Unlock()
		armed.Store(old)
	}
}

// Place is a point at which nothing can fail: only what waits or ends there can be armed, by its own name. Trace and
// "*" do not see it.
func Place(name string) {
	p := armed.Load()
	if p == nil {
		return
	}
	only := &plan{stall: p.stall}
	for _, r := range p.rules {
		if r.name == name && (r.act == actKill || r.act == actStall || r.act == actStop) {
			only.rules = append(only.rules, r)
		}
	}
	_ = only.visit(name) // none of these returns an error
}

func (p *plan) visit(name string) error {
	if p.bad != nil {
		return p.bad
	}
	if p.trace != nil {
		p.trace(name)
	}
	for _, r := range p.rules {
		if r.name != name && r.name != "*" {
			continue
		}
		if n := r.seen.Add(1); r.at != 0 && n != r.at {
			continue
		}
		switch r.act {
		case actKill:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal needs a moment to arrive; nothing may happen after the point
		case actStall:
			for {
				if _, err := os.Lstat(p.stall); err != nil {
					return nil
				}
				time.Sleep(stallLook)
			}
		case actStop:
			stopHere()
			return nil
		case actENOSPC:
			return fmt.Errorf("fault point %s: %w", name, syscall.ENOSPC)
		default:
			return fmt.Errorf("fault point %s: %w", name, ErrInjected)
		}
	}
	return nil
}

// stopHere stops the process. The signal is this thread's: it arrives before the thread goes on, where one that any thread
// may take could come when the point is passed.
func stopHere() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

func parse(spec string) (*plan, error) {
	p := &plan{}
	for item := range strings.SplitSeq(spec, ",") {
		name, what, ok := strings.Cut(item, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%s: %q: want NAME=error|enospc|kill|stall|stop[:N]", EnvName, item)
		}
		verb, count, counted := strings.Cut(what, ":")
		r := &rule{name: name}
		switch verb {
		case "error":
			r.act = actError
		case "enospc":
			r.act = actENOSPC
		case "kill":
			r.act = actKill
		case "stall":
			r.act = actStall
		case "stop":
			r.act = actStop
		default:
			return nil, fmt.Errorf("%s: %q: unknown action %q: want error, enospc, kill, stall or stop",
				EnvName, item, verb)
		}
		if counted {
			n, err := strconv.ParseInt(count, 10, 64)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("%s: %q: %q is no count: want a number from 1 on",
					EnvName, item, count)
			}
			r.at = n
		}
		p.rules = append(p.rules, r)
	}
	return p, nil
}
