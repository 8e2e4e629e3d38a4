// SPDX-License-Identifier: Apache-2.0

package collclock_test

import (
	"bytes"
	"errors"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/libckpt/libckpt/collclock"
	"github.com/libckpt/libckpt/collclock/scenario"
)

// TestPure keeps input, output and time out of the state machine.
func TestPure(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		files++
		f, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			for _, bad := range []string{"net", "os", "time", "C", "syscall", "unsafe"} {
				if path == bad || strings.HasPrefix(path, bad+"/") {
					t.Errorf("%s imports %s", e.Name(), path)
				}
			}
		}
	}
	if files < 8 {
		t.Errorf("found only %d files", files)
	}
}

// messages are one of each kind.
var messages = []Message{
	{Kind: MsgReq, Epoch: 1}, {Kind: MsgReady, Epoch: 1<<32 - 1}, {Kind: MsgFreeze, Epoch: 2},
	{Kind: MsgClean, Epoch: 3}, {Kind: MsgStop, Epoch: 300}, {Kind: MsgResume, Epoch: 70000},
	{Kind: MsgInit, Epoch: 1, Clock: World(), A: 3, B: 2, C: 1 << 63},
	{Kind: MsgAnn, Clock: World(), A: 128}, {Kind: MsgLim, Epoch: 9, Clock: Self(4), A: 0},
	{Kind: MsgRipe, Epoch: 1, Clock: World()}, {Kind: MsgFin, Epoch: 1, Clock: World(), A: 5},
	{Kind: MsgFree, Clock: World()}, {Kind: MsgDrop, Clock: World()}, {Kind: MsgAsk, Epoch: 1, Clock: World()},
	{Kind: MsgPrivate, Epoch: 1<<32 - 1, Clock: World(), A: 1<<64 - 1, B: 1<<64 - 1, C: 1<<64 - 1},
	{Kind: MsgPrivate, Epoch: 1, Clock: World(), A: 1, B: 2, C: 3},
}

func TestMessageRoundTrip(t *testing.T) {
	for _, m := range messages {
		b := AppendMessage(nil, m)
		if len(b) > MaxMessage {
			t.Errorf("%v takes %d bytes, more than MaxMessage", m, len(b))
		}
		got, err := DecodeMessage(b)
		if err != nil {
			t.Errorf("%v: %v", m, err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		for n := range b {
			if _, err := DecodeMessage(b[:n]); !errors.Is(err, ErrMessage) {
				t.Errorf("%v cut to %d bytes: %v", m, n, err)
			}
		}
		if _, err := DecodeMessage(append(b, 0)); !errors.Is(err, ErrMessage) {
			t.Errorf("%v with a byte more: %v", m, err)
		}
	}
}

// TestMessageGolden fixes the bytes: ranks of one job may run different builds.
func TestMessageGolden(t *testing.T) {
	m := Message{Kind: MsgInit, Epoch: 300, Clock: ID{0: 0xaa, 15: 0xbb}, A: 1, B: 0, C: 128}
	want := append([]byte{1, 7, 0xac, 0x02, 0xaa}, make([]byte, 14)...)
	want = append(want, 0xbb, 1, 0, 0x80, 0x01)
	if got := AppendMessage(nil, m); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

func FuzzDecodeMessage(f *testing.F) {
	for _, m := range messages {
		f.Add(AppendMessage(nil, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMessage(b)
		if err != nil {
			if !errors.Is(err, ErrMessage) {
				t.Fatalf("unmarked error %v", err)
			}
			return
		}
		if again := AppendMessage(nil, m); !bytes.Equal(b, again) {
			t.Fatalf("%x decodes to %v, which encodes to %x", b, m, again)
		}
	})
}

// FuzzMachine gives a machine messages from nowhere: it must neither crash nor let anybody into a call
// that only messages from its own neighbours could permit.
func FuzzMachine(f *testing.F) {
	for _, m := range messages {
		f.Add(append([]byte{1}, AppendMessage(nil, m)...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := New(Config{Rank: 2, Ranks: 7})
		m.Step(Call{Clock: World()})
		m.Step(Return{Clock: World()})
		for len(b) > 1 {
			from := int32(b[0]) - 1
			n := min(len(b)-1, 1+int(b[1])%40)
			if msg, err := DecodeMessage(b[1 : 1+n]); err == nil {
				for _, a := range m.Step(Received{From: from, Message: msg}) {
					if r, ok := a.(Raise); ok {
						m.Step(Snapshot{Epoch: r.Epoch})
						m.Step(Call{Clock: World()})
					}
				}
			}
			b = b[1+n:]
		}
		_ = m.Status().String()
		m.AppendState(nil)
	})
}

// TestIdentities: what must be equal is, and nothing else.
func TestIdentities(t *testing.T) {
	all, some := []int32{0, 1, 2}, []int32{2, 1, 0}
	ids := []ID{
		World(), Self(0), Self(1),
		Child(World(), 1, CreateDup, all), Child(World(), 2, CreateDup, all), Child(World(), 1, CreateSplit, all),
		Child(World(), 1, CreateDup, some), Child(Self(0), 1, CreateDup, all),
		Subset(World(), 0, all, 0), Subset(World(), 1, all, 0), Subset(World(), 0, all, 1), Subset(World(), -1, all, 0),
		Intercomm(World(), Self(0), 0, 0), Intercomm(World(), Self(0), 1, 0), Intercomm(World(), Self(1), 0, 0),
		Object(World(), ObjectRequest, 1), Object(World(), ObjectRequest, 2), Object(World(), ObjectFile, 1),
	}
	for i, a := range ids {
		if j := slices.Index(ids, a); j != i {
			t.Errorf("identities %d and %d are equal", i, j)
		}
	}
	if Intercomm(World(), Self(0), 3, 1) != Intercomm(Self(0), World(), 3, 1) {
		t.Error("the two sides of an intercommunicator compute different identities")
	}
	// Identities are in images and must never change.
	if got, want := World().String(), "fcb5f40df9be6bae"; got != want {
		t.Errorf("World is %s, was %s", got, want)
	}
}

// TestRandomPrograms runs programs that cannot deadlock, made at random, each with checkpoints at
// random moments.
func TestRandomPrograms(t *testing.T) {
	t.Parallel()
	safe := 0
	for seed := range uint64(1000) {
		p := scenario.RandomProgram(seed)
		for run := range uint64(3) {
			opt := scenario.Options{Requests: 2, Aborts: int(run)}
			r := scenario.Run(p, scenario.Refined(nil), opt, seed*3+run, false)
			safe += r.Safe
			if r.Err != nil {
				t.Fatalf("seed %d, run %d: %v\n%s", seed, run, r.Err, p)
			}
		}
	}
	if safe < 2000 {
		t.Errorf("only %d safe states in 3000 runs", safe)
	}
}

// TestPublishedFailsOnRandomPrograms: the same programs tell the protocols apart.
func TestPublishedFailsOnRandomPrograms(t *testing.T) {
	t.Parallel()
	failed := 0
	for seed := range uint64(300) {
		r := scenario.Run(scenario.RandomProgram(seed), scenario.PublishedPlain, scenario.Options{Requests: 1, InOrder: true, GroupOnParent: true}, seed, false)
		if r.Err != nil {
			failed++
		}
	}
	t.Logf("the published algorithm fails in %d of 300 programs", failed)
	if failed == 0 {
		t.Error("random programs do not show any flaw of the published algorithm")
	}
}

// TestStall: debts that are never paid end the epoch after a while; it is tried again, then given up.
func TestStall(t *testing.T) {
	m := New(Config{Rank: 0, Ranks: 2, Stall: 3, Backoff: 2, Tries: 2})
	var got []string
	note := func(list []Action) {
		for _, a := range list {
			switch a := a.(type) {
			case Raise:
				got = append(got, "raise "+strconv.Itoa(int(a.Epoch)))
			case Resumed:
				got = append(got, "resumed "+strconv.FormatBool(a.Aborted))
			case Report:
				got = append(got, map[ReportKind]string{ReportStalled: "stalled", ReportGaveUp: "gave up"}[a.What])
			}
		}
	}
	note(m.Step(Request{}))
	for range 20 {
		note(m.Step(Tick{}))
	}
	want := []string{"raise 1", "stalled", "resumed true", "raise 2", "gave up", "resumed true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestCounters: a caller with counters of its own tells nothing on the fast path.
func TestCounters(t *testing.T) {
	m := New(Config{Rank: 0, Ranks: 1})
	permitted := func(list []Action, k uint64) bool {
		return slices.Contains(list, Action(Permit{Clock: World(), K: k}))
	}
	if !permitted(m.Step(Call{Clock: World(), Mode: Gated, K: 8}), 8) {
		t.Fatal("a gated call of a lone rank must go on")
	}
	m.Step(Return{Clock: World(), K: 8})
	m.Step(Request{})
	// Call 12 is inside: it has not returned, and one of two requests is not complete.
	m.Step(Snapshot{Epoch: 1, Counts: []Count{{Clock: World(), Call: 12, Ret: 11, Open: 1}}})
	if m.Phase() != Frozen {
		t.Fatalf("phase %v with a call inside", m.Phase())
	}
	m.Step(Return{Clock: World(), K: 12})
	if permitted(m.Step(Call{Clock: World(), K: 13}), 13) {
		t.Fatal("a call beyond the snapshot started in a frozen epoch")
	}
	m.Step(Completed{Clock: World()})
	if m.Phase() != Stopped {
		t.Fatalf("phase %v when all is settled", m.Phase())
	}
	if !permitted(m.Step(Resume{}), 13) {
		t.Fatal("the gate stayed closed")
	}
}

// TestWithdrawn: a call that was counted and then refused is none; the next one has its number, also when
// its start was put off.
func TestWithdrawn(t *testing.T) {
	m := New(Config{Rank: 0, Ranks: 1})
	step := func(e Event, want Action) {
		t.Helper()
		if list := m.Step(e); !slices.Contains(list, want) {
			t.Fatalf("%#v: no %#v in %#v", e, want, list)
		}
	}
	phase := func(want Phase) {
		t.Helper()
		if m.Phase() != want {
			t.Fatalf("phase %v, want %v", m.Phase(), want)
		}
	}
	m.Step(Withdrawn{Clock: World(), K: 5}) // nobody was told of it
	m.Step(Request{})
	m.Step(Snapshot{Epoch: 1, Counts: []Count{{Clock: World(), Call: 12, Ret: 11}}})
	m.Step(Withdrawn{Clock: World(), K: 12})
	phase(Frozen) // what was told as made is still to be made
	step(Call{Clock: World(), K: 12}, Permit{Clock: World(), K: 12})
	m.Step(Return{Clock: World(), K: 12})
	phase(Stopped)
	step(Call{Clock: World(), Mode: NonBlocking, K: 13}, Defer{Clock: World(), K: 13})
	step(Call{Clock: World(), Mode: NonBlocking, K: 14}, Defer{Clock: World(), K: 14})
	step(Resume{}, Start{Clock: World(), K: 13})
	step(Withdrawn{Clock: World(), K: 13, Deferred: true}, Start{Clock: World(), K: 13})
	step(Started{Clock: World(), K: 13}, Lower{Epoch: 1})
	phase(Idle)

	// A counter was read with a call that was withdrawn when nobody was to be told any more.
	m.Step(Request{})
	m.Step(Snapshot{Epoch: 2, Counts: []Count{{Clock: World(), Call: 14, Ret: 13}}})
	m.Step(Abort{})
	m.Step(Request{})
	m.Step(Snapshot{Epoch: 3, Counts: []Count{{Clock: World(), Call: 13, Ret: 13, Open: 1}}})
	m.Step(Completed{Clock: World()})
	phase(Frozen)
	step(Call{Clock: World(), K: 14}, Permit{Clock: World(), K: 14})
	m.Step(Return{Clock: World(), K: 14})
	phase(Stopped)
}
