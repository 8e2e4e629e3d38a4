// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Rules say what is expected of a job.
type Rules struct {
	Ranks int
	Keep  int                               // epochs that are kept
	Want  func(rank, step int) string       // what a step comes to
	Goes  func(answer string) bool          // whether an answer without epoch says that the job goes on
	Open  func(answer string) (undone bool) // whether it leaves open if there is an epoch
}

// goesOwnEnd is the end of a process whose Go runtime does not get what it waits with, which nobody can prevent: the
// first line of it (docs/limits.md, "Kernel memory at the start").
var goesOwnEnd = regexp.MustCompile(`fatal error: runtime: (epollcreate|eventfd|epollctl) failed`)

// Violation is a rule that a history breaks.
type Violation struct {
	Rule  string // I1 ...
	Event int    // index of the event at which it was noticed; the number of events: at the end
	Text  string
}

func (v Violation) String() string { return v.Rule + ": " + v.Text }

// request is what is known of one.
type request struct {
	at, run  int
	then     string
	answered bool
	answer   Event
	steps    []int // last of each rank when it was made
	open     bool  // it may still make an epoch
}

type run struct {
	from          int // epoch
	began         int // event
	ended, opened bool
	end           Event
	first         []bool // ranks that have made a step
	stop, result  bool
	missing       map[int]bool
}

// window is where the program was when an epoch was made: for each rank the fewest and the most steps that it
// had made.
type window struct{ least, most []int }

// promise is that the program goes on from where it was.
type promise struct {
	at, run int
	steps   []int
	text    string
}

type checker struct {
	Rules
	events     []Event
	at         int
	found      []Violation
	disk       map[int]bool
	reported   map[int]bool
	appeared   map[int]int // event
	windows    map[int]*window
	newest     int
	token      uint64
	requests   map[int]*request
	finals     map[int]Event // answers, known beforehand
	runs       map[int]*run
	last       []int
	promises   []promise
	hurting    map[string]bool
	deadly     int // event of the last deadly fault
	lastHurtAt int
}

// Check returns the rules that a history breaks.
func Check(r Rules, events []Event) []Violation {
	c := &checker{Rules: r, events: events, disk: map[int]bool{}, reported: map[int]bool{}, appeared: map[int]int{}, windows: map[int]*window{},
		requests: map[int]*request{}, finals: map[int]Event{}, runs: map[int]*run{}, hurting: map[string]bool{},
		last: slices.Repeat([]int{-1}, r.Ranks), deadly: -1, lastHurtAt: -1}
	for _, e := range events {
		if e.Kind == Answer {
			c.finals[e.Request] = e
		}
	}
	for i, e := range events {
		c.at = i
		c.event(e)
	}
	c.at = len(events)
	c.finish()
	return c.found
}

func (c *checker) violates(rule, format string, args ...any) {
	c.found = append(c.found, Violation{rule, c.at, fmt.Sprintf(format, args...)})
}

func (c *checker) event(e Event) {
	switch e.Kind {
	case Start:
		if e.Epoch != 0 && !c.disk[e.Epoch] {
			c.violates("I3", "a restart from epoch %d, which is not there", e.Epoch)
		}
		c.runs[e.Run] = &run{from: e.Epoch, began: c.at, first: make([]bool, c.Ranks), missing: map[int]bool{}}
	case Opened:
		c.opened(e)
	case End:
		c.ended(e)
	case Stop:
		c.runs[e.Run].stop = true
		c.broken(e.Run)
	case Result:
		c.runs[e.Run].result = true
		if !e.Fine {
			c.violates("I9", "wrong result: %s", e.Text)
		}
	case Request:
		c.requests[e.Request] = &request{at: c.at, run: e.Run, then: e.Then, steps: slices.Clone(c.last), open: true}
	case Answer:
		c.answer(e)
	case Silent:
		c.violates("I10", "request %d is not answered: %s", e.Request, e.Text)
	case Appeared:
		c.epoch(e)
	case Gone:
		c.gone(e)
	case Verified:
		if !e.Fine && c.disk[e.Epoch] {
			c.violates("I1", "epoch %d is not sound: %s", e.Epoch, e.Text)
		}
	case Step:
		c.step(e)
	case Stands:
		c.violates("I2", "the program stands still: %s", e.Text)
	case Log:
		c.log(e)
	case Hurt:
		c.hurting[e.Text] = true
		c.lastHurtAt = c.at
		if e.Deadly {
			c.deadly = c.at
		}
	case Healed:
		delete(c.hurting, e.Text)
	case Unnamed:
		c.violates("I8", "rank %d is away, and nobody says so", e.Rank)
	}
}

func (c *checker) opened(e Event) {
	for n, r := range c.runs {
		if n != e.Run && r.opened && !r.ended {
			c.violates("I6", "run %d owns the directory beside run %d", e.Run, n)
		}
	}
	c.runs[e.Run].opened = true
	if e.Token != 0 {
		if e.Token <= c.token {
			c.violates("I4", "run %d has token %d, after %d", e.Run, e.Token, c.token)
		}
		c.token = max(c.token, e.Token)
	}
}

// ended finds out why a run has ended.
func (c *checker) ended(e Event) {
	r := c.runs[e.Run]
	r.ended, r.end = true, e
	if c.deadly < r.began && !c.asked(e.Run) {
		c.broken(e.Run)
	}
	c.promises = slices.DeleteFunc(c.promises, func(p promise) bool { return p.run == e.Run })
	if r.deaf() {
		other := slices.ContainsFunc(c.open(), func(n int) bool { return n != e.Run })
		if r.from != 0 && c.lastHurtAt < r.began && len(c.hurting) == 0 && !other {
			c.violates("I3", "the restart from epoch %d failed, and nothing had disturbed it: %s", r.from, e.Text)
		} else if r.from == 0 && c.deadly < r.began && len(c.hurting) == 0 && c.lastHurtAt < r.began && !other {
			c.violates("I9", "the start failed, and nothing had disturbed it: %s", e.Text)
		}
		if e.Code == 0 {
			c.violates("I9", "run %d never began and ended with status 0", e.Run)
		}
		return
	}
	switch {
	case r.stop && e.Code == 0:
	case c.deadly > r.began:
	case c.asked(e.Run):
	default:
		for _, q := range c.requests {
			if a, ok := c.finals[c.number(q)]; q.run == e.Run && q.then != "continue" && ok && a.Epoch == 0 && e.Code == 0 {
				c.violates("I7", "the job ended as request %d wanted, which had failed: %s", c.number(q), a.Text)
				return
			}
		}
		c.violates("I9", "the job ended with status %d, and nobody had ended it: %s", e.Code, e.Text)
	}
}

// broken notes the promises of a run that were not kept, and forgets them.
func (c *checker) broken(run int) {
	c.promises = slices.DeleteFunc(c.promises, func(p promise) bool {
		if p.run == run {
			c.violates("I2", "the job was said to go on, and made no further step: %s", p.text)
		}
		return p.run == run
	})
}

// deaf tells whether a run was a start that failed or was refused. Ranks may have continued the program before
// that was known.
func (r *run) deaf() bool { return !r.opened }

// open lists the runs that own the directory.
func (c *checker) open() []int {
	var all []int
	for n, r := range c.runs {
		if r.opened && !r.ended {
			all = append(all, n)
		}
	}
	return all
}

func (c *checker) number(q *request) int {
	for n, r := range c.requests {
		if r == q {
			return n
		}
	}
	return 0
}

// asked tells whether the run was to end after a checkpoint that was made.
func (c *checker) asked(run int) bool {
	for n, q := range c.requests {
		if q.run != run || q.then == "continue" {
			continue
		}
		if a, ok := c.finals[n]; ok && (a.Epoch != 0 || c.Open(a.Text)) {
			return true
		} else if !ok && c.newest != 0 && c.appeared[c.newest] > q.at {
			return true
		}
	}
	return false
}

func (c *checker) answer(e Event) {
	q := c.requests[e.Request]
	q.answered, q.answer = true, e
	if e.Epoch != 0 {
		q.open, c.reported[e.Epoch] = false, true
		switch {
		case !c.disk[e.Epoch]:
			c.violates("I1", "request %d is answered with epoch %d, which is not there", e.Request, e.Epoch)
		case c.appeared[e.Epoch] < q.at:
			c.violates("I1", "request %d is answered with epoch %d, which is older", e.Request, e.Epoch)
		}
		return
	}
	// An answer that leaves open whether there is an epoch, or the end of the connection, promises nothing.
	q.open = c.Open(e.Text)
	if c.Goes(e.Text) && !c.runs[q.run].ended {
		c.promises = append(c.promises, promise{c.at, q.run, slices.Clone(c.last), e.Text})
	}
}

func (c *checker) epoch(e Event) {
	if c.newest >= e.Epoch {
		c.violates("I4", "epoch %d appears after epoch %d", e.Epoch, c.newest)
	}
	c.newest = max(c.newest, e.Epoch)
	c.disk[e.Epoch], c.appeared[e.Epoch] = true, c.at
	w := &window{most: slices.Clone(c.last)}
	for _, q := range c.requests {
		if !q.open {
			continue
		}
		if w.least == nil {
			w.least = slices.Clone(q.steps)
		}
		for r := range w.least {
			w.least[r] = min(w.least[r], q.steps[r])
		}
	}
	if w.least == nil {
		c.violates("I2", "epoch %d appears, and nobody waits for one", e.Epoch)
		w.least = slices.Repeat([]int{-1}, c.Ranks)
	}
	c.windows[e.Epoch] = w
}

func (c *checker) gone(e Event) {
	// An epoch that nobody was told of may be taken back: its manifest was in place, and could not be made
	// durable.
	if e.Epoch == c.newest && !c.reported[e.Epoch] {
		c.newest = 0
		delete(c.disk, e.Epoch)
		for n, there := range c.disk {
			if there {
				c.newest = max(c.newest, n)
			}
		}
		return
	}
	newer := 0
	for n, there := range c.disk {
		if there && n > e.Epoch {
			newer++
		}
	}
	if newer < c.Keep {
		c.violates(map[bool]string{true: "I3", false: "I1"}[newer == 0], "epoch %d is gone, with %d newer ones of %d", e.Epoch, newer, c.Keep)
	}
	delete(c.disk, e.Epoch)
}

func (c *checker) step(e Event) {
	if want := c.Want(e.Rank, e.Step); e.Text != want {
		c.violates("I5", "step %d of rank %d comes to %s, undisturbed to %s", e.Step, e.Rank, e.Text, want)
	}
	now := c.stepping()
	switch {
	case now == nil: // seen late
		if e.Step != c.last[e.Rank]+1 {
			c.violates("I5", "rank %d makes step %d after step %d, and no job runs", e.Rank, e.Step, c.last[e.Rank])
		}
	case now.first[e.Rank] || now.from == 0:
		if e.Step != c.last[e.Rank]+1 {
			c.violates("I5", "rank %d makes step %d after step %d", e.Rank, e.Step, c.last[e.Rank])
		}
		now.first[e.Rank] = true
	default:
		now.first[e.Rank] = true
		if w := c.windows[now.from]; w != nil && (e.Step <= w.least[e.Rank] || e.Step > w.most[e.Rank]+1) {
			c.violates("I5", "rank %d goes on from epoch %d with step %d; when that was made it had done one of %d to %d",
				e.Rank, now.from, e.Step, w.least[e.Rank], w.most[e.Rank])
		}
	}
	c.last[e.Rank] = e.Step
	c.promises = slices.DeleteFunc(c.promises, func(p promise) bool {
		for r, s := range p.steps {
			if c.last[r] <= s {
				return false
			}
		}
		return true
	})
}

// stepping is the run whose program makes steps: the owner of the directory, or, before it is seen to be
// that, the one that was started last.
func (c *checker) stepping() *run {
	var owner, other *run
	for _, r := range c.runs {
		switch {
		case r.ended:
		case r.opened && (owner == nil || r.began > owner.began):
			owner = r
		case !r.opened && (other == nil || r.began > other.began):
			other = r
		}
	}
	if owner != nil {
		return owner
	}
	return other
}

var (
	named = regexp.MustCompile(`a rank cannot be reached.*"rank": (\d+)`)
	found = regexp.MustCompile(`a rank can be reached again.*"rank": (\d+)`)
)

func (c *checker) log(e Event) {
	r := c.runs[e.Run]
	if m := named.FindStringSubmatch(e.Text); m != nil {
		rank, _ := strconv.Atoi(m[1])
		if r.missing[rank] {
			c.violates("I8", "rank %d is named again: %s", rank, e.Text)
		}
		r.missing[rank] = true
	} else if m := found.FindStringSubmatch(e.Text); m != nil {
		rank, _ := strconv.Atoi(m[1])
		if !r.missing[rank] {
			c.violates("I8", "rank %d is back and was never away: %s", rank, e.Text)
		}
		delete(r.missing, rank)
	}
	if goesOwnEnd.MatchString(e.Text) {
		return
	}
	if strings.Contains(e.Text, "panic:") || strings.Contains(e.Text, "fatal error:") || strings.Contains(e.Text, "SIGSEGV") {
		c.violates("I9", "the log says: %s", e.Text)
	}
}

func (c *checker) finish() {
	for n := range c.runs {
		c.broken(n)
	}
	for n, q := range c.requests {
		r := c.runs[q.run]
		if a, ok := c.finals[n]; ok && a.Epoch != 0 && q.then != "continue" && !r.ended {
			c.violates("I7", "request %d: epoch %d is there, and the job did not end", n, a.Epoch)
		} else if !ok {
			c.violates("I10", "request %d has no answer", n)
		}
	}
	for n, r := range c.runs {
		switch {
		case !r.ended:
			c.violates("I9", "run %d has not ended", n)
		case r.stop && r.end.Code == 0 && !r.result:
			c.violates("I9", "run %d has no result", n)
		}
	}
}
