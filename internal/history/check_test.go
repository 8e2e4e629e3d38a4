// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func want(rank, step int) string { return fmt.Sprintf("%d/%d", rank, step) }

var rules = Rules{Ranks: 2, Keep: 2, Want: want,
	Goes: func(a string) bool { return !strings.Contains(a, "perhaps") },
	Open: func(a string) bool { return strings.Contains(a, "perhaps") }}

// made builds a history.
type made struct{ events []Event }

func (m *made) add(events ...Event) *made {
	for _, e := range events {
		e.At = time.Unix(int64(len(m.events)), 0)
		m.events = append(m.events, e)
	}
	return m
}

// steps are those of both ranks.
func (m *made) steps(from, to int) *made {
	for s := from; s <= to; s++ {
		for r := range 2 {
			m.add(Event{Kind: Step, Rank: r, Step: s, Text: want(r, s)})
		}
	}
	return m
}

func (m *made) begin(run, epoch int) *made {
	return m.add(Event{Kind: Start, Run: run, Epoch: epoch}, Event{Kind: Opened, Run: run, Token: uint64(run)})
}

func (m *made) save(request, run, epoch int, then string) *made {
	return m.add(Event{Kind: Request, Run: run, Request: request, Then: then}, Event{Kind: Appeared, Epoch: epoch},
		Event{Kind: Answer, Run: run, Request: request, Epoch: epoch, Then: then}, Event{Kind: Verified, Epoch: epoch, Fine: true})
}

func (m *made) refuse(request, run int, then, text string) *made {
	return m.add(Event{Kind: Request, Run: run, Request: request, Then: then}, Event{Kind: Answer, Run: run, Request: request, Text: text})
}

func (m *made) kill(run int) *made {
	return m.add(Event{Kind: Hurt, Text: "kill", Deadly: true}, Event{Kind: Healed, Text: "kill"}, Event{Kind: End, Run: run, Code: 137})
}

func (m *made) finish(run int) *made {
	return m.add(Event{Kind: Stop, Run: run}, Event{Kind: End, Run: run}, Event{Kind: Result, Run: run, Fine: true})
}

const (
	away = `WARN ckptrun a rank cannot be reached: no checkpoint {"rank": 1, "noticed by rank": 0}`
	back = `WARN ckptrun a rank can be reached again {"rank": 1}`
)

// good is a history of all sorts in which nothing is wrong.
func good() *made {
	m := (&made{}).begin(1, 0).steps(0, 4).save(1, 1, 1, "continue").steps(5, 6).
		refuse(2, 1, "exit", "failed; the job goes on").steps(7, 8)
	m.add(Event{Kind: Log, Run: 1, Text: away}, Event{Kind: Log, Run: 1, Text: back}, Event{Kind: Log, Run: 1, Text: away}, Event{Kind: Log, Run: 1, Text: back})
	m.save(3, 1, 2, "continue").save(4, 1, 3, "continue").add(Event{Kind: Gone, Epoch: 1}).steps(9, 12).kill(1)
	// A restart that is hurt may fail, and one beside the job is refused.
	m.add(Event{Kind: Start, Run: 2, Epoch: 3}, Event{Kind: Hurt, Text: "full"}, Event{Kind: Healed, Text: "full"},
		Event{Kind: Log, Run: 2, Text: "fatal error: runtime: epollctl failed"}, Event{Kind: End, Run: 2, Code: 2})
	m.begin(3, 3).steps(9, 10).add(Event{Kind: Start, Run: 4, Epoch: 3}, Event{Kind: End, Run: 4, Code: 1}).steps(11, 14)
	// An answer that got lost promises nothing, and its epoch may come.
	m.refuse(5, 3, "continue", "perhaps").add(Event{Kind: Appeared, Epoch: 4}, Event{Kind: Gone, Epoch: 2}).steps(15, 15)
	m.save(6, 3, 5, "exit").add(Event{Kind: End, Run: 3})
	m.begin(5, 5).steps(16, 20)
	// What nobody was told of may be taken back, and its number comes again.
	m.add(Event{Kind: Request, Run: 5, Request: 7, Then: "continue"}, Event{Kind: Appeared, Epoch: 6}, Event{Kind: Gone, Epoch: 6},
		Event{Kind: Answer, Run: 5, Request: 7, Text: "the job goes on"}).steps(21, 22)
	return m.save(8, 5, 6, "continue").steps(23, 24).finish(5)
}

func TestGoodHistory(t *testing.T) {
	for _, v := range Check(rules, good().events) {
		t.Error(v)
	}
}

// Each rule finds what it is for.
func TestBadHistories(t *testing.T) {
	begun := func() *made { return (&made{}).begin(1, 0).steps(0, 4) }
	saved := func() *made { return begun().save(1, 1, 1, "continue").steps(5, 6) }
	for _, c := range []struct {
		rule, name string
		bad        *made
	}{
		{"I1", "a report without an epoch", begun().add(Event{Kind: Request, Run: 1, Request: 1, Then: "continue"},
			Event{Kind: Answer, Run: 1, Request: 1, Epoch: 1}).steps(5, 6).finish(1)},
		{"I1", "a report of an older epoch", saved().add(Event{Kind: Request, Run: 1, Request: 2, Then: "continue"},
			Event{Kind: Answer, Run: 1, Request: 2, Epoch: 1}).steps(7, 8).finish(1)},
		{"I1", "a damaged epoch", saved().add(Event{Kind: Verified, Epoch: 1, Text: "page 3"}).finish(1)},
		{"I1", "an epoch that goes too early", saved().save(2, 1, 2, "continue").add(Event{Kind: Gone, Epoch: 1}).finish(1)},
		{"I2", "no step after a refusal", saved().refuse(2, 1, "continue", "the job goes on").finish(1)},
		{"I2", "one rank stands after a refusal", saved().refuse(2, 1, "continue", "the job goes on").
			add(Event{Kind: Step, Rank: 0, Step: 7, Text: want(0, 7)})},
		{"I2", "the end after a refusal", saved().refuse(2, 1, "continue", "the job goes on").add(Event{Kind: End, Run: 1, Code: 1})},
		{"I2", "an epoch of a request that was given up", saved().refuse(2, 1, "continue", "the job goes on").steps(7, 8).
			add(Event{Kind: Appeared, Epoch: 2}).steps(9, 9).finish(1)},
		{"I2", "the program stands", saved().add(Event{Kind: Stands, Run: 1}).finish(1)},
		{"I3", "the newest epoch is lost", saved().add(Event{Kind: Gone, Epoch: 1}).finish(1)},
		{"I3", "an undisturbed restart fails", saved().kill(1).add(Event{Kind: Start, Run: 2, Epoch: 1}, Event{Kind: End, Run: 2, Code: 1, Text: "no"})},
		{"I3", "a restart from nothing", begun().kill(1).begin(2, 1).steps(0, 1).finish(2)},
		{"I4", "an epoch's number comes again", saved().save(2, 1, 2, "continue").kill(1).begin(2, 2).steps(7, 8).save(3, 2, 2, "continue").finish(2)},
		{"I4", "a token comes again", saved().kill(1).add(Event{Kind: Start, Run: 2, Epoch: 1}, Event{Kind: Opened, Run: 2, Token: 1}).steps(5, 6).finish(2)},
		{"I5", "a step comes to something else", saved().add(Event{Kind: Step, Rank: 0, Step: 7, Text: "?"}).finish(1)},
		{"I5", "a step is left out", saved().steps(8, 9).finish(1)},
		{"I5", "a step is done twice", saved().steps(6, 7).finish(1)},
		{"I5", "a restart goes on before its epoch", saved().kill(1).begin(2, 1).steps(4, 9).finish(2)},
		{"I5", "a restart goes on after its epoch", saved().kill(1).begin(2, 1).steps(6, 9).finish(2)},
		{"I6", "two owners", saved().begin(2, 1).steps(7, 8)},
		{"I7", "exit after a refusal", saved().refuse(2, 1, "exit", "the job goes on").steps(7, 8).add(Event{Kind: End, Run: 1})},
		{"I7", "no exit after the commit", saved().save(2, 1, 2, "exit").steps(7, 8)},
		{"I8", "a rank is named twice", saved().add(Event{Kind: Log, Run: 1, Text: away}, Event{Kind: Log, Run: 1, Text: away}).finish(1)},
		{"I8", "a rank is back that was not away", saved().add(Event{Kind: Log, Run: 1, Text: back}).finish(1)},
		{"I8", "a rank is not named", saved().add(Event{Kind: Unnamed, Run: 1, Rank: 1}).finish(1)},
		{"I9", "the job ends for no reason", saved().add(Event{Kind: End, Run: 1, Code: 1})},
		{"I9", "the job ends well for no reason", saved().add(Event{Kind: End, Run: 1})},
		{"I9", "a start fails for no reason", (&made{}).add(Event{Kind: Start, Run: 1}, Event{Kind: End, Run: 1, Code: 1})},
		{"I9", "a wrong result", saved().add(Event{Kind: Stop, Run: 1}, Event{Kind: End, Run: 1}, Event{Kind: Result, Run: 1, Text: "?"})},
		{"I9", "a bad end", saved().add(Event{Kind: Stop, Run: 1}, Event{Kind: End, Run: 1, Code: 1})},
		{"I9", "no end", saved()},
		{"I9", "a crash that the log tells of", saved().add(Event{Kind: Log, Run: 1, Text: "fatal error: all goroutines are asleep"}).finish(1)},
		{"I10", "no answer", saved().add(Event{Kind: Request, Run: 1, Request: 2, Then: "continue"}).steps(7, 8).finish(1)},
		{"I10", "an answer that does not come in time", saved().add(Event{Kind: Silent, Run: 1, Request: 1}).finish(1)},
	} {
		found := Check(rules, c.bad.events)
		if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == c.rule }) {
			t.Errorf("%s: %s is not found, but %v", c.rule, c.name, found)
		}
	}
}

// Every event of a good history says what it is.
func TestStory(t *testing.T) {
	for _, e := range good().events {
		if s := e.String(); !strings.Contains(s, string(e.Kind)) {
			t.Errorf("%q does not say %q", s, e.Kind)
		}
	}
}
