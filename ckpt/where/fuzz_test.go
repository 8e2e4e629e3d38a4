// SPDX-License-Identifier: Apache-2.0

package where

import (
	"context"
	"encoding/json"
	"testing"
)

// FuzzAnswer takes a message as what each rank answers: whatever it says, rank 0 has a line for each.
func FuzzAnswer(f *testing.F) {
	one, err := json.Marshal(message{Number: 1, At: Rank{Host: "a", PID: 7,
		Clocks: []Clock{{Clock: "1", Name: "MPI_COMM_WORLD", Called: 3, Gate: true, Call: "MPI_Barrier", Members: []int32{0, 1, 2}}},
		Calls:  []Call{{Call: "MPI_Recv", Comm: "MPI_COMM_WORLD", Peer: 1, Tag: 5}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(one)
	f.Add([]byte(`{"number":1,"at":{},"more":[{"clocks":[{"clock":"c","gate":true,"called":2}]},{},{}]}`))
	f.Add([]byte(`{"number":1,"at":{"clocks":[{"members":[-1,99],"inside":true}],"calls":[{"peer":-9,"for":77}]}}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		const ranks = 3
		all := map[int]Rank{}
		for r := range ranks {
			var m message
			if json.Unmarshal(answer, &m) == nil {
				all[r] = m.At
			}
		}
		if out := explain(all, ranks); len(out) != ranks {
			t.Errorf("%d ranks", len(out))
		}
		a := NewAsker(2, pairs(4), func() []Rank { return []Rank{{}, {}} }, func(context.Context, int, []byte) error { return nil }, nil)
		l := &look{all: map[int][]Rank{}, done: make(chan struct{})}
		a.open[1] = l
		a.Heard(1, answer)
		if out := fold(explain(a.byRank(l.all), 4), 2, a.places); len(out) != 2 {
			t.Errorf("%d processes", len(out))
		}
	})
}
