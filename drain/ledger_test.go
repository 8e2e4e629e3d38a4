// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// exchange delivers notices as the signaling network does.
func exchange(t *testing.T, all [][]Mark) []*Ledger {
	t.Helper()
	in := make([]map[int][]byte, len(all))
	for r := range in {
		in[r] = map[int][]byte{}
	}
	for r, marks := range all {
		for to, b := range Notices(marks) {
			in[to][r] = b
		}
	}
	ledgers := make([]*Ledger, len(all))
	for r := range all {
		var err error
		if ledgers[r], err = NewLedger(in[r]); err != nil {
			t.Fatal(err)
		}
	}
	return ledgers
}

func TestMissing(t *testing.T) {
	mark := func(comm uint64, name string, peer int, sent, received uint64) Mark {
		return Mark{Comm: comm, Name: name, Peer: peer, Sent: sent, Received: received}
	}
	ranks := func(marks ...[]Mark) [][]Mark { return marks }
	for _, c := range []struct {
		name string
		all  [][]Mark
		want []string
	}{
		{"nobody sent", ranks(nil, nil), nil},
		{"all received", ranks(
			[]Mark{mark(1, "world", 1, 5, 2)},
			[]Mark{mark(1, "world", 0, 2, 5)}), nil},
		{"one direction", ranks(
			[]Mark{mark(1, "world", 1, 5, 2)},
			[]Mark{mark(1, "world", 0, 2, 3)}),
			[]string{`rank 1: rank 0 sent 5 messages on communicator "world", of which 3 are received`}},
		{"the receiver has heard nothing", ranks(
			[]Mark{mark(0x2a, "", 1, 1, 0)}, nil),
			[]string{`rank 1: rank 0 sent 1 messages on communicator "2a", of which 0 are received`}},
		{"equal in sum, but not on each communicator", ranks(
			[]Mark{mark(1, "a", 1, 2, 0), mark(2, "", 1, 1, 0)},
			[]Mark{mark(1, "a", 0, 0, 1), mark(2, "b", 0, 0, 2)}),
			[]string{
				`rank 1: rank 0 sent 2 messages on communicator "a", of which 1 are received`,
				`rank 1: rank 0 sent 1 messages on communicator "b", of which 2 are received: wrong`}},
		{"equal in sum, but not from each rank", ranks(
			[]Mark{mark(1, "w", 2, 2, 0)},
			[]Mark{mark(1, "w", 2, 1, 0)},
			[]Mark{mark(1, "w", 0, 0, 1), mark(1, "w", 1, 0, 2)}),
			[]string{
				`rank 2: rank 0 sent 2 messages on communicator "w", of which 1 are received`,
				`rank 2: rank 1 sent 1 messages on communicator "w", of which 2 are received: wrong`}},
		{"received from one who says nothing", ranks(nil, []Mark{mark(1, "w", 0, 0, 3)}),
			[]string{`rank 1: rank 0 sent 0 messages on communicator "w", of which 3 are received: wrong`}},
		{"to itself", ranks([]Mark{mark(1, "self", 0, 2, 1)}),
			[]string{`rank 0: rank 0 sent 2 messages on communicator "self", of which 1 are received`}},
		{"two objects of one communicator", ranks(
			[]Mark{mark(1, "w", 1, 2, 0), mark(1, "w", 1, 3, 0)},
			[]Mark{mark(1, "w", 0, 0, 5)}), nil},
		{"processes outside the job", ranks([]Mark{mark(1, "w", -1, 2, 3)}), nil},
	} {
		var got []string
		for r, l := range exchange(t, c.all) {
			for _, g := range l.Missing(c.all[r]) {
				text := fmt.Sprintf("rank %d: %v", r, g)
				if g.Wrong() {
					text += ": wrong"
				}
				got = append(got, text)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
}

// TestLanes: whatever was sent, the gaps are what is under way, and receiving it closes them. Ranks
// that have not sent to each other say nothing to each other.
func TestLanes(t *testing.T) {
	const ranks, comms = 5, 3
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		all := make([][]Mark, ranks)
		count := func(me, peer int, comm, sent, received uint64) {
			all[me] = append(all[me], Mark{Comm: comm, Peer: peer, Sent: sent, Received: received})
		}
		var flying [ranks]uint64
		talks := map[[2]int]bool{}
		for from := range ranks {
			for to := range ranks {
				for comm := uint64(1); comm <= comms; comm++ {
					if r.IntN(3) > 0 {
						continue
					}
					n := 1 + r.Uint64N(1000)
					left := r.Uint64N(n + 1)
					count(from, to, comm, n, 0)
					count(to, from, comm, 0, n-left)
					flying[to] += left
					talks[[2]int{from, to}] = true
				}
			}
		}
		for from := range ranks {
			for to := range Notices(all[from]) {
				if !talks[[2]int{from, to}] {
					t.Fatalf("rank %d tells rank %d, to which it has sent nothing", from, to)
				}
			}
		}
		for me, l := range exchange(t, all) {
			gaps := l.Missing(all[me])
			if got := UnderWay(gaps); got != flying[me] {
				t.Fatalf("rank %d: %d messages under way, want %d", me, got, flying[me])
			}
			for _, g := range gaps {
				count(me, g.From, g.Comm, 0, g.Sent-g.Received)
			}
			if gaps := l.Missing(all[me]); len(gaps) > 0 {
				t.Fatalf("rank %d: %v after all was received", me, gaps)
			}
		}
	}
}

// TestTaskLanes: with several ranks a process, messages between two ranks are compared with those of these two alone,
// also where both live in one process, and a process tells another one everything in one message.
func TestTaskLanes(t *testing.T) {
	const each = 2 // ranks 0 and 1 live in process 0
	process := func(rank int) int { return rank / each }
	mark := func(owner, peer int, sent, received uint64) Mark {
		return Mark{Owner: owner, Comm: 7, Name: "w", Peer: peer, Sent: sent, Received: received}
	}
	all := [][]Mark{
		{mark(0, 1, 4, 0), mark(0, 2, 3, 0), mark(1, 0, 0, 3), mark(1, 3, 1, 0)},
		{mark(2, 0, 0, 3), mark(3, 0, 0, 1)},
	}
	var got []string
	for here := range all {
		in := map[int][]byte{}
		for from := range all {
			if b, ok := TaskNotices(all[from], process)[here]; ok {
				in[from] = b
			}
		}
		l, err := NewTaskLedger(in, here, process)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range l.Missing(all[here]) {
			got = append(got, fmt.Sprintf("%v, %v", g, g.Wrong()))
		}
	}
	want := []string{
		`rank 0 sent rank 1 4 messages on communicator "w", of which 3 are received, false`,
		`rank 0 sent rank 3 0 messages on communicator "w", of which 1 are received, true`,
		`rank 1 sent rank 3 1 messages on communicator "7", of which 0 are received, false`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// A process speaks for its own ranks, and to those of the other one.
	for _, wrong := range [][]Mark{{mark(2, 1, 1, 0)}, {mark(0, 2, 1, 0)}} {
		if _, err := NewTaskLedger(map[int][]byte{0: TaskNotices(wrong, func(int) int { return 0 })[0]}, 0, process); err == nil {
			t.Errorf("%v was believed", wrong)
		}
	}
}

func FuzzNotice(f *testing.F) {
	f.Add([]byte{})
	f.Add(Notices([]Mark{{Comm: 1, Peer: 0, Sent: 3}, {Comm: 1 << 63, Peer: 0, Sent: 1 << 40}})[0])
	f.Fuzz(func(t *testing.T, b []byte) {
		sent, rest, err := decodeNotice(b)
		if err != nil || len(sent) == 0 {
			return
		}
		var marks []Mark
		for comm, n := range sent {
			marks = append(marks, Mark{Comm: comm, Sent: n})
		}
		again, _, err := decodeNotice(Notices(marks)[0])
		if diff := cmp.Diff(sent, again); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		if len(Notices(marks)[0]) > len(b)-len(rest) {
			t.Errorf("%x is written as %x", b, Notices(marks)[0])
		}
	})
}

// FuzzTaskNotices takes a message as what another process says of its ranks' messages.
func FuzzTaskNotices(f *testing.F) {
	one := func(int) int { return 0 }
	f.Add([]byte{})
	f.Add(TaskNotices([]Mark{{Comm: 1, Peer: 0, Sent: 3}, {Owner: 5, Comm: 1 << 63, Peer: 2, Sent: 1 << 40}}, one)[0])
	f.Fuzz(func(t *testing.T, b []byte) {
		sent, err := decodeTaskNotices(b)
		if err != nil || len(sent) == 0 {
			return
		}
		var marks []Mark
		for at, n := range sent {
			marks = append(marks, Mark{Owner: at.from, Peer: at.to, Comm: at.comm, Sent: n})
		}
		written := TaskNotices(marks, one)[0]
		again, err := decodeTaskNotices(written)
		if err != nil || len(again) != len(sent) || len(written) > len(b) {
			t.Errorf("%x is written as %x: %v", b, written, err)
		}
		for at, n := range sent {
			if again[at] != n {
				t.Errorf("%v: %d, was %d", at, again[at], n)
			}
		}
	})
}
