// SPDX-License-Identifier: Apache-2.0

package clockwork

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"go.uber.org/zap"

	"github.com/libckpt/libckpt/vid"
)

// A village has a rank in each process, which makes communicators with its first collective clock, that of the world,
// makes calls on them that wait for nobody, and frees them; the clocks hear of them through rings.
type village struct {
	program []deed
	ranks   []*villager
}

// deed is what all members of comm do: make it, call on it (several times), or free it.
type deed struct {
	comm    int
	members []int32
	what    byte // 'm', 'c' or 'f'
}

type villager struct {
	v      *village
	rank   int32
	w      *Clock
	tables *vid.Tables
	ring   *vid.Ring
	ids    []vid.ID // reserved
	world  vid.ID
	at     int // in the program
	gate   bool
	inside bool
	k      uint64
	comms  map[int]vid.ID
}

func newVillage(t *testing.T, r *rand.Rand, ranks int) *village {
	t.Helper()
	v := &village{}
	var open []deed
	for comm := 1; comm <= 12; comm++ {
		var members []int32
		for _, m := range r.Perm(ranks)[:1+r.IntN(ranks)] {
			members = append(members, int32(m))
		}
		slices.Sort(members)
		v.program = append(v.program, deed{comm, members, 'm'})
		open = append(open, deed{comm, members, 'f'})
		for range r.IntN(4) {
			d := open[r.IntN(len(open))]
			v.program = append(v.program, deed{d.comm, d.members, 'c'})
		}
		for len(open) > 0 && r.IntN(3) > 0 {
			i := r.IntN(len(open))
			v.program = append(v.program, open[i])
			open = slices.Delete(open, i, i+1)
		}
	}
	everyone := make([]int32, ranks)
	for i := range everyone {
		everyone[i] = int32(i)
	}
	for rank := range ranks {
		tables, err := vid.Open(0, 1<<24)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tables.Close() })
		w, err := New(Config{Process: rank, Places: OneEach(ranks), Tables: tables, Log: zap.NewNop(), Kinds: Kinds{Clock: 1, Meet: 2},
			Events: Events{Safe: func(uint32) {}, Resumed: func() {}, Deferred: func() {}}})
		if err != nil {
			t.Fatal(err)
		}
		c := &villager{v: v, rank: int32(rank), w: w, tables: tables, ring: &vid.Ring{}, comms: map[int]vid.ID{}}
		tables.ListenTo(c.ring)
		c.world, err = tables.New(vid.Comm, 1, []byte("world"), nil, 0)
		if err == nil {
			err = tables.SetComm(c.world, vid.CommInfo{Rank: rank, Size: ranks, World: everyone, Identity: 1})
		}
		if err == nil {
			err = w.CommMade(c.world, 1, everyone)
		}
		if err == nil {
			c.ids, err = tables.ReserveComms(40, ranks)
		}
		if err != nil {
			t.Fatal(err)
		}
		v.ranks = append(v.ranks, c)
	}
	return v
}

// step does what the rank can do now; false: nothing.
func (c *villager) step() bool {
	if c.at == len(c.v.program) {
		return false
	}
	d := c.v.program[c.at]
	on := c.world
	if d.what != 'm' {
		if !slices.Contains(d.members, c.rank) {
			c.at++
			return true
		}
		on = c.comms[d.comm]
	}
	call, ret := counterOf(c.tables, on)
	if !c.inside {
		if !c.gate {
			c.k = *call + 1
			*call = c.k
		}
		if (c.gate || pendingOf(c.tables)) && c.w.Call(on, c.k, Blocking) == Wait {
			moved := !c.gate
			c.gate = true
			return moved
		}
		c.gate, c.inside = false, true
		return true
	}
	c.inside = false
	c.at++
	switch d.what {
	case 'm':
		if slices.Contains(d.members, c.rank) {
			c.comms[d.comm] = c.made(d)
		}
	case 'f':
		c.free(on, c.k)
		return true // it has no counters any more
	}
	*ret = c.k
	if pendingOf(c.tables) {
		c.w.Returned(on, c.k)
	}
	return true
}

func (c *villager) made(d deed) vid.ID {
	id := c.ids[0]
	c.ids = c.ids[1:]
	openSlot(c.tables, id, len(d.members))
	for !c.ring.Tell(id, 1000+uint64(d.comm), []byte("x"), d.members, d.members, len(c.v.ranks)) {
		c.w.Hear()
	}
	if pendingOf(c.tables) {
		c.w.Hear()
	}
	return id
}

func (c *villager) free(id vid.ID, k uint64) {
	if c.ring.Gone(id, k) {
		closeSlot(c.tables, id)
		c.ids = append(c.ids, id)
		return
	}
	if c.at%3 == 0 { // as one that the runtime has told of itself
		c.w.CommFreed(id)
		if err := c.tables.Free(id); err != nil {
			panic(err)
		}
		return
	}
	closeSlot(c.tables, id)
	for !c.ring.Freed(id, uint64(id), k) {
		c.w.Hear()
	}
	if pendingOf(c.tables) {
		c.w.Hear()
	}
}

// unsafe says why the state that all ranks have stopped in is not safe: some member of a communicator has not come as
// far with it as another one.
func (v *village) unsafe() error {
	for _, c := range v.ranks {
		if c.inside && (len(v.program[c.at].members) > 1 || v.program[c.at].what == 'm') { // else it concerns nobody
			return fmt.Errorf("rank %d is in a collective call", c.rank)
		}
	}
	for i, d := range v.program {
		members := d.members
		if d.what == 'm' {
			members = nil
			for r := range v.ranks {
				members = append(members, int32(r))
			}
		}
		done := func(r int32) bool { return v.ranks[r].at > i }
		for _, m := range members {
			if done(m) != done(members[0]) {
				return fmt.Errorf("%c of communicator %d: rank %d has done it, %d has not, or the other way round", d.what, d.comm, m, members[0])
			}
		}
	}
	return nil
}

// run makes one random schedule, and returns how many safe states were reached.
func (v *village) run(r *rand.Rand) (int, error) {
	safe, asked := 0, uint32(0)
	first := v.ranks[0].w
	for turn := 0; turn < 1_000_000; turn++ {
		over := first.told == asked
		ended := !slices.ContainsFunc(v.ranks, func(c *villager) bool { return c.at < len(v.program) || len(c.w.outbox) > 0 })
		if ended && over {
			return safe, nil
		}
		if over && asked < 5 && r.IntN(40) == 0 {
			asked = first.NextEpoch()
			first.Request()
			continue
		}
		if !over && !slices.ContainsFunc(v.ranks, func(c *villager) bool { return !c.w.Safe(asked) }) {
			if err := v.unsafe(); err != nil {
				return safe, err
			}
			safe++
			for _, c := range v.ranks {
				c.w.Release()
			}
			first.Resume()
			continue
		}
		for _, i := range r.Perm(2 * len(v.ranks)) {
			c := v.ranks[i%len(v.ranks)]
			if i < len(v.ranks) {
				if c.step() {
					break
				}
			} else if n := len(c.w.outbox); n > 0 {
				k := r.IntN(n)
				o := c.w.outbox[k]
				c.w.outbox = slices.Delete(c.w.outbox, k, k+1)
				v.ranks[o.to].w.heardClock(int(c.rank), o.payload)
				break
			}
		}
	}
	return safe, fmt.Errorf("it does not end: %s", first.root().machine.Status())
}

// TestNews: communicators of which the clocks hear late are as safe as those of which they hear at once, and are
// forgotten when all have freed them.
func TestNews(t *testing.T) {
	rounds, safe := 300, 0
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		v := newVillage(t, r, 2+r.IntN(3))
		n, err := v.run(r)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		safe += n
		// What is over is forgotten once it is told. Two clocks stay: that of MPI_COMM_WORLD, and that of the world here.
		for _, c := range v.ranks {
			c.w.Hear()
		}
		for moved := true; moved; {
			moved = false
			for _, c := range v.ranks {
				out := c.w.outbox
				c.w.outbox = nil
				for _, o := range out {
					v.ranks[o.to].w.heardClock(int(c.rank), o.payload)
					moved = true
				}
			}
		}
		live := map[int]int{} // communicators of several members that were not freed, by rank
		for _, d := range v.program {
			for _, m := range d.members {
				if len(d.members) > 1 {
					live[int(m)] += map[byte]int{'m': 1, 'f': -1}[d.what]
				}
			}
		}
		for _, c := range v.ranks {
			if got, want := len(c.w.root().machine.Views()), live[int(c.rank)]+2; got != want {
				t.Fatalf("seed %d: rank %d has %d clocks, want %d", seed, c.rank, got, want)
			}
		}
	}
	if safe < rounds {
		t.Errorf("%d safe states in %d runs: the test sees little", safe, rounds)
	}
}

// openSlot and closeSlot are what a runtime does in the slot of a reserved id.
func openSlot(t *vid.Tables, id vid.ID, peers int) {
	slot := slotOf(t, id)
	clear(unsafe.Slice((*byte)(pointer(*(*uintptr)(pointer(slot + 24)))), 32+16*peers))
	*(*uint64)(pointer(slot)) = uint64(id)
	*(*uint32)(pointer(slot + 8))++
}

func closeSlot(t *vid.Tables, id vid.ID) {
	slot := slotOf(t, id)
	*(*uint64)(pointer(slot)) = 0
	*(*uint32)(pointer(slot + 8))++
}
