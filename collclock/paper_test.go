// SPDX-License-Identifier: Apache-2.0

package collclock_test

import (
	"fmt"
	"testing"

	"github.com/libckpt/libckpt/collclock/published"
	"github.com/libckpt/libckpt/collclock/scenario"
)

// Claims of the paper on the collective clock (Xu and Cooperman, "Enabling Practical Transparent
// Checkpointing for MPI: A Topological Sort Approach"), one test each. A claim that does not hold in
// general is tested with the smallest program that refutes it, which the refined protocol must
// survive; the claim's text is ours, in short.

func paperProgram(t *testing.T, text string) *scenario.Program {
	t.Helper()
	p, err := scenario.ParseProgram(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// holds runs all schedules of a program under the published algorithm; none may fail.
func holds(t *testing.T, p *scenario.Program) {
	t.Helper()
	r := scenario.Explore(p, scenario.PublishedPlain, scenario.Options{Requests: 1, InOrder: true, GroupOnParent: true}, 400_000)
	if r.Err != nil {
		t.Errorf("the claim fails: %v", r.Err)
	}
	if r.Err == nil && !r.Complete {
		t.Errorf("not all schedules were searched (%d states)", r.States)
	}
}

// refuted finds a schedule in which the published algorithm fails, and none in which ours does.
func refuted(t *testing.T, p *scenario.Program, with published.Config) {
	t.Helper()
	r := scenario.Explore(p, scenario.Published(with), scenario.Options{Requests: 1, InOrder: true, GroupOnParent: true}, 400_000)
	if r.Err == nil {
		t.Errorf("the published algorithm does not fail (%d states, complete: %t)", r.States, r.Complete)
	} else {
		t.Logf("published: %v", r.Err)
	}
	for seed := range uint64(200) {
		if res := scenario.Run(p, scenario.Refined(nil), scenario.Options{Requests: 2}, seed, false); res.Err != nil {
			t.Fatalf("refined, seed %d: %v", seed, res.Err)
		}
	}
}

// A rank that has not reached its targets goes on, so every collective that somebody has begun is
// completed: true for blocking collectives when nothing but collectives connects the ranks.
func TestPaperDebtsArePaidWithBlockingCollectivesOnly(t *testing.T) {
	holds(t, paperProgram(t, "ranks 3\ncomm C 0 1\n0: coll C, coll W\n1: coll C, coll W\n2: coll W\n"))
	holds(t, paperProgram(t, "ranks 2\n0: coll W, coll W\n1: coll W, coll W\n"))
}

// Point-to-point messages need no attention until the state is safe: false. The sender may be parked.
func TestPaperPointToPointNeedsNoAttention(t *testing.T) {
	refuted(t, paperProgram(t, "ranks 4\ncomm C 0 1\ncomm D 2 3\n0: coll C\n1: recv 2, coll C\n2: coll D, send 1\n3: coll D\n"), published.Config{})
}

// One clock for each group of processes is enough, since equal counts mean equal collectives: false
// with non-blocking collectives on two communicators of one group.
func TestPaperOneClockPerGroup(t *testing.T) {
	refuted(t, paperProgram(t, "ranks 2\ncomm A 0 1\ncomm B 0 1\n0: icoll A a, icoll B b, wait a, wait b\n1: icoll B b, icoll A a, wait a, wait b\n"), published.Config{})
}

// Once all targets are reached, every process has initiated each non-blocking collective that any
// has (section 4.3.2), so testing them completes them: false, with one blocking.
func TestPaperAllHaveInitiated(t *testing.T) {
	refuted(t, paperProgram(t, "ranks 2\ncomm A 0 1\ncomm B 0 1\n0: icoll A a, coll B, wait a\n1: coll B, icoll A a, wait a\n"), published.Config{})
}

// A rank may wait for new targets before it initiates a non-blocking collective: false, initiation is
// local and others may wait for what comes after it.
func TestPaperInitiationMayWait(t *testing.T) {
	refuted(t, paperProgram(t, "ranks 3\ncomm C 1 2\n0: icoll W a, send 1, wait a\n1: recv 0, coll C, icoll W a, wait a\n2: coll C, icoll W a, wait a\n"), published.Config{})
}

// When all ranks have reached their targets the state is safe: false as implemented, when a raised
// target is still on its way.
func TestPaperAllReachedIsSafe(t *testing.T) {
	refuted(t, paperProgram(t, "ranks 3\ncomm C 0 1\ncomm G 1 2\n0: coll C\n1: bcast G 1, coll C\n2: bcast G 1\n"), published.Config{})
}

// Communicators may be made at any time: false as implemented, when targets of unknown groups are
// dropped.
func TestPaperDynamicCommunicators(t *testing.T) {
	refuted(t, paperProgram(t, "ranks 3\n0: make W X 0 1, coll X\n1: make W X 0 1, coll X\n2: make W X 0 1\n"), published.Config{DropUnknown: true})
}

// The cost without a checkpoint is local, no message: true, for the refined protocol as well (but for
// always-gated calls, which meet anyway).
func TestPaperNoMessagesWithoutCheckpoint(t *testing.T) {
	p := paperProgram(t, "ranks 4\ncomm C 0 1\n0: coll C, icoll W a, wait a, make W X 0 1 2\n1: coll C, icoll W a, wait a, make W X 0 1 2\n2: icoll W a, wait a, make W X 0 1 2\n3: icoll W a, wait a, make W X 0 1 2\n")
	for name, maker := range map[string]scenario.Maker{"refined": scenario.Refined(nil), "published": scenario.PublishedPlain} {
		if r := scenario.Run(p, maker, scenario.Options{}, 1, false); r.Err != nil || r.Messages != 0 {
			t.Errorf("%s: %d messages, %v", name, r.Messages, r.Err)
		}
	}
	// Two-phase commit pays for each collective.
	blocking := paperProgram(t, "ranks 2\n0: coll W, coll W\n1: coll W, coll W\n")
	if r := scenario.Run(blocking, scenario.TwoPhase, scenario.Options{}, 1, false); r.Err != nil || r.Messages < 4 {
		t.Errorf("2pc: %d messages, %v", r.Messages, r.Err)
	}
}

// Every request is served after finitely many steps, since targets stop rising: true for the refined
// protocol, whose debts never rise; counted here on a program that makes new debts as it goes.
func TestPaperTargetsStopRising(t *testing.T) {
	text := "ranks 4\ncomm A 0 1\ncomm B 1 2\ncomm C 2 3\n"
	for r, ops := range []string{"coll A", "coll A, coll B", "coll B, coll C", "coll C"} {
		text += fmt.Sprintf("%d: %s, %s, %s\n", r, ops, ops, ops)
	}
	p := paperProgram(t, text)
	for seed := range uint64(200) {
		if r := scenario.Run(p, scenario.Refined(nil), scenario.Options{Requests: 3}, seed, false); r.Err != nil || r.Safe != 3 {
			t.Fatalf("seed %d: %d safe states, %v", seed, r.Safe, r.Err)
		}
	}
}
