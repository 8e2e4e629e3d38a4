// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/libckpt/libckpt/collclock"
)

// choiceKind is what can happen next.
type choiceKind uint8

const (
	doThread choiceKind = iota
	doDeliver
	doSnapshot
	doStart
	doTest
	doRequest
	doResume
	doAbort
)

// choice is one step that is possible.
type choice struct {
	kind choiceKind
	n    int // thread, packet or rank
}

// choices lists all steps that are possible.
func (w *World) choices(all []choice) []choice {
	all = all[:0]
	for t := range w.threads {
		if w.canStep(t) {
			all = append(all, choice{doThread, t})
		}
	}
	for i, p := range w.net {
		if w.opt.InOrder && w.overtakes(i, p) || w.sameBefore(i) {
			continue
		}
		all = append(all, choice{doDeliver, i})
	}
	allStopped := true
	for r := range w.ranks {
		if w.ranks[r].raise != 0 {
			all = append(all, choice{doSnapshot, r})
		}
		if w.canStart(r) {
			all = append(all, choice{doStart, r})
		}
		if w.testable(r) >= 0 {
			all = append(all, choice{doTest, r})
		}
		allStopped = allStopped && w.ranks[r].stopped
	}
	if w.requested < w.opt.Requests && w.requested == w.safe+w.aborted && !w.epochSafe {
		all = append(all, choice{kind: doRequest})
	}
	if allStopped {
		all = append(all, choice{kind: doResume})
	}
	if w.aborted < w.opt.Aborts && w.requested > w.safe+w.aborted {
		all = append(all, choice{kind: doAbort})
	}
	return all
}

func (w *World) overtakes(i int, p packet) bool {
	for _, q := range w.net[:i] {
		if q.from == p.from && q.to == p.to {
			return true
		}
	}
	return false
}

// sameBefore tells that an equal packet is in the list already: taking either is the same step.
func (w *World) sameBefore(i int) bool {
	for _, q := range w.net[:i] {
		if q == w.net[i] {
			return true
		}
	}
	return false
}

func (w *World) take(c choice) error {
	switch c.kind {
	case doThread:
		th := w.threads[c.n]
		w.log("rank %d: %s%s", w.prog.Threads[c.n].Rank, w.op(c.n), [...]string{"", "", " (enters)", " (leaves)", " (received)", " (has met)"}[th.stage])
		return w.stepThread(c.n)
	case doDeliver:
		p := w.net[c.n]
		if w.opt.InOrder {
			w.net = append(w.net[:c.n:c.n], w.net[c.n+1:]...)
		} else {
			w.net[c.n] = w.net[len(w.net)-1]
			w.net = w.net[:len(w.net)-1]
		}
		w.log("%d -> %d: %s", p.from, p.to, w.message(p.msg))
		return w.step(int(p.to), collclock.Received{From: p.from, Message: p.msg})
	case doSnapshot:
		r := &w.ranks[c.n]
		epoch := r.raise
		r.raise = 0
		w.log("rank %d: snapshot", c.n)
		return w.step(c.n, collclock.Snapshot{Epoch: epoch})
	case doStart:
		w.log("rank %d: deferred start of call %d on %s", c.n, w.ranks[c.n].starts[0].K, w.name(w.ranks[c.n].starts[0].Clock))
		return w.stepStart(c.n)
	case doTest:
		w.log("rank %d: request %s is complete", c.n, w.ranks[c.n].requests[w.testable(c.n)].name)
		return w.stepTest(c.n)
	case doRequest:
		w.requested++
		w.log("request")
		return w.step(0, collclock.Request{})
	case doResume:
		w.log("resume")
		return w.step(0, collclock.Resume{})
	default:
		w.aborted++
		w.log("abort")
		return w.step(0, collclock.Abort{})
	}
}

// ended tells why a state in which nothing can happen is not the end.
func (w *World) ended() error {
	var stuck []string
	for t, th := range w.threads {
		if th.at < len(w.prog.Threads[t].Ops) {
			stuck = append(stuck, fmt.Sprintf("rank %d %s %q", w.prog.Threads[t].Rank,
				[...]string{"at", "waits before", "before", "inside", "inside", "at the bridge of"}[th.stage], w.op(t)))
		}
	}
	if len(stuck) > 0 {
		return fmt.Errorf("deadlock: %s", strings.Join(stuck, "; "))
	}
	if w.requested < w.opt.Requests || w.requested != w.safe+w.aborted {
		return fmt.Errorf("deadlock: the program has ended, but %d of %d epochs have not", w.requested-w.safe-w.aborted, w.requested)
	}
	for r := range w.ranks {
		if v, ok := w.ranks[r].proto.(viewer); ok && v.Phase() != collclock.Idle {
			return fmt.Errorf("deadlock: rank %d stays %v", r, v.Phase())
		}
	}
	return nil
}

// Result of one run.
type Result struct {
	Steps, Messages, Safe int
	Err                   error
	Log                   []string
}

// Run takes random steps until nothing can happen any more.
func Run(p *Program, m Maker, opt Options, seed uint64, keepLog bool) Result {
	var res Result
	w := New(p, m, opt)
	if keepLog {
		w.log = func(format string, args ...any) { res.Log = append(res.Log, fmt.Sprintf(format, args...)) }
	}
	rng := rand.New(rand.NewPCG(seed, uint64(p.Ranks)))
	// Runs differ in when the checkpoint is asked for, and in who is slow.
	patience := rng.IntN(60)
	weight := make([]int, p.Ranks)
	for i := range weight {
		weight[i] = 1 + rng.IntN(8)
	}
	var list []choice
	for {
		list = w.choices(list)
		if len(list) == 0 {
			res.Err = w.ended()
			break
		}
		c := list[rng.IntN(len(list))]
		if len(list) > 1 {
			if c.kind == doRequest && patience > 0 {
				patience--
				continue
			}
			if (c.kind == doThread && rng.IntN(8) >= weight[w.prog.Threads[c.n].Rank]) ||
				c.kind == doAbort && rng.IntN(30) > 0 {
				continue
			}
		}
		res.Steps++
		if res.Err = w.take(c); res.Err != nil {
			break
		}
		if c.kind == doResume {
			patience = rng.IntN(60)
		}
	}
	res.Messages, res.Safe = w.messages, w.safe
	return res
}

func (w *World) message(m collclock.Message) string {
	s := m.String()
	if m.Clock != (collclock.ID{}) {
		s = strings.Replace(s, m.Clock.String(), w.name(m.Clock), 1)
	}
	return s
}

func describe(a collclock.Action, w *World) string {
	switch a := a.(type) {
	case collclock.Send:
		return fmt.Sprintf("send to %d: %s", a.To, w.message(a.Message))
	case collclock.Permit:
		return fmt.Sprintf("permit %s %d", w.name(a.Clock), a.K)
	case collclock.Defer:
		return fmt.Sprintf("defer %s %d", w.name(a.Clock), a.K)
	case collclock.Start:
		return fmt.Sprintf("start %s %d", w.name(a.Clock), a.K)
	case collclock.Raise:
		return "raise pending"
	case collclock.Lower:
		return "lower pending"
	case collclock.Stop:
		return "safe"
	case collclock.Resumed:
		return "resumed"
	}
	return fmt.Sprintf("%+v", a)
}
